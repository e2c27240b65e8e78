"""Collate functions, and the setup of workers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import default_collate as torch_default_collate

from hookline.dialects.mmengine.registry import FUNCTIONS

__all__ = ["COLLATE_FUNCTIONS", "default_collate", "pseudo_collate", "worker_init_fn"]

COLLATE_FUNCTIONS = FUNCTIONS
F = TypeVar("F", bound=Callable[..., Any])


def worker_init_fn(
    worker_id: int, num_workers: int, rank: int, seed: int, disable_subprocess_warning: bool = False
) -> None:
    """Seed a worker; the loader of a run does not need this, because it seeds every sample separately."""
    own = num_workers * rank + worker_id + seed
    np.random.seed(own % 2**32)
    random.seed(own)
    torch.manual_seed(own)
    if disable_subprocess_warning and worker_id != 0:
        warnings.simplefilter("ignore")


def _draws_nothing(function: F) -> F:
    """Mark a collate function that draws no random numbers, so that the random state need not be restored."""
    function.draws_random_numbers = False  # type: ignore[attr-defined]  # any function takes attributes
    return function


@_draws_nothing
def pseudo_collate(data_batch: Sequence[Any]) -> Any:
    """Return a batch structured like a sample, with a list of the samples' values in each place; nothing is stacked."""
    return _collate(data_batch, list)


@_draws_nothing
def default_collate(data_batch: Sequence[Any]) -> Any:
    """Return a batch structured like a sample, with tensors, arrays and numbers stacked."""
    return _collate(data_batch, _stack)


def _stack(values: Sequence[Any]) -> Any:
    if isinstance(values[0], torch.Tensor):
        return torch_default_collate(list(values))
    if any(kind.__name__ == "BaseDataElement" for kind in type(values[0]).__mro__):
        return list(values)
    return torch_default_collate(list(values))


def _collate(batch: Sequence[Any], leaf: Callable[[Sequence[Any]], Any]) -> Any:
    first = batch[0]
    if isinstance(first, torch.Tensor):
        return leaf(batch)
    kind: Any = type(first)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(_collate(values, leaf) for values in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError(
                "the samples of a batch must have the same number of parts; these have "
                f"{[len(sample) for sample in batch]}"
            )
        return [_collate(values, leaf) for values in zip(*batch, strict=True)]
    if isinstance(first, Mapping):
        return kind({key: _collate([sample[key] for sample in batch], leaf) for key in first})
    return leaf(batch)
