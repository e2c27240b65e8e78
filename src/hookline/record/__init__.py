"""Numbers and pictures of a run, in memory: the hub, smoothing, images."""
