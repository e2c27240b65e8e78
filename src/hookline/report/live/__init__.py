"""The live page: a server that follows one run, or a folder of runs, for `hookline watch`."""
