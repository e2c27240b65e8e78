"""The folder of a run: locking it, archiving old files, reading a run back, and comparing runs."""
