"""`robo_orchard_lab.pipeline`: the trainers."""

from hookline.dialects.exports import export_imported
from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import *
from hookline.dialects.robo_orchard_lab.pipeline.trainer import *

export_imported(globals())
