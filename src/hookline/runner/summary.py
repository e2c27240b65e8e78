"""The summary of a run: its length, results, times and files. `runner.summary()` returns it at any time.

print(runner.summary())             the table that the command line shows at the end
runner.summary().best[0].value      0.9861
runner.summary().to_dict()          plain data
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.escape import escaped
from hookline.common.numbers import as_number, as_time
from hookline.record.hub import LAST, TIMES
from hookline.rundir.choice import last_regular
from hookline.rundir.names import PAGE

if TYPE_CHECKING:
    from rich.table import Table

    from hookline.common.monitor import BestCheckpoint
    from hookline.runner.host import RunnerHost

#: How many of the hooks that take the most time are shown.
DEAREST = 3


@dataclass(frozen=True, repr=False)
class Summary:
    """The work and the results of a run so far.

    A session is one call of `train()`. In a run that was resumed, or trained in several calls, `epochs` and
    `iterations` count all sessions. Everything that is measured in time belongs to the last session.
    """

    name: str
    work_dir: Path
    #: True if the run trains by epochs, false if by iterations.
    by_epoch: bool
    #: Finished epochs and iterations of all sessions. Training by iterations counts finished passes as epochs.
    epochs: int
    iterations: int
    #: The same for the last session, and the seconds that it took, or takes so far; 0 before training.
    session_epochs: int
    session_iterations: int
    seconds: float
    #: True while training is in progress.
    training: bool
    #: Why training was stopped early; empty if it was not.
    stopped: str
    #: The mean loss of the last `train_loss_steps` steps; None before the first one.
    train_loss: float | None
    train_loss_steps: int
    #: The metrics of the last validation and of the last test.
    val: Mapping[str, float] = field(default_factory=dict)
    test: Mapping[str, float] = field(default_factory=dict)
    #: The mean time of a step, and how much of it was waiting for data; None if they were not measured.
    step_seconds: float | None = None
    data_seconds: float | None = None
    #: Where the time of the session went, and what each hook took; empty until the session has ended.
    seconds_of: Mapping[str, float] = field(default_factory=dict)
    seconds_of_hooks: Mapping[str, float] = field(default_factory=dict)
    #: What is saved as best: the metric with its rule, the value and the file.
    best: tuple[BestCheckpoint, ...] = ()
    #: The newest checkpoint that was not saved as best; None if there is none.
    last_checkpoint: Path | None = None
    #: The page about the run, and the Chrome trace of the session; None if there is none.
    report: Path | None = None
    trace: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        best = [
            {"metric": each.monitor.name, "rule": each.monitor.rule, "value": each.value, "path": str(each.path)}
            for each in self.best
        ]
        paths = {name: str(value) for name, value in plain.items() if isinstance(value, Path)}
        mappings = {name: dict(value) for name, value in plain.items() if isinstance(value, Mapping)}
        return {**plain, **mappings, **paths, "best": best}

    # -- showing

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the table: labels and texts."""
        yield "trained", self._trained()
        if self.stopped:
            yield "stopped", self.stopped
        if self.train_loss is not None:
            steps = "step" if self.train_loss_steps == 1 else f"{self.train_loss_steps} steps"
            yield "train loss", f"{as_number(self.train_loss)}, the mean of the last {steps}"
        for stage, metrics in (("val", self.val), ("test", self.test)):
            for name, value in metrics.items():
                yield f"{stage} {name}", as_number(value)
        if self.step_seconds is not None:
            data = "" if self.data_seconds is None else f", {self.data_seconds * 1e3:.2f} ms of it waiting for data"
            yield "per step", f"{self.step_seconds * 1e3:.2f} ms{data}"
        if self.seconds_of:
            other = self.seconds - sum(self.seconds_of.values())
            yield "time", _seconds({**self.seconds_of, "start and end": other}) or "less than 0.1s"
        if self.seconds_of_hooks:
            dearest = sorted(self.seconds_of_hooks.items(), key=lambda item: -item[1])[:DEAREST]
            yield "hooks", _seconds(dict(dearest)) or "less than 0.1s each"
        for best in self.best:
            metric = f" for {best.monitor.name}" if len(self.best) > 1 else ""
            yield f"best checkpoint{metric}", f"{best.path}, {best.monitor.name} {as_number(best.value)}"
        if self.last_checkpoint is not None:
            yield "last checkpoint", str(self.last_checkpoint)
        yield "run", str(self.work_dir)
        if self.report is not None:
            yield "report", str(self.report)
        if self.trace is not None:
            yield "trace", f"{self.trace}, for ui.perfetto.dev"

    def _trained(self) -> str:
        whole = self._count(self.epochs, self.iterations)
        if not self.session_iterations and not self.training:
            return f"nothing in this session ({whole} in all)" if self.iterations else "not yet"
        text = f"{self._count(self.session_epochs, self.session_iterations)} in {as_time(self.seconds)}"
        if self.training:
            text += " so far"
        if self.session_iterations < self.iterations:
            text += f" in this session ({whole} in all)"
        return text

    def _count(self, epochs: int, iterations: int) -> str:
        counted = f"{iterations} iteration{'s' * (iterations != 1)}"
        return f"{epochs} epoch{'s' * (epochs != 1)}, {counted}" if self.by_epoch else counted

    def __rich__(self) -> Table:
        """Return the table for rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(escaped(self.name)), show_header=False, title_justify="left", min_width=40)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for label, text in self.rows():  # as Text, because rich reads brackets as styles
            table.add_row(
                Text(escaped(label)), Text(escaped(text)), style="bold" if label.startswith("test ") else None
            )
        return table

    def __str__(self) -> str:
        from rich.console import Console

        with StringIO() as lines:
            Console(file=lines, width=100, color_system=None, emoji=False, highlight=False).print(self)
            return lines.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = "".join(
            f"<tr><th style='text-align: left'>{escape(escaped(label))}</th>"
            f"<td style='text-align: left'>{escape(escaped(text))}</td></tr>"
            for label, text in self.rows()
        )
        return f"<table><caption>{escape(escaped(self.name))}</caption>{rows}</table>"


def summarize(runner: RunnerHost) -> Summary:
    """Return the summary of a run as it is now. Reading the newest numbers waits for the device."""
    hub, position, span = runner.hub, runner.position, runner.span
    scalars = hub.scalars
    epochs, iterations = span.done(position) if span is not None else (0, 0)
    is_over = span is not None and span.is_over
    loss = scalars.get("train/loss")
    mean = hub.get_info("last_loss") if is_over else None
    ledger = runner.plan.ledger
    costs = ledger.seconds_of_hooks() if is_over else {}
    stopped, newest = runner.requests.stopped, runner.saving.last_path
    return Summary(
        name=runner.experiment_name,
        work_dir=runner.work_dir,
        by_epoch=not runner.has_training or runner.train_loop.by_epoch,
        epochs=position.epoch,
        iterations=position.iter,
        session_epochs=epochs,
        session_iterations=iterations,
        seconds=span.seconds if span is not None else 0.0,
        training=runner.running == "train",
        stopped=f"{f'by {stopped.by}: ' if stopped.by else ''}{stopped.reason}" if stopped else "",
        train_loss=None if loss is None else loss.mean(LAST) if mean is None else mean,
        train_loss_steps=0 if loss is None else min(len(loss), LAST),
        val=_metrics(runner, "val/"),
        test=_metrics(runner, "test/"),
        step_seconds=_mean_of_session(runner, "train/time", iterations),
        data_seconds=_mean_of_session(runner, "train/data_time", iterations),
        seconds_of=ledger.seconds_of_parts() if is_over else {},
        seconds_of_hooks={name: sum(points.values()) for name, points in costs.items()},
        best=tuple(best for best in runner.plan.saved_as_best() if best.value is not None),
        last_checkpoint=None if newest is None else last_regular(newest),
        report=_if_there(runner.work_dir / PAGE) if is_over else None,
        trace=_if_there(ledger.traced) if is_over and ledger.traced is not None else None,
    )


def _if_there(path: Path) -> Path | None:
    return path if os.path.isfile(path) else None


def _metrics(runner: RunnerHost, prefix: str) -> dict[str, float]:
    found = {name.removeprefix(prefix): each for name, each in runner.hub.scalars.items() if name.startswith(prefix)}
    return {name: history.current() for name, history in found.items() if name not in TIMES}


def _mean_of_session(runner: RunnerHost, name: str, iterations: int) -> float | None:
    """Return the mean of a time over the steps of this session; the hub also has some of the sessions before."""
    history = runner.hub.scalars.get(name)
    return history.mean(iterations) if history is not None and iterations > 0 else None


def _seconds(spent: Mapping[str, float]) -> str:
    """Return the times of a tenth of a second or more: `data 1.2s, steps 8.3s`."""
    return ", ".join(f"{name} {value:.1f}s" for name, value in spent.items() if value >= 0.05)
