"""One pass over a loader: it starts at any batch, marks the last one, and names the loader in errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import forks
from hookline.common.plain import check_plain
from hookline.data.loader import Order
from hookline.data.sharing import EveryNth, order_of
from hookline.data.sources import SharedList, as_resumable, full_size, is_stateful, iterator, last_size, stored
from hookline.errors import DataError, blame
from hookline.plan.costs import Cost

if TYPE_CHECKING:
    from hookline.data.skipping import Skip

log = logging.getLogger("hookline")

END = object()
# Iterators of the process that this one was forked from.
_KEPT: list[Iterator[Any]] = []


def length_of(dataloader: Iterable[Any], limit: int | None = None) -> int | None:
    """Return the number of batches; None if it is unknown until the end."""
    if not isinstance(dataloader, Sized):
        return None
    try:
        length = len(dataloader)
    except (TypeError, NotImplementedError):  # the loader of an iterable dataset has a __len__ that raises
        return None
    return length if limit is None else min(length, limit)


def identify(source: Iterable[Any], epoch: int, number: int) -> tuple[Literal["samples", "batches"], list[int]] | None:
    """Return the samples that a loader, or its order, reads for a batch of a pass. Of a list, return the batch."""
    if isinstance(source, SharedList):
        return "batches", [source.place(number)]
    if isinstance(source, (list, tuple)):
        return "batches", [number]
    resumable = None if isinstance(source, Order) else as_resumable(source)
    order = source if isinstance(source, Order) else None if resumable is None else resumable.order
    if order is None:
        return None
    found = next(iter(order.batches(order.seed, epoch, number)), None)
    return None if found is None else ("samples", [int(index) for index in found])


def is_empty(dataloader: Iterable[Any]) -> bool:
    """Return whether a loader is known to have no batch, in this process and in all others."""
    if isinstance(dataloader, SharedList):
        return dataloader.is_empty
    resumable = as_resumable(dataloader)
    return length_of(dataloader) == 0 if resumable is None else resumable.order.is_empty


class Batches:
    """One pass over a loader: yields pairs of a batch and whether it is the last.

    The constructor creates the loader's iterator, at batch `start` of pass `epoch`. If the length is unknown, one batch
    is read ahead, unless the end of the training is `known`: then no pair is marked as the last. A stateful loader
    starts from `state`. If the loader fails, `on_failure` is called before the error is raised. The time spent waiting
    for the loader is added to `waiting`. If the length is unknown, `ends` returns whether a pass ends because the data
    of this process, or of another one, does. A pass without any batch is an error, unless it `may_be_empty` because
    other processes have batches. With `once`, only the first batch is read, if the loader can do that. The batches of
    `skip` are left out: numbers count those that are used.
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
        ends: Callable[[bool], bool] = bool,
        may_be_empty: bool = False,
        once: bool = False,
        known: bool = False,
        skip: Skip | None = None,
    ) -> None:
        self._ends = ends
        self._ahead = not known
        self._may_be_empty = may_be_empty
        self._loader = dataloader
        self._waiting = waiting
        self._state_before_lookahead: dict[str, Any] | None = None
        self._on_failure = on_failure
        self._name = type(dataloader).__name__
        self._epoch = epoch
        self._start = start
        self._is_first = epoch == 0 or resuming
        resumable = as_resumable(dataloader)
        certain = resumable is None or not resumable.order.length_is_estimate
        #: The number of batches with those that are left out.
        self._whole = length_of(dataloader, limit) if certain else None
        self._skip: Skip | None = None
        self._length = self._whole
        if self._whole is not None and skip is not None and skip.ranges:
            self._skip = skip.of_pass(epoch, self._whole)
            self._length = self._whole - len(self._skip)
        self._limit = limit
        began = time.perf_counter()
        try:
            self._iterator = iterator(
                dataloader,
                seed=seed,
                epoch=epoch,
                start=self._place(start - 1) + 1 if start else 0,
                state=state,
                length=self._whole,
                resuming=resuming,
                once=once,
                skip=() if self._skip is None else self._skip,
            )
            #: The order of this pass, which knows the sizes of batches.
            self._order = None if resumable is None else resumable.order.in_use or resumable.order
            #: The number of samples that every batch but the last has; None if the loader does not know that.
            self.full_size = full_size(dataloader)
            forks.own(self)
            if waiting is not None:
                waiting.seconds += time.perf_counter() - began
        except Exception as error:
            self._fail(error, start)
            raise

    def _place(self, number: int) -> int:
        """Return the place of a batch in its pass, by its number among the batches that are used."""
        return number if self._skip is None else self._skip.place(number)

    @property
    def length(self) -> int | None:
        """Return the number of batches of this pass; None if it is unknown."""
        return self._length

    @property
    def is_shared(self) -> bool:
        """Return whether the data is shared by a rule, so that full batches are as large in all processes."""
        return self._order is not None

    @property
    def reads_ahead(self) -> bool:
        """Return whether a batch is read before the batch before it is used."""
        return self._length is None and self._ahead

    @property
    def stored(self) -> Iterable[Any] | None:
        """Return all batches, of all processes, if they are in a list."""
        return stored(self._loader)

    def samples(self, number: int) -> int | None:
        """Return how many samples the loader put together for a batch, in this process; None if it is unknown."""
        if self._skip is not None:
            number = self._place(number)
        if self._order is not None:
            own = self._order.samples(number)
            return self._order.drawn.get(number) if own is None else own
        full = self.full_size
        return full if full is None or number + 1 != length_of(self._loader) else last_size(self._loader)

    @property
    def epoch(self) -> int:
        """Return the number of the pass."""
        return self._epoch

    def position(self, number: int) -> int | None:
        """Return the absolute position of a batch, as `skip` counts them; None if a pass has no known length."""
        return None if self._whole is None else self._epoch * self._whole + self._place(number) + 1

    def identify(self, number: int) -> tuple[Literal["samples", "batches"], list[int]] | None:
        """Return the samples of a batch in this process, or its place in a list of batches; None if it is unknown."""
        source = self._loader if self._order is None else self._order
        return identify(source, self._epoch, self._place(number))

    @cached_property
    def _shared(self) -> SharedList | EveryNth | None:
        return self._loader if isinstance(self._loader, SharedList) else order_of(self._loader)

    def is_padding(self, number: int) -> bool:
        """Return whether a batch only fills up the share of this process, so that its samples do not count."""
        if self._shared is not None:
            return self._shared.is_repeated(self._place(number))
        return self._order is not None and self._order.pad and self._order.samples(self._place(number)) == 0

    def disown(self) -> None:
        """Keep the iterator for ever: when torch deletes it, it ends the workers, which belong to another process."""
        _KEPT.append(self._iterator)

    def loader_state(self) -> dict[str, Any] | None:
        """Return the state of a stateful loader after the last batch that was yielded; None for other loaders."""
        if not is_stateful(self._loader):
            return None
        state = self._state_before_lookahead if self.reads_ahead else self._loader.state_dict()  # type: ignore[attr-defined]
        check_plain(state, f"the state of the {self._name}")
        return state

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        if self._length is not None:
            return self._count(self._length)
        pairs = self._read_ahead() if self._ahead else self._read_on()
        return pairs if self._waiting is None else self._measure(pairs, self._waiting)

    def _measure(self, pairs: Iterator[tuple[Any, bool]], waiting: Cost) -> Iterator[tuple[Any, bool]]:
        clock = time.perf_counter
        began = clock()
        for pair in pairs:
            waiting.add(clock() - began)
            yield pair
            began = clock()

    def _count(self, length: int) -> Iterator[tuple[Any, bool]]:
        # The wait is measured here, and not by a second generator, because this runs between every two steps.
        number, clock, waiting = self._start, time.perf_counter, self._waiting if self._waiting is not None else Cost()
        began = clock()
        try:
            for batch in islice(self._iterator, max(length - number, 0)):
                waited = clock() - began
                waiting.seconds += waited
                waiting.calls += 1
                if waited > waiting.longest:
                    waiting.longest = waited
                number += 1
                yield batch, number == length
                began = clock()
        except Exception as error:
            self._fail(error, number)
            raise
        if number == self._start:
            self._refuse_empty()
        elif number < length:
            found = self._place(number)
            raise DataError(f"the {self._name} has a length of {self._whole} batches but returned only {found}")
        if self._whole == length_of(self._loader) and not isinstance(self._loader, Iterator):
            self._finish_pass(length)

    def _finish_pass(self, length: int) -> None:
        """Let the loader run to its end: a sampler may have code after its last batch. Report a loader that is longer.

        A pass that a limit cuts short is left where it is. So is an iterator, whose next batch is for the next pass.
        """
        if self._next(length) is not END and self._is_first:
            log.warning(
                "the %s has a length of %d batches but returns more; each pass uses only the first %d. Correct its "
                "length, or set limit_batches.",
                *(self._name, self._whole, self._whole),
            )

    def _read_on(self) -> Iterator[tuple[Any, bool]]:
        """Read each batch when it is needed: the model may make the data, and must be up to date."""
        number = self._start
        while not self._ends((batch := self._next(number)) is END):
            number += 1
            yield batch, False
        if number == self._start:
            self._refuse_empty()

    def _read_ahead(self) -> Iterator[tuple[Any, bool]]:
        number, stateful = self._start, is_stateful(self._loader)
        batch = self._next(number)
        if batch is END:
            self._refuse_empty()
        if number and self._ends(batch is END):  # a resumed pass may have no batch left, here or in another process
            return
        while batch is not END:
            number += 1
            if stateful:
                self._state_before_lookahead = self._loader.state_dict()  # type: ignore[attr-defined]
            following = self._next(number)
            last = self._ends(following is END)
            yield batch, last
            batch = END if last else following

    def _refuse_empty(self) -> None:
        """Refuse a pass without a single batch, unless the run was saved at the end of this pass."""
        if self._may_be_empty or (self._start and self._length in (None, self._start)):
            return
        if self._start:
            raise DataError(
                f"the checkpoint is at batch {self._start} of epoch {self._epoch}, but the {self._name} has only "
                f"{self._length} now; the data, the batch size or a limit has changed"
            )
        again = "; the previous epoch used it up, but a loader must start over in every epoch" if self._epoch else ""
        raise DataError(f"the {self._name} is empty: it returned no batch in epoch {self._epoch}{again}")

    def _next(self, number: int) -> Any:
        if self._limit is not None and self._place(number) >= self._limit:
            return END
        try:
            return next(self._iterator, END)
        except Exception as error:
            self._fail(error, number)
            raise

    def _fail(self, error: Exception, number: int) -> None:
        if self._on_failure is not None:
            self._on_failure()
        blame(
            error,
            f"in the {self._name}, at batch {self._place(number)} of epoch {self._epoch}",
            exit_code=DataError.exit_code,
        )


# -- data that is replaced during a run: from the next pass on

#: How to replace data so that a run can be resumed.
HOW = (
    "a resumed run begins with the data that it is built with, so replace the data in before_train_epoch, as a "
    "function of runner.epoch"
)
#: The attribute that was set, by the name in a checkpoint.
NAMES = {"batch_size": "loader.batch_size", "samples": "loader.dataset", "batches": "train_loop.dataloader"}


class DataAtStart:
    """The data that a run begins with: its loader, and the sizes of a pass and of a batch of all processes."""

    def __init__(self, loader: Iterable[Any], batches: int | None) -> None:
        self._loader, self.batches, self.batch_size = loader, batches, samples_of_all(loader)

    def replaced_by(self, loader: Iterable[Any]) -> dict[str, int]:
        """Return what has been replaced since: the batch size, the samples, or all batches."""
        resumable = as_resumable(loader)
        found = {} if resumable is None else dict(resumable.replaced)
        if loader is not self._loader:
            found["batches"] = length_of(loader) or 0
        return found


def samples_of_all(loader: Iterable[Any]) -> int | None:
    """Return the number of samples of a full batch in all processes together; None if it is unknown."""
    resumable = as_resumable(loader)
    return None if resumable is None else resumable.samples_of_all


def refuse_other_data(then: Mapping[str, int], now: Mapping[str, int], in_epoch: bool) -> None:
    """Refuse to resume with other data: nothing was replaced yet, or, inside an epoch, by something else."""
    for name, value in then.items():
        if name not in now or (in_epoch and now[name] != value):
            found = now.get(name, "not replaced")
            raise DataError(
                f"the checkpoint was saved after {NAMES[name]} was replaced ({name}: {value}), but here it is {found}; "
                f"{HOW}"
            )


def refuse_data_of_later(then: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Refuse to go on inside an epoch that began before its data was replaced."""
    for name in now.keys() - then.keys():
        raise DataError(
            f"the checkpoint is inside an epoch that began before {NAMES[name]} was replaced, but here it is replaced "
            f"({name}: {now[name]}), so the rest of the epoch would be other data; {HOW}"
        )


def refuse_skip_of_replaced(replaced: Mapping[str, int]) -> None:
    """Refuse to leave out batches of data that was replaced: their positions would mean others."""
    if replaced:
        raise DataError(
            "skip counts the batches of all passes, so it does not work with data that is replaced during the run; "
            "leave the samples out of the data instead"
        )


def is_malformed(state: Any) -> bool:
    """Return whether a saved description of replaced data is none."""
    return not isinstance(state, dict) or not all(
        name in NAMES and type(value) is int and 0 <= value < 1 << 63 for name, value in state.items()
    )
