"""The originals' own test suites, run through the dialects: `python -m tests.dialects.originals PATH`."""
