"""Checkpoints: `snapshot` says what is in one, `store` how it gets to the disk and back."""
