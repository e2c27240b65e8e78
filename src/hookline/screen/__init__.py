"""The terminal: lines, the progress display, notebooks."""
