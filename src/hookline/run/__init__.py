"""Where a run is, what it is asked to do, and the signals that ask."""
