"""The same training, written natively and for each of the four other systems."""
