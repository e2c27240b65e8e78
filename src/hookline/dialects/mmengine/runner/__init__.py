"""Runner, its loops, checkpoints and log processing."""

from hookline.dialects.mmengine.not_included import not_included
from hookline.dialects.mmengine.runner.activation_checkpointing import turn_on_activation_checkpointing
from hookline.dialects.mmengine.runner.amp import autocast
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.dialects.mmengine.runner.checkpoint import (
    CheckpointLoader,
    find_latest_checkpoint,
    get_state_dict,
    load_checkpoint,
    load_state_dict,
    save_checkpoint,
    weights_to_cpu,
)
from hookline.dialects.mmengine.runner.log_processor import LogProcessor
from hookline.dialects.mmengine.runner.loops import EpochBasedTrainLoop, IterBasedTrainLoop, TestLoop, ValLoop
from hookline.dialects.mmengine.runner.priority import Priority, get_priority
from hookline.dialects.mmengine.runner.runner import Runner
from hookline.dialects.mmengine.runner.utils import set_random_seed

__all__ = [
    "BaseLoop",
    "CheckpointLoader",
    "EpochBasedTrainLoop",
    "IterBasedTrainLoop",
    "LogProcessor",
    "Priority",
    "Runner",
    "TestLoop",
    "ValLoop",
    "autocast",
    "find_latest_checkpoint",
    "get_priority",
    "get_state_dict",
    "load_checkpoint",
    "load_state_dict",
    "save_checkpoint",
    "set_random_seed",
    "turn_on_activation_checkpointing",
    "weights_to_cpu",
]
models = ("get_deprecated_model_names", "get_external_models", "get_mmcls_models", "get_torchvision_models")
not_included(globals(), "FlexibleRunner", *models)
