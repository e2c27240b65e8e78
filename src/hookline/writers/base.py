"""Writer, the base class, and Writers, all the writers of a run as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar


class Writer(ABC):
    """Takes what a run records to one place. A subclass provides the three abstract methods.

    `begin` is called when a run starts and `close` when it ends, as often as there are runs; when a run is resumed,
    `load_state_dict` gets what `state_dict` gave when its checkpoint was saved.
    """

    #: Whether it does something with images.
    keeps_images: ClassVar[bool] = True

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """A run starts: its folder and its name."""

    @abstractmethod
    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One number of a step."""

    @abstractmethod
    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image of a step."""

    @abstractmethod
    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config of the run."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """All numbers of a step at once."""
        for name, value in scalars.items():
            self.write_scalar(name, value, step)

    def flush(self) -> None:
        """Bring out what is still held back."""

    def close(self) -> None:
        """The run has ended."""

    def state_dict(self) -> dict[str, Any]:
        """How far the records went, so that a resumed run can go on there."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop what was recorded after the checkpoint: its steps will be made again."""


class Writers(Writer):
    """All writers of a run; what is written goes to each of them."""

    def __init__(self, writers: Iterable[Writer]) -> None:
        self.all = list(writers)

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Begin each."""
        for writer in self.all:
            writer.begin(work_dir, experiment_name)

    def _named(self) -> Iterable[tuple[str, Writer]]:
        for number, writer in enumerate(self.all):
            same = sum(type(other) is type(writer) for other in self.all[:number])
            yield type(writer).__name__ + (f"#{same + 1}" if same else ""), writer

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One number of a step."""
        for writer in self.all:
            writer.write_scalar(name, value, step)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """All numbers of a step at once."""
        for writer in self.all:
            writer.write_scalars(scalars, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image of a step."""
        for writer in self.all:
            writer.write_image(name, image, step, caption)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config of the run."""
        for writer in self.all:
            writer.write_config(name, config, step)

    def flush(self) -> None:
        """Flush each."""
        for writer in self.all:
            writer.flush()

    def close(self) -> None:
        """Close each."""
        for writer in self.all:
            writer.close()

    def state_dict(self) -> dict[str, Any]:
        """The states of all writers that have one."""
        return {name: state for name, writer in self._named() if (state := writer.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give each its own."""
        for name, writer in self._named():
            if name in state:
                writer.load_state_dict(state[name])
