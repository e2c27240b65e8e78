"""Losses that a config names."""

from hookline.dialects.imix.models.losses.base_loss import BaseLoss, Losser

__all__ = ["BaseLoss", "Losser"]
