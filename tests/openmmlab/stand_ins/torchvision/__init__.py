"""A stand-in for torchvision, which does not import with every version of torch: only what the projects import."""

from torchvision import models, ops, transforms, utils

__version__ = "0.0"
__all__ = ["models", "ops", "transforms", "utils"]
