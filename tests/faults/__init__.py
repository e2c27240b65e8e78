"""Faults that a run must survive. `python -m tests.faults.figures` measures and prints the published figures."""
