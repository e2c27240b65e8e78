"""Writers: the router that sends everything to all writers of a run."""

from __future__ import annotations

import copy
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.environment import hidden_in
from hookline.common.files import refuse_other_kinds
from hookline.errors import ConfigError
from hookline.writers.base import Outcome, Records, Writer
from hookline.writers.delivery import make_delivery
from hookline.writers.files import RecordWriter
from hookline.writers.values import (
    plain_image,
    plain_name,
    plain_scalars,
    plain_step,
    plain_table,
    plain_values,
)

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger("hookline")


class Writers(Writer, Records):
    """Checks everything once, and sends it to all writers of a run.

    Invalid input raises an error. A failure inside a writer does not: see `hookline.writers.delivery`.

    A resumed run restores its checkpoint only after its first points. There, hooks may repeat what an uninterrupted run
    wrote only once. Therefore nothing is passed on before `load_state_dict`, and configs wait until then.

    Args:
        writers: The writers.
        main: Whether this is the main process of the run; the others write nothing.
        reserved: The pattern of names that the run itself uses in its folder; no writer may use them.
    """

    def __init__(self, writers: Iterable[Writer], main: bool = True, reserved: re.Pattern[str] | None = None) -> None:
        self.all = list(writers)
        _refuse_shared_files(self.all, reserved)
        self.deliveries = [make_delivery(name, writer) for name, writer in self._named()] if main else []
        self._resuming = False
        self._configs: list[tuple[str, Mapping[str, Any], int]] = []
        #: Calls that wait for a record to be known; None for the record itself.
        self._held: deque[tuple[str, tuple[Any, ...]] | None] = deque()

    def _named(self) -> Iterator[tuple[str, Writer]]:
        for number, writer in enumerate(self.all):
            same = sum(_name(other) == _name(writer) for other in self.all[:number])
            yield _name(writer) + (f"#{same + 1}" if same else ""), writer

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Begin a run in each writer. Refuse to resume one whose record file is something else by now."""
        self._resuming, self._configs = resuming, []
        for writer in self.all if resuming else ():
            if isinstance(writer, RecordWriter):
                refuse_other_kinds(work_dir / writer.filename)
        for delivery in self.deliveries:
            delivery.begin(work_dir, experiment_name)

    def _to_each(self, method: str, *args: Any) -> None:
        if self._held:
            self._held.append((method, args))
        elif not self._resuming:
            for delivery in self.deliveries:
                delivery.call(method, *map(_own, args))

    def reserve(self) -> None:
        """Leave a place for a record whose numbers are not known yet. Later writes come after it."""
        self._held.append(None)

    def fill(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the record of the first reserved place, and then the writes after it. Without a place, just write."""
        held, self._held = self._held, deque()
        if held:
            held.popleft()
        self.write_scalars(scalars, step)
        while held and (call := held[0]) is not None:
            held.popleft()
            self._to_each(call[0], *call[1])
        self._held = held

    def only(self, *writers: Writer) -> Writers:
        """Return a router to some of these writers, in its current state: for a hook that has its own writer."""
        part = copy.copy(self)
        part._held = deque()
        part.deliveries = [delivery for delivery in self.deliveries if delivery.writer in writers]
        return part

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one number of a step."""
        self.write_scalars({name: value}, step)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write all numbers of a step at once."""
        checked = plain_scalars(scalars)
        step = plain_step(next(iter(checked), ""), step)
        self._to_each("write_scalars", checked, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write one image of a step, or several as a grid: any kind that `hookline.record.images` accepts."""
        name, step = plain_name("an image", name), plain_step(name, step)
        if self.deliveries:
            self._to_each("write_image", name, plain_image(name, image), step, caption)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config of the run."""
        name, step = plain_name("a config", name), plain_step(name, step)
        if self._resuming:
            self._configs.append((name, config, step))
        self._to_each("write_config", name, hidden_in(config), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """Write the distribution of the numbers in a tensor, an array or a list."""
        name, step = plain_name("a histogram", name), plain_step(name, step)
        if self.deliveries:
            self._to_each("write_histogram", name, plain_values(name, values), step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text of a step."""
        self._to_each("write_text", plain_name("a text", name), str(text), plain_step(name, step))

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a table of a step."""
        name, step = plain_name("a table", name), plain_step(name, step)
        self._to_each("write_table", name, *plain_table(name, columns, rows), step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """Write the graph of the model for these inputs."""
        self._to_each("write_graph", plain_name("a graph", name), model, inputs)

    def flush(self) -> None:
        """Flush each writer."""
        for delivery in self.deliveries:
            delivery.flush()

    def close(self, outcome: Outcome = "finished") -> None:
        """Close each writer, even if another one raises, and pass on how the run ended."""
        held, self._held = self._held, deque()
        for call in filter(None, held):  # the record before them was never known
            self._to_each(call[0], *call[1])
        with ExitStack() as leaving:
            for delivery in reversed(self.deliveries):
                leaving.callback(delivery.close, outcome)

    def files(self) -> Iterable[str]:
        """Return the files and folders that all writers create in the run's folder."""
        return [name for writer in self.all for name in _files_of(writer)]

    def files_cut_back(self) -> Iterable[str]:
        """Return the files and folders that are truncated when the run is resumed from an earlier checkpoint."""
        return [name for writer in self.all if writer.cuts_back for name in _files_of(writer)]

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all writers that need one. Flush those that do not run in the background first."""
        for delivery in self.deliveries:
            if not delivery.writer.in_background:
                delivery.flush()
        states = [(delivery, delivery.state_dict()) for delivery in self.deliveries]
        return {
            delivery.name: state for delivery, state in states if state or _needs_only_the_iteration(delivery.writer)
        }

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """Let each writer continue the run of its state: the records that follow belong to it."""
        for delivery in self.deliveries:
            if isinstance(state, Mapping) and isinstance(saved := state.get(delivery.name), Mapping):
                delivery.call("rejoin", saved)

    def load_state_dict(self, state: Mapping[str, Any], iteration: int = 0) -> None:
        """Restore the state of each writer, with the checkpoint's iteration, and then write the waiting configs."""
        for delivery in self.deliveries:
            if isinstance(saved := state.get(delivery.name), Mapping):
                delivery.load_state_dict({**saved, "iter": iteration})
        self._resuming = False
        for config in self._configs:
            self.write_config(*config)
        self._configs = []


def _own(value: Any) -> Any:
    """Return a copy of a record, because a writer may change it. Any other value is returned unchanged."""
    return dict(value) if value.__class__ is dict else value


def _needs_only_the_iteration(writer: Writer) -> bool:
    """Return whether a writer saves no state, but uses the checkpoint's iteration when a run is resumed."""
    cls = type(writer)
    return cls.state_dict is Writer.state_dict and cls.load_state_dict is not Writer.load_state_dict


def _name(writer: Writer) -> str:
    return getattr(writer, "told_as", "") or type(writer).__name__


def _refuse_shared_files(writers: Sequence[Writer], reserved: re.Pattern[str] | None) -> None:
    """Refuse two writers that share a file, and a writer of a file that the run itself uses."""
    owners: dict[str, str] = {}
    for writer in writers:
        for name in _files_of(writer):
            who, label = _name(writer), getattr(writer, "label", "filename")
            owner = owners.get(name) if writer.cuts_back else None
            if reserved is not None and reserved.fullmatch(name):
                owner = "the run itself"
            if owner is not None:
                raise ConfigError(f"{who} would write {name}, which {owner} already writes; give it another {label}")
            if writer.cuts_back:
                owners[name] = f"another {who}" if who in owners.values() else who


def _files_of(writer: Writer) -> list[str]:
    try:
        return list(writer.files())
    except Exception as error:
        log.warning("%s cannot list its files (%s); files of an earlier run stay where they are", _name(writer), error)
        return []
