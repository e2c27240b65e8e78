"""Writers: all the writers of a run as one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError
from hookline.writers.base import Outcome, Writer
from hookline.writers.delivery import delivery_of
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


class Writers(Writer):
    """All writers of a run; what is written is checked once, and goes to each of them.

    What is wrong with it is raised. What goes wrong in a writer is not: see `hookline.writers.delivery`.

    A run that is resumed comes to the place of its checkpoint after its first points, where hooks may write again what
    an uninterrupted run wrote only once. Until `load_state_dict` nothing is passed on; configs are kept until then.

    Args:
        writers: The writers.
        main: Whether this is the main process of the run; the others write nothing.
        reserved: Files that the run itself writes, which no writer may.
    """

    def __init__(self, writers: Iterable[Writer], main: bool = True, reserved: Iterable[str] = ()) -> None:
        self.all = list(writers)
        _refuse_shared_files(self.all, reserved)
        self.deliveries = [delivery_of(name, writer) for name, writer in self._named()] if main else []
        self._resuming = False
        self._configs: list[tuple[str, Mapping[str, Any], int]] = []

    def _named(self) -> Iterator[tuple[str, Writer]]:
        for number, writer in enumerate(self.all):
            same = sum(_name(other) == _name(writer) for other in self.all[:number])
            yield _name(writer) + (f"#{same + 1}" if same else ""), writer

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Begin each."""
        self._resuming, self._configs = resuming, []
        for delivery in self.deliveries:
            delivery.begin(work_dir, experiment_name)

    def _to_each(self, method: str, *args: Any) -> None:
        if not self._resuming:
            for delivery in self.deliveries:
                delivery.call(method, *args)

    def only(self, *writers: Writer) -> Writers:
        """The same for some of them, as it is now: for a hook with a writer of its own."""
        part = copy.copy(self)
        part.deliveries = [delivery for delivery in self.deliveries if delivery.writer in writers]
        return part

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One number of a step."""
        self.write_scalars({name: value}, step)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """All numbers of a step at once."""
        checked = plain_scalars(scalars)
        step = plain_step(next(iter(checked), ""), step)
        if not self._resuming:
            for delivery in self.deliveries:
                delivery.call("write_scalars", dict(checked), step)  # of its own: a writer may change it

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image of a step, or several as a grid: anything that `hookline.record.images` knows."""
        name, step = plain_name("an image", name), plain_step(name, step)
        if self.deliveries:
            self._to_each("write_image", name, plain_image(name, image), step, caption)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config of the run."""
        name, step = plain_name("a config", name), plain_step(name, step)
        if self._resuming:
            self._configs.append((name, config, step))
        self._to_each("write_config", name, config, step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """How the numbers of a tensor, an array or a list are distributed."""
        name, step = plain_name("a histogram", name), plain_step(name, step)
        if self.deliveries:
            self._to_each("write_histogram", name, plain_values(name, values), step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """A text of a step."""
        self._to_each("write_text", plain_name("a text", name), str(text), plain_step(name, step))

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """A table of a step."""
        name, step = plain_name("a table", name), plain_step(name, step)
        self._to_each("write_table", name, *plain_table(name, columns, rows), step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """The model, as it is for these inputs."""
        self._to_each("write_graph", plain_name("a graph", name), model, inputs)

    def flush(self) -> None:
        """Flush each."""
        for delivery in self.deliveries:
            delivery.flush()

    def close(self, outcome: Outcome = "finished") -> None:
        """Close each, whatever the others raise; they are told how the run has ended."""
        with ExitStack() as leaving:
            for delivery in reversed(self.deliveries):
                leaving.callback(delivery.close, outcome)

    def files(self) -> Iterable[str]:
        """What all of them make in the run's folder, as far as they can say."""
        return [name for writer in self.all for name in _files_of(writer)]

    def files_cut_back(self) -> Iterable[str]:
        """What of it is cut back when the run is resumed from an earlier checkpoint."""
        return [name for writer in self.all if writer.cuts_back for name in _files_of(writer)]

    def state_dict(self) -> dict[str, Any]:
        """The states of all writers that have one; each brings out what it holds back, if it need not be waited for."""
        for delivery in self.deliveries:
            if not delivery.writer.in_background:
                delivery.flush()
        return {each.name: state for each in self.deliveries if (state := each.state_dict())}

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """Tell each which run the records belong to that come now."""
        for delivery in self.deliveries:
            if isinstance(found := state.get(delivery.name), Mapping):
                delivery.call("rejoin", found)

    def load_state_dict(self, state: Mapping[str, Any], iteration: int = 0) -> None:
        """Give each its own, with the iteration of the checkpoint, and then the configs, which had to wait for it."""
        for delivery in self.deliveries:
            if isinstance(found := state.get(delivery.name), Mapping):
                delivery.load_state_dict({**found, "iter": iteration})
        self._resuming = False
        for config in self._configs:
            self.write_config(*config)
        self._configs = []


def _name(writer: Writer) -> str:
    return getattr(writer, "told_as", "") or type(writer).__name__


def _refuse_shared_files(writers: Sequence[Writer], reserved: Iterable[str]) -> None:
    """Refuse two writers of one file, and a file that the run itself writes."""
    owners = dict.fromkeys(reserved, "the run itself")
    for writer in writers:
        for name in _files_of(writer) if writer.cuts_back else ():
            who, label = _name(writer), getattr(writer, "label", "filename")
            if name in owners:
                raise ConfigError(f"{who} would write {name}, which {owners[name]} writes; give it another {label}")
            owners[name] = f"another {who}" if who in owners.values() else who


def _files_of(writer: Writer) -> list[str]:
    try:
        return list(writer.files())
    except Exception as error:
        log.warning("%s cannot say what it makes (%s); an earlier run's stay where they are", _name(writer), error)
        return []
