"""Going through a loader: from batch k on, knowing which batch is the last, and naming what fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any

from hookline.common.plain import refuse_odd
from hookline.data.sources import is_stateful, iterator
from hookline.errors import DataError, blame

if TYPE_CHECKING:
    from hookline.plan.costs import Cost

END = object()


def length_of(dataloader: Iterable[Any], limit: int | None = None) -> int | None:
    """How many batches there will be; None where nobody knows before the end."""
    if not isinstance(dataloader, Sized):
        return None
    try:
        length = len(dataloader)
    except (TypeError, NotImplementedError):  # an iterable dataset has no length, although its loader has a __len__
        return None
    return length if limit is None else min(length, limit)


class Batches:
    """One pass over a loader: pairs of a batch, and whether it is the last.

    Making it makes the loader's iterator, at batch `start` of pass `epoch`. Without a length, one batch is read ahead.
    A loader with a state of its own starts from `state`. `on_failure` is called when the loader fails, before that is
    raised. The time that the loader is waited for is added to `waiting`.
    """

    def __init__(
        self,
        dataloader: Iterable[Any],
        limit: int | None = None,
        epoch: int = 0,
        start: int = 0,
        seed: int | None = None,
        state: Mapping[str, Any] | None = None,
        resuming: bool = False,
        on_failure: Callable[[], None] | None = None,
        waiting: Cost | None = None,
    ) -> None:
        self._loader = dataloader
        self._waiting = waiting
        self._ahead_of: dict[str, Any] | None = None
        self._on_failure = on_failure
        self._name = type(dataloader).__name__
        self._epoch = epoch
        self._start = start
        self._length = length_of(dataloader, limit)
        self._limit = limit
        began = time.perf_counter()
        try:
            self._iterator = iterator(
                dataloader, seed=seed, epoch=epoch, start=start, state=state, length=self._length, resuming=resuming
            )
            if waiting is not None:
                waiting.seconds += time.perf_counter() - began
        except Exception as error:
            self._fail(error, start)
            raise

    def loader_state(self) -> dict[str, Any] | None:
        """The state of a loader that has one of its own, after the batch that was given last."""
        if not is_stateful(self._loader):
            return None
        state = self._ahead_of if self._length is None else self._loader.state_dict()  # type: ignore[attr-defined]
        refuse_odd(state, f"the state of the {self._name}")
        return state

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        given = self._reading_ahead() if self._length is None else self._counting(self._length)
        return given if self._waiting is None else self._taking_time(given, self._waiting)

    def _taking_time(self, given: Iterator[tuple[Any, bool]], waiting: Cost) -> Iterator[tuple[Any, bool]]:
        clock = time.perf_counter
        began = clock()
        for pair in given:
            waiting.seconds += clock() - began
            yield pair
            began = clock()

    def _counting(self, length: int) -> Iterator[tuple[Any, bool]]:
        number = self._start
        try:
            for batch in islice(self._iterator, max(length - number, 0)):
                number += 1
                yield batch, number == length
        except Exception as error:
            self._fail(error, number)
            raise
        if number == self._start:
            self._refuse_nothing()
        elif number < length:
            raise DataError(f"the {self._name} said {length} batches and gave {number}")

    def _reading_ahead(self) -> Iterator[tuple[Any, bool]]:
        number, stateful = self._start, is_stateful(self._loader)
        batch = self._next(number)
        if batch is END:
            self._refuse_nothing()
        while batch is not END:
            number += 1
            if stateful:
                self._ahead_of = self._loader.state_dict()  # type: ignore[attr-defined]
            following = self._next(number)
            yield batch, following is END
            batch = following

    def _refuse_nothing(self) -> None:
        """No batch at all: the end of a pass that was saved there, or a loader that has none."""
        if self._start and self._length in (None, self._start):
            return
        if self._start:
            raise DataError(
                f"the checkpoint stands at batch {self._start} of epoch {self._epoch}, and the {self._name} has only "
                f"{self._length} now; the data, the batch size or a limit has changed"
            )
        again = " now: it was used up by the epoch before; a loader must give its batches again" if self._epoch else ""
        raise DataError(f"the {self._name} is empty: it gave no batch in epoch {self._epoch}{again}")

    def _next(self, number: int) -> Any:
        if self._limit is not None and number >= self._limit:
            return END
        try:
            return next(self._iterator, END)
        except Exception as error:
            self._fail(error, number)
            raise

    def _fail(self, error: Exception, number: int) -> None:
        if self._on_failure is not None:
            self._on_failure()
        blame(error, f"in the {self._name}, at batch {number} of epoch {self._epoch}", exit_code=DataError.exit_code)
