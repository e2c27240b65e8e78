"""Registries of models and their parts, and the functions that build them. iMIX's own models are not included."""

from hookline.dialects.exports import export_imported
from hookline.dialects.imix.models.builder import *

export_imported(globals())
