"""HookBasedTrainer, in the module that has it in later versions of RoboOrchard."""

from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import *
from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import __all__ as __all__
