"""SimpleTrainer, in the module that has it in later versions of RoboOrchard."""

from hookline.dialects.robo_orchard_lab.pipeline.trainer import *
from hookline.dialects.robo_orchard_lab.pipeline.trainer import __all__ as __all__
