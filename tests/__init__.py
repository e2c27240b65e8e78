"""The tests. Folders without an `__init__.py` are found by their files; `tests.faults` can be run by itself."""
