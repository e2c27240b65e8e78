"""Some classes of the digits, and only a few images of each: the data of a fine-tuning."""

from typing import Literal

from torch.utils.data import Subset

from hookline.data import Digits


class FewDigits(Subset):
    """Digits of some classes.

    Args:
        split: The split of the digits.
        classes: The classes to keep.
        per_class: The number of images of each class; None keeps all.
    """

    def __init__(
        self, split: Literal["train", "val", "test"], classes: list[int], per_class: int | None = None
    ) -> None:
        digits = Digits(split)
        labels = digits.tensors[1].tolist()
        kept: list[int] = []
        for each in classes:
            kept += [index for index, label in enumerate(labels) if label == each][:per_class]
        super().__init__(digits, kept)
