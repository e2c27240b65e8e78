"""Keep pytest from collecting the scripts: tests run them, but they are not tests."""

collect_ignore = ["scripts"]
