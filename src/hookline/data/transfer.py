"""Moving batches to the device: tensors in nested containers, and objects with a `.to`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch on the device.

    Tuples and named tuples keep their type; mappings become dicts. Tensors that are already on the device are not
    copied.
    """
    if isinstance(batch, Tensor):
        return batch if batch.device == device else batch.to(device, non_blocking=batch.is_pinned())
    if hasattr(batch, "to"):  # also containers that move themselves, such as a PackedSequence
        return batch.to(device)
    if isinstance(batch, list):
        return [to_device(item, device) for item in batch]
    if isinstance(batch, tuple):
        moved = [to_device(item, device) for item in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    return batch


class Transfer:
    """Moves batches to a GPU on a separate stream, so that the GPU can compute at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams = torch.get_device_module(device)
        self._own = self._streams.Stream(device)

    def start(self, batch: Any) -> Any:
        """Start to move a batch, and return it. It must not be used before `finish`."""
        with self._streams.stream(self._own):
            return to_device(batch, self._device)

    def finish(self, batch: Any) -> Any:
        """Let the computation wait for a batch, and keep its memory until the computation has used it."""
        current = self._streams.current_stream(self._device)
        current.wait_stream(self._own)
        for_each_tensor(batch, lambda tensor: tensor.record_stream(current))
        return batch


def for_each_tensor(batch: Any, function: Callable[[Tensor], Any]) -> None:
    """Call a function with each tensor in a batch."""
    if isinstance(batch, Tensor):
        function(batch)
    elif isinstance(batch, (list, tuple)):
        for item in batch:
            for_each_tensor(item, function)
    elif isinstance(batch, Mapping):
        for item in batch.values():
            for_each_tensor(item, function)


def moved_ahead(pairs: Iterable[tuple[Any, bool]], transfer: Transfer) -> Iterator[tuple[Any, bool]]:
    """Yield batches on the device. The transfer of the next one starts before the current one is yielded.

    If the next batch cannot be read, the error is raised after the current one was used, as without reading ahead.
    """
    following = iter(pairs)
    first = next(following, None)
    if first is None:
        return
    batch, last = transfer.start(first[0]), first[1]
    while True:
        failure: BaseException | None = None
        found = None
        if not last:
            try:
                found = next(following, None)
                moved = None if found is None else transfer.start(found[0])
            except Exception as error:
                failure = error
        yield transfer.finish(batch), last
        if failure is not None:
            raise failure
        if last:  # the loader may have code after its last batch
            found = next(following, None)
            moved = None if found is None else transfer.start(found[0])
        if found is None:
            return
        batch, last = moved, found[1]
