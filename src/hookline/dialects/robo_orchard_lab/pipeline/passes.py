"""Passes over the training data that can start at any batch.

The order of a pass depends only on the seed and the epoch, as everywhere in hookline. The seed is the one of the last
`torch.manual_seed` (or accelerate's `set_seed`) before the trainer is created. accelerate still splits the batches
among the processes and moves them to the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from hookline.common.rng import mix
from hookline.data.batches import length_of
from hookline.data.loader import ResumableLoader
from hookline.data.sources import as_resumable, iterator, seeded
from hookline.data.transfer import to_device
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.errors import DataError

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.plan.costs import Cost

log = logger_of(__name__)


class Passes:
    """The passes over a loader. Each pass can start at any batch.

    Args:
        given: The user's loader.
        prepared: The same loader as prepared by accelerate; hooks see this one.
        accelerator: The accelerator whose processes share the batches.
    """

    def __init__(self, given: Iterable[Any], prepared: Any, accelerator: Accelerator) -> None:
        self.seed = _share_seed(torch.initial_seed(), accelerator)
        self.length = length_of(prepared)
        self._name = type(given).__name__
        self._device = accelerator.device
        self._stateful = bool(getattr(prepared, "use_stateful_dataloader", False))
        self._single_use = isinstance(given, Iterator)
        self._resumable = as_resumable(given)
        self._own_seed = isinstance(given, ResumableLoader)
        self._loader = prepared if self._resumable is None else _prepare(self._resumable.inner, accelerator)
        if self._own_seed:
            self.length = len(self._loader)
        #: The loader of the current pass.
        self._current: Any = None

    def begin(self, epoch: int, start: int, on_failure: Callable[[], None], waiting: Cost) -> Iterator[Any]:
        """Yield the batches of a pass from number `start` on; call `on_failure` if loading a batch fails.

        The time spent waiting for the loader is added to `waiting`.
        """
        self.end()
        if self._resumable is not None:
            found = self._begin_resumable(self._resumable, epoch, start)
        elif isinstance(self._loader, DataLoader):
            found = self._begin_prepared(epoch, start)
        else:
            found = iterator(self._loader, seed=self.seed, epoch=epoch, start=start, state=None, resuming=start > 0)
            if self._device.type != "cpu":
                found = (to_device(batch, self._device) for batch in found)
        return self._checked(found, start, on_failure, waiting)

    def _begin_resumable(self, loader: ResumableLoader, epoch: int, start: int) -> Iterator[Any]:
        if not self._own_seed:
            loader.seed = self.seed
        loader.begin(epoch)
        if hasattr(loader.dataset, "set_epoch"):
            loader.dataset.set_epoch(epoch)
        self._current = _skip_batches(self._loader, start)
        return iter(self._current)

    def _begin_prepared(self, epoch: int, start: int) -> Iterator[Any]:
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)
        self._current = self._loader if self._stateful else _skip_batches(self._loader, start)
        if start and not self._stateful:
            log.warning(
                "the %s resumes at batch %d; its random numbers may differ from the interrupted run. "
                "A plain DataLoader or a hookline.data.ResumableLoader resumes exactly.",
                self._name,
                start,
            )
        return iter(self._current) if self._stateful else seeded(self._current, mix(self.seed, epoch))

    def _checked(
        self, found: Iterator[Any], start: int, on_failure: Callable[[], None], waiting: Cost
    ) -> Iterator[Any]:
        """Yield the batches. Refuse data without any batch, because training would never end."""
        count, read = start, time.perf_counter
        began = read()
        try:
            for batch in found:
                waited = read() - began
                waiting.seconds += waited
                waiting.calls += 1
                if waited > waiting.longest:
                    waiting.longest = waited
                count += 1
                yield batch
                began = read()
        except Exception:
            on_failure()
            raise
        if not count and self._single_use:
            raise DataError(
                f"the {self._name} can be iterated only once, and it is exhausted; pass data that can be iterated "
                "again, such as a DataLoader or a list, or train for fewer steps or epochs"
            )
        if not count:
            raise DataError(f"the {self._name} yielded no batch, so there is nothing to train on")

    def end(self) -> None:
        """End an unfinished pass. accelerate keeps a reference to every pass that is in progress."""
        current, self._current = self._current, None
        state = getattr(current, "gradient_state", None)
        if state is not None and any(one is current for one in state.dataloader_references):
            current.end()


def _prepare(loader: DataLoader[Any], accelerator: Accelerator) -> Any:
    """Prepare a loader as accelerate does, but without adding it to the loaders whose state accelerate saves."""
    from accelerate.data_loader import prepare_data_loader  # type: ignore[import-untyped]

    on_device = accelerator.device.type != "cpu"  # batches are created on the CPU, and checking each of them takes time
    return prepare_data_loader(
        loader,
        accelerator.device,
        num_processes=accelerator.num_processes,
        process_index=accelerator.process_index,
        split_batches=accelerator.split_batches,
        put_on_device=on_device and accelerator.device_placement,
        rng_types=[],
        dispatch_batches=accelerator.dispatch_batches if on_device else None,
        even_batches=accelerator.even_batches,
        non_blocking=accelerator.non_blocking,
    )


def _skip_batches(loader: Any, batches: int) -> Any:
    """Return the loader without its first batches, which are not read."""
    from accelerate import skip_first_batches

    return skip_first_batches(loader, batches) if batches else loader


def _share_seed(seed: int, accelerator: Accelerator) -> int:
    """Return the seed of the main process in all processes, because they share one order."""
    if accelerator.num_processes == 1:
        return seed
    from accelerate.utils import broadcast_object_list  # type: ignore[import-untyped]

    shared: list[int] = broadcast_object_list([seed])
    return shared[0]
