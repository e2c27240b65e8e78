"""The folder of a run: who owns it, how old files are archived, how a run is read back and compared."""
