"""One training, written natively and for each of the four systems."""
