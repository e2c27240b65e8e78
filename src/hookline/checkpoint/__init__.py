"""Checkpoint files: writing, reading, verifying, retention and export. `store` is the place to start reading."""
