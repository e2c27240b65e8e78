"""The contents of a checkpoint: parts, snapshots, writing and loading."""
