"""Model wrappers."""

from hookline.dialects.mmengine.model.wrappers.utils import is_model_wrapper

__all__ = ["is_model_wrapper"]
