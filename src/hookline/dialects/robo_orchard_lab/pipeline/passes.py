"""Going through the data of a training, so that it can be taken up at any batch.

The order of a pass is a function of the seed and the epoch, as everywhere in hookline. The seed is that of the last
`torch.manual_seed` (or accelerate's `set_seed`) before the trainer is made. What accelerate adds (the share of each
process, the device) stays accelerate's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from hookline.data.batches import length_of
from hookline.data.loader import ResumableLoader, mix
from hookline.data.sources import as_resumable, iterator, seeded
from hookline.data.transfer import to_device
from hookline.dialects.robo_orchard_core.utils.function_info import known_as
from hookline.errors import DataError

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

log = logging.getLogger(known_as(__name__))


class Passes:
    """The passes over a loader, each from any batch on.

    Args:
        given: The user's loader.
        prepared: What accelerate made of it; hooks see this one.
        accelerator: Whose processes share the batches.
    """

    def __init__(self, given: Iterable[Any], prepared: Any, accelerator: Accelerator) -> None:
        self.seed = _same_everywhere(torch.initial_seed(), accelerator)
        self.length = length_of(prepared)
        self._name = type(given).__name__
        self._device = accelerator.device
        self._stateful = bool(getattr(prepared, "use_stateful_dataloader", False))
        self._once = isinstance(given, Iterator)
        self._twin = as_resumable(given)
        self._own_seed = isinstance(given, ResumableLoader)
        self._loader = prepared if self._twin is None else _prepare(self._twin.inner, accelerator)
        if self._own_seed:
            self.length = len(self._loader)
        #: The loader that is being gone through.
        self._current: Any = None

    def begin(self, epoch: int, start: int, on_failure: Callable[[], None]) -> Iterator[Any]:
        """The batches of a pass from number `start` on; where there should be one and an error comes, `on_failure`."""
        self.end()
        if self._twin is not None:
            found = self._begin_twin(self._twin, epoch, start)
        elif isinstance(self._loader, DataLoader):
            found = self._begin_prepared(epoch, start)
        else:
            found = iterator(self._loader, seed=self.seed, epoch=epoch, start=start, state=None, resuming=start > 0)
            if self._device.type != "cpu":
                found = (to_device(batch, self._device) for batch in found)
        return self._checked(found, start, on_failure)

    def _begin_twin(self, twin: ResumableLoader, epoch: int, start: int) -> Iterator[Any]:
        if not self._own_seed:
            twin.seed = self.seed
        twin.begin(epoch)
        if hasattr(twin.dataset, "set_epoch"):
            twin.dataset.set_epoch(epoch)
        self._current = _skipping(self._loader, start)
        return iter(self._current)

    def _begin_prepared(self, epoch: int, start: int) -> Iterator[Any]:
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)
        self._current = self._loader if self._stateful else _skipping(self._loader, start)
        if start and not self._stateful:
            log.warning(
                "the %s goes on at batch %d; what it draws at random may be other than in the interrupted run. "
                "A plain DataLoader, or a hookline.data.ResumableLoader, goes on exactly.",
                self._name,
                start,
            )
        return iter(self._current) if self._stateful else seeded(self._current, mix(self.seed, epoch))

    def _checked(self, found: Iterator[Any], start: int, on_failure: Callable[[], None]) -> Iterator[Any]:
        """The batches; data that give none at all are refused, because training would never end."""
        given = start
        try:
            for batch in found:
                given += 1
                yield batch
        except Exception:
            on_failure()
            raise
        if not given and self._once:
            raise DataError(
                f"the {self._name} can be gone through only once, and nothing is left in it; give data "
                "that can be gone through again, as a DataLoader or a list, or less to train"
            )
        if not given:
            raise DataError(f"the {self._name} gave no batch, so there is nothing to train on")

    def end(self) -> None:
        """Leave a pass that was not gone through to its end: accelerate keeps those that are under way."""
        current, self._current = self._current, None
        state = getattr(current, "gradient_state", None)
        if state is not None and any(one is current for one in state.dataloader_references):
            current.end()


def _prepare(loader: DataLoader[Any], accelerator: Accelerator) -> Any:
    """What accelerate makes of a loader; it does not become one of those whose state accelerate saves."""
    from accelerate.data_loader import prepare_data_loader  # type: ignore[import-untyped]

    on_device = accelerator.device.type != "cpu"  # batches are made on the CPU; looking at all of them takes its time
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


def _skipping(loader: Any, batches: int) -> Any:
    """The loader without its first batches; they are not read."""
    from accelerate import skip_first_batches

    return skip_first_batches(loader, batches) if batches else loader


def _same_everywhere(seed: int, accelerator: Accelerator) -> int:
    """The seed of the main process, in all processes: they share one order."""
    if accelerator.num_processes == 1:
        return seed
    from accelerate.utils import broadcast_object_list  # type: ignore[import-untyped]

    shared: list[int] = broadcast_object_list([seed])
    return shared[0]
