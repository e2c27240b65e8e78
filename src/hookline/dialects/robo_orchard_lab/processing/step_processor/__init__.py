"""`robo_orchard_lab.processing.step_processor`: the batch processors, under the names of later versions."""

from hookline.dialects.robo_orchard_lab.processing.step_processor.pipeline_step import *
from hookline.dialects.robo_orchard_lab.processing.step_processor.pipeline_step import __all__ as __all__
