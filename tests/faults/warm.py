"""What the server of children imports last: the rest of what most of them need, and then nothing is tidied up any more.

A child that collects garbage would touch, and so copy, every object that it shares with the server.
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
import hookline.writers.jsonl  # noqa: F401  # imported for their own sake, like all of these
from tests.faults import hostile, silent  # noqa: F401

gc.collect()
gc.freeze()
