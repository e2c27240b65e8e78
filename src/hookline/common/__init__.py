"""Small helpers that know nothing about a run: checks, durations, patterns, random generators, plain data."""
