"""Read lists and dicts from text files."""

from hookline.dialects.mmengine.fileio.io import dict_from_file, list_from_file

__all__ = ["dict_from_file", "list_from_file"]
