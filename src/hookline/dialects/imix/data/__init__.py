"""Registries of data sets and their parts, and the functions that build loaders. iMIX's data sets are not included."""

from hookline.dialects.exports import export_imported
from hookline.dialects.imix.data.builder import *

export_imported(globals())
