"""Small helpers for torch, and facts about this machine."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.utils.dl_utils.collect_env import collect_env as collect_env
from hookline.dialects.mmengine.utils.dl_utils.misc import *
from hookline.dialects.mmengine.utils.dl_utils.parrots_wrapper import TORCH_VERSION as TORCH_VERSION
from hookline.dialects.mmengine.utils.dl_utils.setup_env import set_multi_processing as set_multi_processing
from hookline.dialects.mmengine.utils.dl_utils.torch_ops import torch_meshgrid as torch_meshgrid
from hookline.dialects.mmengine.utils.dl_utils.trace import is_jit_tracing as is_jit_tracing

export_imported(globals())
