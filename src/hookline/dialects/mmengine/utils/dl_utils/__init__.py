"""Small helpers for torch, and facts about this machine."""

from hookline.dialects.mmengine.utils.dl_utils.collect_env import collect_env
from hookline.dialects.mmengine.utils.dl_utils.misc import has_batch_norm, is_norm, mmcv_full_available, tensor2imgs
from hookline.dialects.mmengine.utils.dl_utils.parrots_wrapper import TORCH_VERSION
from hookline.dialects.mmengine.utils.dl_utils.setup_env import set_multi_processing
from hookline.dialects.mmengine.utils.dl_utils.torch_ops import torch_meshgrid
from hookline.dialects.mmengine.utils.dl_utils.trace import is_jit_tracing

__all__ = [
    "TORCH_VERSION",
    "collect_env",
    "has_batch_norm",
    "is_jit_tracing",
    "is_norm",
    "mmcv_full_available",
    "set_multi_processing",
    "tensor2imgs",
    "torch_meshgrid",
]
