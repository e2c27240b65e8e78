"""`robo_orchard_lab.pipeline`: the trainers."""

from hookline.dialects.exports import public_names
from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import *
from hookline.dialects.robo_orchard_lab.pipeline.trainer import *

__all__ = public_names(globals())
