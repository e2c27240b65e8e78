"""Small helpers that know nothing of a run: checks, durations, patterns, random generators, plain data."""
