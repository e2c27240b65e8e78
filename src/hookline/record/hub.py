"""MessageHub: records every number of a run by name.

    hub.update_scalar("train/loss", loss)       # a tensor stays on its device until somebody reads it
    hub.get_scalar("train/loss").mean(10)       # the mean of the last ten values
    hub.update_info("stage", "warm-up")

Recording never waits for the device, and it does not get slower as the run gets longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from hookline.common.escape import escaped
from hookline.common.numbers import count
from hookline.errors import HooklineError, did_you_mean
from hookline.record.history import (
    KEPT,
    PLAIN,
    History,
    Weighted,
    belongs,
    is_known,
    no_number,
    read_numbers,
    recordable,
)

if TYPE_CHECKING:
    from torch import Tensor

# The number of names that a repr shows.
SHOWN = 8

# The steps whose mean loss is shown at the end of a run. Every process saves this many of its own values.
LAST = 20

# The names of a stage's times, without the prefix.
TIMES = ("time", "data_time")


class MessageHub:
    """Holds scalars with their history, and facts about the run (`info`) that only have a current value."""

    def __init__(self) -> None:
        self._scalars: dict[str, History] = {}
        #: Facts by name. Set them with `update_info`, which also controls whether checkpoints include them.
        self.info: dict[str, Any] = {}
        self._not_resumed: set[str] = set()
        self._kept = KEPT

    def __repr__(self) -> str:
        names = [escaped(name) for name in self.scalars]
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        listed = f" ({', '.join(names[:SHOWN])}{more})" if names else ""
        return f"<{type(self).__name__}: {count(len(names), 'scalar')}{listed}, {count(len(self.info), 'fact')}>"

    def update_scalar(self, name: str, value: float | Tensor, *, resumed: bool = True) -> None:
        """Record one number, or a tensor with one element, which is read only when needed.

        `resumed=False` keeps the name out of checkpoints; passing it once is enough.
        """
        if value.__class__ not in PLAIN:
            original, value = value, recordable(value)  # type: ignore[assignment]  # None is refused
            if value is None:
                raise no_number(name, original)
        history = self._scalars.get(name)
        if history is None:
            if hasattr(value, "is_complex") and value.is_complex():  # only here, because a step must not pay for it
                raise no_number(name, value)
            history = self.history(name)
        if not resumed:
            self._not_resumed.add(name)
        history.values.append(value)
        history.fresh += 1

    def mark_written(self, name: str) -> None:
        """Note that the newest value of a name was given to the writers, so that LoggerHook does not do it again."""
        self._scalars[name].fresh -= 1

    def update_scalars(self, values: Mapping[str, float | Tensor], prefix: str = "") -> None:
        """Record several numbers at once."""
        for name, value in values.items():
            self.update_scalar(f"{prefix}{name}" if prefix else name, value)

    def history(self, name: str) -> History:
        """Return the history to record a name in; create it if needed. It stays the same object while the hub lives."""
        history = self._scalars.get(name)
        if history is None:
            if not isinstance(name, str):
                raise HooklineError(f"the name of a number must be a text, not {name!r}")
            history = self._scalars[name] = History()
            history.keep(self._kept)
        return history

    def keep(self, number: int) -> None:
        """Keep at least this many values of every name, instead of 1,000."""
        self._kept = max(self._kept, number)
        for history in self._scalars.values():
            history.keep(number)

    def get_scalar(self, name: str) -> History:
        """Return the history of a name; refuse an unknown name and suggest the nearest one."""
        if not len(self._scalars.get(name, ())):
            raise HooklineError(f"nothing is recorded as '{escaped(name)}'; {did_you_mean(str(name), self._scalars)}")
        return self._scalars[name]

    def known(self, name: str, window: int | None = None) -> list[float]:
        """Return the newest numbers of a name, oldest first, as far as they are known without waiting for a device.

        Values that are still on a device are left out, and a name without any numbers has an empty list. Any thread may
        call this during a run.
        """
        history = self._scalars.get(name)
        # A copy is made in one go, while another thread cannot record.
        newest: Iterable[Any] = reversed(history.values.copy()) if history is not None else ()
        return read_numbers(islice(filter(is_known, newest), window))[::-1]

    @property
    def scalars(self) -> Mapping[str, History]:
        """Return all histories that have at least one value, by name."""
        return {name: history for name, history in self._scalars.items() if history.values}

    def read(self, prefix: str) -> None:
        """Convert all new values under a prefix to numbers, waiting for the device only once."""
        waiting: list[tuple[deque[float | Tensor], int]] = []
        unread: list[Any] = []
        for name, history in self._scalars.items():
            fresh, values = history.fresh, history.values
            # The newest one tells: a name is recorded as numbers or as tensors. Others are read when they are used.
            if fresh > 0 and values and values[-1].__class__ not in PLAIN and belongs(name, prefix):
                newest = list(islice(reversed(values), fresh))
                unread += newest
                waiting.append((values, len(newest)))
        if not waiting:
            return
        numbers = iter(read_numbers(unread))
        for values, length in waiting:
            read = list(islice(numbers, length))
            for _ in range(length):
                values.pop()
            values.extend(reversed(read))

    def take(self, prefix: str, fewer_than: int | None = None) -> dict[str, tuple[History, int]]:
        """Return the histories under a prefix with values since they were last taken, and how many are new.

        `fewer_than` leaves out histories with this many new values or more; they stay new.
        """
        taken = {}
        for name, history in self._scalars.items():
            if history.fresh and belongs(name, prefix) and (fewer_than is None or history.fresh < fewer_than):
                taken[name] = (history, history.fresh)
                history.fresh = 0
        return taken

    def update_info(self, name: str, value: Any, *, resumed: bool = True) -> None:
        """Set a fact. `resumed=False` keeps it out of checkpoints, which can only hold tensors and plain data."""
        if resumed:
            from hookline.common.plain import check_plain  # it imports torch

            check_plain(value, f"the fact '{name}' (saved in checkpoints unless update_info has resumed=False)")
        else:
            self._not_resumed.add(name)
        self.info[name] = value

    def get_info(self, name: str, default: Any = None) -> Any:
        """Return a fact, or the default if it is not set."""
        return self.info.get(name, default)

    def state_dict(self) -> dict[str, Any]:
        """Return the histories and facts as plain data and tensors."""
        import torch

        scalars: dict[str, dict[str, Any]] = {}
        for name, history in self.scalars.items():
            if name in self._not_resumed:
                continue
            values = history.last()
            # Keep the numbers, so that the next save need not read the device again.
            history.values = deque(values, maxlen=history.values.maxlen)
            kinds = set(map(type, values))
            kept = values if int in kinds else torch.tensor(values, dtype=torch.float64)  # a list keeps ints as ints
            scalars[name] = {"values": kept, "fresh": history.fresh}
            if Weighted in kinds:
                weights = {place: value.weight for place, value in enumerate(values) if isinstance(value, Weighted)}
                scalars[name]["weights"] = weights
        info = {name: value for name, value in self.info.items() if name not in self._not_resumed}
        return {"scalars": scalars, "info": info}

    def newest_state(self) -> dict[str, Any]:
        """Return only the values that were not taken yet, and some before: the state that differs per process."""
        state = self.state_dict()
        for saved in state["scalars"].values():
            first = max(len(saved["values"]) - max(saved["fresh"], LAST), 0)
            saved["values"] = saved["values"][first:]
            weights = {place - first: weight for place, weight in saved.pop("weights", {}).items() if place >= first}
            if weights:
                saved["weights"] = weights
        return {"scalars": state["scalars"], "info": {}}

    def load_newest_state(self, state: dict[str, Any] | None) -> None:
        """Restore the newest values from `newest_state`. Without a state, drop the values that were not taken yet."""
        saved = MessageHub()
        if state is not None:
            saved.load_state_dict(state)
        for name, history in self._scalars.items():
            theirs = saved._scalars.get(name)
            dropped = history.fresh if theirs is None else max(history.fresh, len(theirs))
            for _ in range(min(dropped, len(history.values))):
                history.values.pop()
            history.fresh = 0
        for name, theirs in saved._scalars.items():
            history = self.history(name)
            history.values.extend(theirs.values)
            history.fresh = theirs.fresh

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned. Names kept out of checkpoints stay unchanged."""
        for name, history in self._scalars.items():
            if name not in self._not_resumed:
                history.values.clear()
                history.fresh = 0
        for name, saved in state["scalars"].items():
            history = self.history(name)
            values = saved["values"]
            history.values.extend(values if isinstance(values, list) else values.tolist())
            for place, weight in saved.get("weights", {}).items():
                history.values[place] = Weighted(float(history.values[place]), weight)
            history.fresh = saved["fresh"]
        self.info.update(state["info"])
