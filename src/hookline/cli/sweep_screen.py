"""The output of `hookline sweep`: a line per trial, a line of progress on a terminal, and a table at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hookline.common.durations import as_duration
from hookline.common.escape import escaped
from hookline.common.numbers import as_number
from hookline.common.studies import without_password
from hookline.sweeps.space import text
from hookline.sweeps.trials import last_step

if TYPE_CHECKING:
    from optuna.study import Study

    from hookline.sweeps.results import Row
    from hookline.sweeps.studies import Settings
    from hookline.sweeps.sweep import Sweep
    from hookline.sweeps.trials import Job, Outcome

#: The table has at most this many rows; all trials are in the study.
ROWS = 20


class Screen:
    """The lines of one sweep."""

    def __init__(self, settings: Settings, *, to_stderr: bool = False) -> None:
        self.settings = settings
        self._console = Console(highlight=False, stderr=to_stderr)
        self._status = self._console.status("", spinner="line")
        #: The best value that this command has seen.
        self._best: float | None = None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, line: str) -> None:
        """Show a line."""
        self._console.print(Text(escaped(line)), soft_wrap=True)

    def announce(self, study: Study) -> None:
        """Show the plan of the sweep."""
        settings = self.settings
        self.say(
            f"{settings.study}: {settings.total} trial{'s' * (settings.total > 1)} to {settings.direction} "
            f"{settings.metric}, sampler {settings.sampler}, pruner {settings.pruner}, in {settings.folder}, study in "
            f"{without_password(settings.storage)}"
        )
        for key, values in settings.space.items():
            self.say(f"  {key}: {values}")
        trials = study.get_trials(deepcopy=False)
        finished = sum(trial.state.is_finished() for trial in trials)
        if trials:
            self.say(f"continuing: {finished} of {len(trials)} trials are finished")

    def show_end(self, job: Job, outcome: Outcome) -> None:
        """Show one line about a trial that has ended."""
        value = "" if outcome.value is None else f"{self.settings.metric} {as_number(outcome.value)}"
        values = ", ".join(self.settings.space.overrides(job.labels))
        what = {
            "complete": value,
            "pruned": f"pruned, {value}",
            "failed": f"failed (exit code {outcome.exit_code}): {outcome.reason}",
            "unfinished": "saved, to be continued" if last_step(job.folder) >= 0 else "nothing saved, to be repeated",
        }[outcome.state]
        if outcome.value is not None and self.settings.monitor.better(outcome.value, self._best):
            self._best = outcome.value
        self.say(f"trial {job.number}: {what}, with {values} ({job.folder})")

    def show_progress(self, sweep: Sweep) -> None:
        """Update the line at the bottom of the terminal."""
        if not self._console.is_terminal:
            return
        states = [trial.state.name for trial in sweep.study.get_trials(deepcopy=False)]
        done = sum(state in ("COMPLETE", "PRUNED", "FAIL") for state in states)
        running = ", ".join(str(number) for number in sorted(sweep.running))
        ending = ", ending (press Ctrl-C again to quit immediately)" if sweep.signals.first else ""
        best = "" if self._best is None else f", best {as_number(self._best)}"
        self._status.update(f"{done} of {self.settings.total} trials{best}, running: {running or '-'}{ending}")

    def show_results(self, rows: list[Row], best_config: Path | None) -> None:
        """Show the table, and how to train the best config."""
        if not rows:
            return
        self._console.print(self.table(rows))
        if len(rows) > ROWS:
            self.say(f"{len(rows) - ROWS} more trials: add --json for all of them")
        elsewhere = [str(row.number) for row in rows if row.state == "unfinished" and row.folder is None]
        if elsewhere:
            self.say(
                f"unfinished trials that were started in another folder, maybe on another machine: "
                f"{', '.join(elsewhere)}; the same command continues them there"
            )
        if best_config is not None:
            allow = "".join(f" --allow {module}" for module in self.settings.allow)
            self.say(f"best config: hookline train {best_config}{allow}")

    def table(self, rows: list[Row]) -> Table:
        """Return the table of the best trials."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("trial", self.settings.metric, *short_names(self.settings.space), "state", "time", "folder"):
            table.add_column(Text(escaped(name)), overflow="fold")
        for row in rows[:ROWS]:
            cells: list[Any] = [str(row.number), "-" if row.value is None else as_number(row.value)]
            cells += [_short(row.params[key]) if key in row.params else "-" for key in self.settings.space]
            cells += [row.state, "-" if row.seconds is None else as_duration(row.seconds)]
            cells += ["elsewhere" if row.folder is None else str(row.folder)]
            table.add_row(*(Text(escaped(cell)) for cell in cells))
        return table


def short_names(keys: Iterable[str]) -> list[str]:
    """Return the last parts of keys, as many as are needed to tell them apart.

    >>> short_names(["optim.optimizer.lr", "model.width", "a.schedule.lr"])
    ['optimizer.lr', 'width', 'schedule.lr']
    """
    parts = {key: key.split(".") for key in keys}
    names = []
    for key, words in parts.items():
        count = 1
        while any(other != key and other_words[-count:] == words[-count:] for other, other_words in parts.items()):
            count += 1
        names.append(".".join(words[-count:]))
    return names


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text(value)
