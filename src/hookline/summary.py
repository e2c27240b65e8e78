"""The table at the end of a run: what came out, what it took, where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hookline.terminal import as_number, as_time

if TYPE_CHECKING:
    from hookline.runner import Runner


def closing_table(runner: Runner, seconds: float, tested: Mapping[str, Any]) -> Table:
    """Results, times and places of a run that has just ended."""
    table = Table(title=runner.experiment_name, show_header=False, title_justify="left", min_width=40)
    table.add_row("trained", f"{runner.epoch} epochs, {runner.iter} iterations in {as_time(seconds)}")
    hub = runner.hub
    if "train/loss" in hub.scalars:
        table.add_row("train loss", as_number(hub.get_scalar("train/loss").mean(20)))
    for name, history in hub.scalars.items():
        if name.startswith("val/") and not name.endswith("time"):
            table.add_row(name.replace("/", " ", 1), as_number(history.current()))
    for name, value in tested.items():
        table.add_row(f"test {name}", as_number(value), style="bold")
    if "train/time" in hub.scalars:
        step, data = hub.get_scalar("train/time").mean(), hub.get_scalar("train/data_time").mean()
        table.add_row("a step", f"{step * 1e3:.2f} ms, {data * 1e3:.2f} ms of it waiting for data")
    if spent := hub.get_info("seconds_of"):
        table.add_row("time", _seconds(spent) or "less than 0.1 s")
    by_hook = {name: sum(points.values()) for name, points in (hub.get_info("seconds_of_hooks") or {}).items()}
    if dear := _seconds(dict(sorted(by_hook.items(), key=lambda item: -item[1])[:3])):
        table.add_row("hooks", dear)
    if hub.get_info("best_ckpt"):
        table.add_row("best checkpoint", str(runner.saving.folders[0] / hub.get_info("best_ckpt")))
    if runner.saving.last_path is not None:
        table.add_row("last checkpoint", str(runner.saving.last_path))
    table.add_row("run", str(runner.work_dir))
    return table


def _seconds(spent: Mapping[str, float]) -> str:
    """What took a tenth of a second or more: `data 1.2 s, steps 8.3 s`."""
    return ", ".join(f"{name} {value:.1f} s" for name, value in spent.items() if value >= 0.05)
