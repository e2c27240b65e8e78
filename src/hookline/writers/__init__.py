"""Writers take numbers, images and the config out of the process. One file a writer; `Writer` is what they share."""

from hookline.writers.base import Writer
from hookline.writers.together import Writers

__all__ = ["Writer", "Writers"]
