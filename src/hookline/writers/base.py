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

#: How a run ended: normally (also when a hook stopped it), with an exception, or by a signal.
Outcome = Literal["finished", "failed", "killed"]


class Records:
    """The records of a run, as a session sees them. These are none; `Writers` sends them to their destinations."""

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Open the records in this folder, under this name."""

    def close(self, outcome: Outcome = "finished") -> None:
        """Close the records."""

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """Continue the records of the run whose checkpoint is evaluated."""

    def files(self) -> Iterable[str]:
        """Return the names of the files and folders that the records are in."""
        return ()

    def files_cut_back(self) -> Iterable[str]:
        """Return the files that are cut back when a run resumes from an earlier checkpoint."""
        return ()


class Writer(ABC):
    """Sends the records of a run to one destination. A subclass implements the three abstract methods.

    `begin` is called at the start of every run and `close` at its end. When a run is resumed, `load_state_dict`
    receives what `state_dict` returned when the checkpoint was saved. It receives an empty dict if the writer had not
    been able to begin by then.

    A run checks everything before it reaches a writer: numbers are ints and floats, images are uint8 arrays of shape
    (H, W), (H, W, 3) or (H, W, 4), and histograms are one-dimensional arrays. An exception in a writer does not end
    the run: see `hookline.writers.delivery`.
    """

    #: The writer's name in messages; the class name if empty.
    told_as: ClassVar[str] = ""
    #: Whether the writer does anything with images.
    keeps_images: bool = True
    #: Whether a background thread makes the calls, because they wait for a server or a database.
    in_background = False
    #: The default names of the files that the writer creates in the run's folder, so that a later run archives them.
    default_files: ClassVar[tuple[str, ...]] = ()
    #: Whether the writer truncates its files when a run is resumed from an earlier checkpoint.
    cuts_back = False
    #: How the run ended; read it in `close`.
    outcome: Outcome = "finished"

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Prepare for a run with this folder and this name."""

    @abstractmethod
    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one number of a step."""

    @abstractmethod
    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write one image of a step."""

    @abstractmethod
    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config of the run."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write all numbers of a step at once."""
        for name, value in scalars.items():
            self.write_scalar(name, value, step)

    def write_records(self, records: Sequence[tuple[Mapping[str, float], int]]) -> None:
        """Write the numbers of several steps at once: all that were waiting for a writer in the background."""
        for scalars, step in records:
            self.write_scalars(scalars, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """Write the distribution of many numbers; by default as scalars `name/min`, `/mean`, `/std` and `/max`."""
        self.write_scalars(statistics(name, values), step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text of a step; by default, do nothing."""

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a table of a step; by default as a text."""
        self.write_text(name, as_markdown(columns, rows), step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """Write the graph of the model for these inputs; by default as the text `str(model)`."""
        self.write_text(name, str(model), 0)

    def flush(self) -> None:
        """Write out everything that is still buffered."""

    def close(self) -> None:
        """Finish after the run has ended."""

    def files(self) -> Iterable[str]:
        """Return the names of the files and folders in the run's folder to move aside before a fresh run."""
        return ()

    def may_pass(self, error: Exception) -> bool:
        """Return whether the error may be temporary and the call worth a retry: a full disk, a server that is down."""
        return isinstance(error, OSError)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the records went, so that a resumed run can continue there.

        The state may include numbers that are not written yet as `waiting`, `[[scalars, step], ...]`. A resumed run
        writes them.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop everything that was recorded after the checkpoint, because the run will repeat those steps.

        `state["iter"]` is the iteration of the checkpoint.
        """

    def rejoin(self, state: Mapping[str, Any]) -> None:
        """Continue the run of this state without dropping anything, because one of its checkpoints is evaluated."""
