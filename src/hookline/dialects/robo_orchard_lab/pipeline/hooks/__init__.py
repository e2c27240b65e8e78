"""`robo_orchard_lab.pipeline.hooks`: the hooks and their configs."""

from hookline.dialects.exports import export_imported
from hookline.dialects.robo_orchard_lab.pipeline.hooks.checkpoint import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.grad_clip import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.loss_tracker import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.memory import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.metric import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.optimizer import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.stats import *
from hookline.dialects.robo_orchard_lab.pipeline.hooks.validation import *

export_imported(globals())
