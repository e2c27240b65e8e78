"""Evaluation of a model: converters turn its outputs into predictions, and metrics judge them."""

from hookline.dialects.exports import export_imported
from hookline.dialects.imix.evaluation.evaluator_imix import *

export_imported(globals())
