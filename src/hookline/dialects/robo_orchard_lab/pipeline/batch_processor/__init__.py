"""`robo_orchard_lab.pipeline.batch_processor`: the classes that process a batch."""

from hookline.dialects.exports import export_imported
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.mixin import *
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import *

export_imported(globals())
