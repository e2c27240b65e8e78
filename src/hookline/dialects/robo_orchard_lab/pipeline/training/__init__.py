"""`robo_orchard_lab.pipeline.training`: the module of the trainers in later versions of RoboOrchard."""

from hookline.dialects.exports import export_imported
from hookline.dialects.robo_orchard_lab.pipeline.training.hook_based_trainer import *
from hookline.dialects.robo_orchard_lab.pipeline.training.trainer import *

export_imported(globals())
