"""The scripts are run by tests, and are none themselves."""

collect_ignore = ["scripts"]
