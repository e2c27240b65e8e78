"""Test-time augmentation: merge the predictions for several versions of each sample."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.model.base_model import BaseModel
from hookline.dialects.mmengine.registry import MODELS

__all__ = ["BaseTTAModel"]

DATA_BATCH = EnhancedBatchInputs = EnhancedBatchDataSamples = MergedDataSamples = Any


class BaseTTAModel(BaseModel):
    """A model around another one, for batches in which every sample has several augmented versions.

    Every entry of a batch is a list with one item per augmentation, which is a list of samples. A subclass defines
    `merge_preds`.

    Args:
        module: The model, or a dict that describes it.
        data_preprocessor: The data preprocessor for a model that is given as a dict.
    """

    def __init__(self, module: Any, data_preprocessor: Any = None) -> None:
        super().__init__()
        if isinstance(module, Mapping):
            own = {} if data_preprocessor is None else {"data_preprocessor": data_preprocessor}
            module = MODELS.build({**module, **own})
        if not isinstance(module, nn.Module) or not hasattr(module, "test_step"):
            raise ConfigTypeError(
                f"{type(self).__name__} needs a model with the method test_step, or a dict that describes one, not "
                f"{module!r}"
            )
        self.module: Any = module

    @abstractmethod
    def merge_preds(self, data_samples_list: list[Any]) -> list[Any]:
        """Return one prediction per sample, from its predictions for all augmentations."""

    def test_step(self, data: Any) -> Any:
        """Return the merged predictions for a batch."""
        if isinstance(data, Mapping):
            count = len(next(iter(data.values())))
            batches: list[Any] = [{name: value[n] for name, value in data.items()} for n in range(count)]
        elif isinstance(data, Sequence):
            batches = [[each[n] for each in data] for n in range(len(data[0]))]
        else:
            raise ConfigTypeError(f"a batch of augmented samples must be a dict or a list, not a {type(data).__name__}")
        predictions = [self.module.test_step(batch) for batch in batches]
        return self.merge_preds(list(zip(*predictions, strict=True)))

    def forward(self, *args: Any, mode: str = "tensor", **kwargs: Any) -> Any:
        """Refuse: only `test_step` is used."""
        raise NotImplementedError(f"{type(self).__name__} only has test_step, for augmented batches")
