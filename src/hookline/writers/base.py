"""Writer, the base class of all writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hookline.writers.values import as_markdown, statistics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

#: How a run has ended: by itself or as hooks asked, with an exception, or by a signal.
Outcome = Literal["finished", "failed", "killed"]


class Writer(ABC):
    """Takes what a run records to one place. A subclass provides the three abstract methods.

    `begin` is called when a run starts and `close` when it ends, as often as there are runs; when a run is resumed,
    `load_state_dict` gets what `state_dict` gave when its checkpoint was saved, or an empty dict if it could not begin
    by then.

    Whatever reaches a writer of a run is checked: numbers are ints and floats, images uint8 arrays of shape (H, W),
    (H, W, 3) or (H, W, 4), histograms arrays of one dimension. A writer that raises does not end the run: see
    `hookline.writers.delivery`.
    """

    #: What messages call it; the name of its class, unless it is known by another one.
    told_as: ClassVar[str] = ""
    #: Whether it does something with images.
    keeps_images: ClassVar[bool] = True
    #: Whether its calls are made by a thread beside the training, because they wait for a server or a database.
    in_background = False
    #: What it makes in the run's folder unless told otherwise, so that a later run archives it.
    default_files: ClassVar[tuple[str, ...]] = ()
    #: Whether its files are cut back when a run is resumed from an earlier checkpoint.
    cuts_back = False
    #: How the run has ended; to be looked at in `close`.
    outcome: Outcome = "finished"

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

    def write_records(self, records: Sequence[tuple[Mapping[str, float], int]]) -> None:
        """The numbers of several steps at once; a writer in the background is given what has gathered."""
        for scalars, step in records:
            self.write_scalars(scalars, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """How many numbers are distributed; unless a subclass does better, as `name/min`, `/mean`, `/std`, `/max`."""
        self.write_scalars(statistics(name, values), step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """A text of a step; left out, unless a subclass keeps it."""

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """A table of a step; unless a subclass does better, as a text."""
        self.write_text(name, as_markdown(columns, rows), step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """The model; unless a subclass draws it for these inputs, as the text that it prints."""
        self.write_text(name, str(model), 0)

    def flush(self) -> None:
        """Bring out what is still held back."""

    def close(self) -> None:
        """The run has ended."""

    def files(self) -> Iterable[str]:
        """What it makes in the run's folder: names of files and folders, which make way for a fresh run."""
        return ()

    def may_pass(self, error: Exception) -> bool:
        """Whether what has failed is worth another try later: a full disk, a server that is away."""
        return isinstance(error, OSError)

    def state_dict(self) -> dict[str, Any]:
        """How far the records went, so that a resumed run can go on there.

        Numbers that it still holds it may give as `waiting`, `[[scalars, step], ...]`: they are written again then.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop what was recorded after the checkpoint: its steps will be made again.

        `state["iter"]` is the iteration of the checkpoint.
        """

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """A checkpoint of an earlier run is evaluated: what follows belongs to that run, and nothing is dropped."""
