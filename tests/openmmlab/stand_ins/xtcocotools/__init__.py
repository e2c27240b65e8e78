"""A stand-in for xtcocotools, which is compiled for another numpy: pycocotools has the same classes."""
