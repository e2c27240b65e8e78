"""The last import of the fork server: the other modules that most children need. Then it freezes the garbage collector.

Otherwise a child that collects garbage would touch, and so copy, every object that it shares with the server.
"""

from __future__ import annotations

import gc

import hookline.hooks.checkpoint
import hookline.hooks.logger
import hookline.hooks.param_scheduler
import hookline.hooks.progress
import hookline.hooks.runtime_info
import hookline.hooks.sampler_seed
import hookline.hooks.timer
import hookline.writers.jsonl  # noqa: F401  # imported only to be loaded, like all of these
from tests.faults import hostile, raw_inputs, silent  # noqa: F401

gc.collect()
gc.freeze()
