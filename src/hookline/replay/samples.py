"""Samples: which samples the batch of a step has, computed from the data of the run. Nothing is trained or read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hookline.common.files import real_path
from hookline.data.batches import identify, length_of
from hookline.data.sources import as_resumable, fingerprint, shared
from hookline.errors import ConfigError, DataError
from hookline.replay.preparation import data_changes, find_session, origin_of
from hookline.replay.rerun import ReplayOver, activated, refuse_late_step, refuse_other_run
from hookline.replay.running import build
from hookline.rundir.runs import load

if TYPE_CHECKING:
    from hookline.runner.host import RunnerHost
    from hookline.state.host import Verb


@dataclass
class Batch:
    """The batch of one step in one process."""

    folder: Path
    step: int
    rank: int
    processes: int
    epoch: int = 0
    #: The number of the batch in its pass, and how many batches the pass has.
    number: int = 0
    length: int = 0
    #: The absolute position of the batch, as `skip` counts it.
    position: int = 0
    #: `samples`, or `batches` if the data is a list of batches.
    kind: str = ""
    ids: list[int] = field(default_factory=list)
    #: What the data set says about each sample, if it has a method `describe`.
    descriptions: list[str] = field(default_factory=list)
    #: How the data differs from the data of the run; the samples may then be others.
    warning: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "folder": str(self.folder)}

    def lines(self) -> list[str]:
        """Return it as lines."""
        rank = f", rank {self.rank} of {self.processes}" if self.processes > 1 else ""
        place = f", position {self.position}" if self.position not in (0, self.step) else ""
        where = f"step {self.step} (epoch {self.epoch + 1}, batch {self.number + 1} of {self.length}{place}{rank})"
        warning = [f"warning: {self.warning}"] if self.warning else []
        if not self.descriptions:
            return [f"{where}: {self.kind} {', '.join(map(str, self.ids))}", *warning]
        return [f"{where}:", *(f"  {i}  {text}" for i, text in zip(self.ids, self.descriptions, strict=True)), *warning]


@dataclass
class Lookup:
    """Looks a batch up where the training of a run would begin, maybe in a process that the code of the run starts.

    Args:
        batch: The batch to look up.
        answer: The file for what was found.
        data: The fingerprint of the data of then.
    """

    batch: Batch
    answer: Path
    data: Any = None

    @contextmanager
    def around(self, host: RunnerHost, verb: Verb) -> Iterator[None]:
        """Look the batch up instead of a training, and leave the code of the user."""
        refuse_other_run(host, self.batch.folder)
        if verb == "train":
            self._compare_data(host.train_loop.dataloader)
            look_up(host, self.batch)
            self.answer.write_text(json.dumps(vars(self.batch) | {"folder": ""}), encoding="utf-8")
        raise ReplayOver
        yield

    def _compare_data(self, loader: Any) -> None:
        """Refuse data with another number of samples, whose order is another one. Warn of other content."""
        now = fingerprint(loader)
        if not (changes := data_changes(self.data, now)):
            return
        if self.data.get("samples", now["samples"]) != now["samples"]:
            raise DataError(f"the data of {self.batch.folder} is not as it was when the run began: {changes}")
        self.batch.warning = f"the data is not as it was when the run began: {changes}"


def look_up(host: RunnerHost, batch: Batch) -> None:
    """Find the samples of a batch in the data of a run."""
    loop = host.train_loop
    loader = shared(loop.dataloader, batch.rank, batch.processes, True)
    resumable = as_resumable(loader)
    if resumable is not None:
        resumable.seed = host.seed
    length = length_of(loader, loop.limit_batches)
    if not length or (resumable is not None and resumable.order.length_is_estimate):
        raise DataError(
            f"the {type(loader).__name__} does not know how many batches a pass has, so a step has no place"
        )
    refuse_late_step(host, batch.step)
    place = loop.skip.place(batch.step - 1)
    batch.epoch, batch.number = divmod(place, length)
    batch.length, batch.position = length, place + 1
    found = identify(loader, batch.epoch, batch.number)
    if found is None:
        raise DataError(
            f"the {type(loader).__name__} controls its own order, so the samples of a step are not known; use a "
            "hookline.data.ResumableLoader or a plain DataLoader"
        )
    batch.kind, batch.ids = found
    describe = getattr(getattr(resumable, "dataset", None), "describe", None)
    if callable(describe):
        batch.descriptions = [str(describe(index)) for index in batch.ids]


def find(folder: Path, step: int, rank: int = 0, allow: Sequence[str] = ()) -> Batch:
    """Return the batch of a step in one process of a run."""
    run = load(folder)
    session = find_session(run.events, step)
    processes = session.get("processes")
    processes = processes if type(processes) is int and processes > 0 else 1
    if not 0 <= rank < processes:
        raise ConfigError(
            f"--rank {rank}: the run had {processes} processes at step {step}, so ranks are below {processes}"
        )
    batch = Batch(real_path(run.path), step, rank, processes)
    with (
        TemporaryDirectory(prefix="hookline-batch-") as scratch,
        activated(Lookup(batch, answer := real_path(Path(scratch)) / "batch.json", session.get("data")), batch.folder),
    ):
        build(batch.folder, origin_of(folder, run, session), allow)
        if not answer.exists():
            raise ConfigError(f"the code that started the run has ended without training in {folder}")
        return Batch(**{**json.loads(answer.read_text(encoding="utf-8")), "folder": batch.folder})
