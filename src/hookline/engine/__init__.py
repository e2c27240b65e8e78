"""The training engine: the Runner, its loops, the update, requests, sessions, signals and saving."""
