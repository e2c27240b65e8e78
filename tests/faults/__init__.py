"""What a run must survive. `python -m tests.faults.figures` prints what is published of it."""
