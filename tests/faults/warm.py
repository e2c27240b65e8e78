"""The last import of the fork server: the other modules that most children need. Then it freezes the garbage collector.

Otherwise a child that collects garbage would touch, and so copy, every object that it shares with the server.
"""

from __future__ import annotations

import gc
from importlib import import_module

#: None of them imports an optional library.
MODULES = (
    *("hookline.checkpoint.inspection", "hookline.cli.dry_run", "hookline.screen.console"),
    *(f"hookline.hooks.{name}" for name in ("checkpoint", "logger", "param_scheduler", "progress", "runtime_info")),
    *(f"hookline.hooks.{name}" for name in ("sampler_seed", "timer")),
    *(f"hookline.writers.{name}" for name in ("console", "csv", "jsonl", "mlflow", "tensorboard", "wandb")),
    *("safetensors.torch", "torch.utils.serialization.config"),
    *(f"tests.faults.{name}" for name in ("hostile", "raw_inputs", "silent")),
)
for module in MODULES:
    import_module(module)

gc.collect()
gc.freeze()
