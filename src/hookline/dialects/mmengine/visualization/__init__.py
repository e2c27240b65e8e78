"""Visualizer and its backends, which pass records to the writers of a run."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.visualization.vis_backend import *
from hookline.dialects.mmengine.visualization.visualizer import Visualizer as Visualizer

export_imported(globals())
