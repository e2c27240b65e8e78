"""LabelData: labels of a sample."""

from __future__ import annotations

import torch
from torch import Tensor

from hookline.dialects.mmengine.structures.base_data_element import BaseDataElement


class LabelData(BaseDataElement):
    """Annotations or predictions of a whole sample.

    >>> LabelData.label_to_onehot(torch.tensor([1]), 3)
    tensor([0, 1, 0])
    """

    @staticmethod
    def onehot_to_label(onehot: Tensor) -> Tensor:
        """Return the labels whose entries are 1."""
        assert isinstance(onehot, Tensor), f"expected a tensor, not a {type(onehot).__name__}"
        if onehot.ndim != 1 or onehot.max().item() > 1 or onehot.min().item() < 0:
            raise ValueError("expected a tensor with one dimension and entries between 0 and 1")
        return onehot.nonzero().squeeze(-1)

    @staticmethod
    def label_to_onehot(label: Tensor, num_classes: int) -> Tensor:
        """Return a tensor with an entry per class, which is 1 for the labels."""
        assert isinstance(label, Tensor), f"expected a tensor, not a {type(label).__name__}"
        assert max(label, default=torch.tensor(0)).item() < num_classes, (
            f"a label is too large for {num_classes} classes"
        )
        onehot = label.new_zeros((num_classes,))
        onehot[label] = 1
        return onehot
