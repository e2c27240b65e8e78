"""The numbers and images of a run, in memory: the hub, smoothing, images."""
