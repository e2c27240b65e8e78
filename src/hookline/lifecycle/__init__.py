"""The beginning and the end of a run: folder, log, signals, records, points."""
