"""Compare a checkpoint with this run, decide who wins, and report it."""
