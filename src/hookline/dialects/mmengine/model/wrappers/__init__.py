"""Model wrappers."""

from hookline.dialects.mmengine.model.wrappers.distributed import (
    MMDistributedDataParallel,
    MMSeparateDistributedDataParallel,
)
from hookline.dialects.mmengine.model.wrappers.utils import is_model_wrapper

__all__ = ["MMDistributedDataParallel", "MMSeparateDistributedDataParallel", "is_model_wrapper"]
