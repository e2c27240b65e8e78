"""Optimizer wrappers and the functions that build them."""

from hookline.dialects.mmengine.not_included import not_included
from hookline.dialects.mmengine.optim.optimizer.amp_optimizer_wrapper import AmpOptimWrapper
from hookline.dialects.mmengine.optim.optimizer.base import BaseOptimWrapper
from hookline.dialects.mmengine.optim.optimizer.builder import (
    OPTIM_WRAPPER_CONSTRUCTORS,
    OPTIMIZERS,
    build_optim_wrapper,
)
from hookline.dialects.mmengine.optim.optimizer.default_constructor import DefaultOptimWrapperConstructor
from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper import OptimWrapper
from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper_dict import OptimWrapperDict

__all__ = [
    "OPTIMIZERS",
    "OPTIM_WRAPPER_CONSTRUCTORS",
    "AmpOptimWrapper",
    "BaseOptimWrapper",
    "DefaultOptimWrapperConstructor",
    "OptimWrapper",
    "OptimWrapperDict",
    "build_optim_wrapper",
]
not_included(globals(), "ApexOptimWrapper", "ZeroRedundancyOptimizer")
