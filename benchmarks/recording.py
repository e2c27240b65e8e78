"""Measure the cost of recording: of one scalar in the hub, and of ten scalars, the writers and the progress display.

The last three are shown as a share of a bare step.

python benchmarks/recording.py            a table
python benchmarks/recording.py --json     the same as JSON
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch
from rich.console import Console

from hookline import Hook, MessageHub, Runner
from hookline.hooks import ProgressHook
from overhead import NO_DEFAULT_HOOKS, Data, bare, measure, with_hookline

LOGGED = {key: None for key in NO_DEFAULT_HOOKS if key not in ("runtime_info", "logger")}


class TenScalars(Hook):
    """Records ten numbers at every step."""

    NAMES = tuple(f"train/number_{i}" for i in range(10))

    def after_train_iter(self, runner: Runner) -> None:
        """Record ten numbers."""
        for name in self.NAMES:
            runner.hub.update_scalar(name, 1.0)


class Screen(Hook):
    """Gives a run an invisible screen, so that the display is drawn."""

    priority = "HIGHEST"

    def idle_points(self, runner: Runner) -> list[str]:
        """Set up the screen here, because this runs before the hooks of the display."""
        runner.terminal.quiet = False
        runner.terminal._console = Console(file=io.StringIO(), force_terminal=True, width=100)
        return []


def on_a_screen(*hooks: type[Hook]) -> Callable[[Data], float]:
    """Return a case with the default hooks and a screen; printed lines are discarded."""

    def run(data: Data) -> float:
        with redirect_stdout(io.StringIO()):
            return with_hookline(data, custom_hooks=[Screen(), *(hook() for hook in hooks)])

    return run


# Each case, and the case to compare it with: the same run without it. The display shows records of the default hooks.
WITHOUT = {
    "ten scalars per step": "no hooks",
    "jsonl and TensorBoard every 10 steps": "no hooks",
    "the progress display": "default hooks and a screen",
}


def cases() -> dict[str, Callable[[Data], float]]:
    """Return the cases to measure, by name."""

    def run(**parts: Any) -> Callable[[Data], float]:
        return lambda data: with_hookline(data, **parts)

    return {
        "bare loop": bare,
        "no hooks": run(default_hooks=NO_DEFAULT_HOOKS),
        "ten scalars per step": run(default_hooks=NO_DEFAULT_HOOKS, custom_hooks=[TenScalars()]),
        "jsonl and TensorBoard every 10 steps": run(default_hooks=LOGGED, writers=["jsonl", "tensorboard"]),
        "default hooks and a screen": on_a_screen(),
        "the progress display": on_a_screen(ProgressHook),
    }


def scalar(after: int, updates: int = 100_000) -> float:
    """Return the microseconds of one `update_scalar` after `after` earlier updates."""
    hub = MessageHub()
    update, value = hub.update_scalar, torch.tensor(1.0)
    for _ in range(after):
        update("train/loss", value)
    least = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(updates // 5):
            update("train/loss", value)
        least = min(least, time.perf_counter() - began)
    return least / (updates // 5) * 1e6


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="steps per measurement")
    parser.add_argument("--rounds", type=int, default=12, help="measurements per case")
    parser.add_argument(
        "--updates", type=int, default=1_000_000, help="updates before the second measurement of the hub"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hub = {f"after {after:,} updates": scalar(after) for after in (1000, options.updates)}
    measure(cases(), steps=100, rounds=1)  # warm up
    found = measure(cases(), options.steps, options.rounds)
    base = found["bare loop"]
    shares = {name: (found[name] - found[without]) / base for name, without in WITHOUT.items()}
    if options.json:
        print(json.dumps({"microseconds per scalar": hub, "bare step": base, "share of a step": shares}, indent=2))
        return
    for name, us in hub.items():
        print(f"one scalar in the hub, {name:22} {us:6.2f} us")
    print(f"a bare step{'':35}{base:6.1f} us")
    for name, share in shares.items():
        print(f"{name:44} {share:+8.1%} of a step")


if __name__ == "__main__":
    main()
