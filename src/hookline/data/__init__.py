"""Loaders that can be taken up anywhere, and the bundled digits."""
