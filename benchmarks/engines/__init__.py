"""One file per engine: each trains the same task, alone, or with logging, a progress bar and checkpoints."""
