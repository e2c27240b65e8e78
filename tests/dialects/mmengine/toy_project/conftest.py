"""A project that the tests put on the path; its modules and configs are no tests."""

collect_ignore_glob = ["*"]
