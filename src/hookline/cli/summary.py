"""The table at the end of a run: its results, its times, and where its files are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hookline.common.escape import escaped
from hookline.common.numbers import as_number, as_time
from hookline.hooks.timer import TIMES
from hookline.record.hub import LAST

if TYPE_CHECKING:
    from hookline.engine.runner import Runner


def closing_table(runner: Runner, seconds: float, tested: Mapping[str, Any]) -> Table:
    """Return the table of a run that has just ended."""
    table = Table(title=Text(escaped(runner.experiment_name)), show_header=False, title_justify="left", min_width=40)

    table.add_column()
    table.add_column(overflow="fold")

    def row(label: str, text: str, style: str | None = None) -> None:  # as Text, because rich reads brackets as styles
        table.add_row(Text(escaped(label)), Text(escaped(text)), style=style)

    row("trained", f"{runner.epoch} epochs, {runner.iter} iterations in {as_time(seconds)}")
    hub = runner.hub
    if "train/loss" in hub.scalars:
        loss = hub.get_info("last_loss")
        loss = hub.get_scalar("train/loss").mean(LAST) if loss is None else loss
        row("train loss", f"{as_number(loss)}, the mean of the last {LAST} steps")
    for name, history in hub.scalars.items():
        if name.startswith("val/") and name.removeprefix("val/") not in TIMES:
            row(name.replace("/", " ", 1), as_number(history.current()))
    for name, value in tested.items():
        row(f"test {name}", as_number(value), style="bold")
    if "train/time" in hub.scalars and "train/data_time" in hub.scalars:
        step, data = hub.get_scalar("train/time").mean(), hub.get_scalar("train/data_time").mean()
        row("per step", f"{step * 1e3:.2f} ms, {data * 1e3:.2f} ms of it waiting for data")
    if spent := hub.get_info("seconds_of"):
        spent = {**spent, "start and end": seconds - sum(spent.values())}
        row("time", _seconds(spent) or "less than 0.1 s")
    if (costs := hub.get_info("seconds_of_hooks")) is not None:
        by_hook = {name: sum(points.values()) for name, points in costs.items()}
        dearest = dict(sorted(by_hook.items(), key=lambda item: -item[1])[:3])
        row("hooks", _seconds(dearest) or "less than 0.1 s each")
    if hub.get_info("best_ckpt"):
        row("best checkpoint", str(runner.folders[0] / hub.get_info("best_ckpt")))
    if runner.saving.last_path is not None:
        row("last checkpoint", str(runner.saving.last_path))
    row("run", str(runner.work_dir))
    return table


def _seconds(spent: Mapping[str, float]) -> str:
    """Return the times of a tenth of a second or more: `data 1.2 s, steps 8.3 s`."""
    return ", ".join(f"{name} {value:.1f} s" for name, value in spent.items() if value >= 0.05)
