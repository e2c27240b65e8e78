"""The hosts of hooks, and the table of which hook runs where. `python -m tests.integrations.hosts` writes the page.

The contract suite next to this file proves each cell. To add a host, add it to `HOSTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hookline.errors import HookError
from hookline.integrations import lightning, transformers
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS
from tests.integrations.engines import run_in_lightning, run_in_transformers

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"
NAMES = [name for name in HOOKS if HOOKS.origin(name) == "hookline"]


def images_of(data_batch: Any, outputs: Any) -> Any:
    """Return images that depend on the batch and on the outputs."""
    return (data_batch["inputs"].sum() + outputs[0].sum()).sigmoid().expand(1, 1, 8, 8)


#: The parameters of the hooks, so that each has something to do in ten iterations and two epochs.
PARAMETERS: dict[str, dict[str, Any]] = {
    "ActivationStatsHook": {"modules": ["body.*", "head"], "interval": 2},
    "AutogradAnomalyHook": {"end": 3},
    "CheckInvalidLossHook": {"policy": "raise"},
    "CheckpointHook": {"interval": 1, "save_best": "accuracy"},
    "EMAHook": {"momentum": 0.1},
    "EarlyStoppingHook": {"monitor": "accuracy", "rule": "less", "patience": 1},
    "EmptyCacheHook": {"before_epoch": True, "garbage_collection": True},
    "EvaluateHook": {"function": lambda model: sum(each.abs().sum() for each in model.parameters()), "interval": 2},
    "FreezeHook": {"patterns": ["*head*"], "until_epoch": 1},
    "GradClipHook": {"max_norm": 1.0},
    "GradNormHook": {"interval": 1, "depth": 1},
    "ProfilerHook": {"by_epoch": False, "profile_times": 4, "schedule": {"wait": 1, "warmup": 1, "active": 2}},
    "PruningHook": {"monitor": "accuracy", "study": "mine", "storage": "sqlite:///study.db"},
    "RankTimesHook": {"interval": 2},
    "StatsMonitorHook": {"step_log_freq": 2},
    "TimeLimitHook": {"limit": "10h"},
    "VisualizationHook": {"interval": 1, "function": images_of},
    "LoggerHook": {"interval": 2},
}
#: Where a hook needs something of the engine, or of its own parameters.
CONDITIONS = {
    ("CheckInvalidLossHook", "Lightning"): "with `policy: raise`",
    ("CheckInvalidLossHook", "Transformers"): "with `policy: raise`",
    ("GradNormHook", "Transformers"): "with `max_grad_norm=0`",
}


def given(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the custom hooks and the default hooks of a run with a hook, and records every two iterations."""
    default = {"logger": PARAMETERS["LoggerHook"]}
    key = next((key for key, hook in DEFAULT_HOOKS.items() if hook == name), None)
    if key is not None and name != "CheckpointHook":
        return [], {**default, key: PARAMETERS.get(name, {})}
    return [{"type": name, **PARAMETERS.get(name, {})}], default


def train_in_lightning(folder: Path, hooks: list[Any], default_hooks: Mapping[str, Any], **options: Any) -> Any:
    callback = lightning.HooklineCallback(hooks, folder, default_hooks)
    return run_in_lightning([callback], **options)


def train_in_transformers(folder: Path, hooks: list[Any], default_hooks: Mapping[str, Any], **options: Any) -> Any:
    callback = transformers.HooklineCallback(hooks, folder, default_hooks)
    return run_in_transformers(folder.parent, [callback], **options).model


#: Trains the model of `engines` with hooks, in a folder, by the name of the host.
HOSTS: dict[str, Callable[..., Any]] = {"Lightning": train_in_lightning, "Transformers": train_in_transformers}
CALLBACKS: dict[str, Any] = {
    "Lightning": lightning.HooklineCallback,
    "Transformers": transformers.HooklineCallback,
}


def find_refusal(name: str, host: str) -> str:
    """Return the message that refuses a hook in a host; empty if the host takes it."""
    hooks, default = given(name)
    try:
        CALLBACKS[host](hooks, "unused", default)
    except HookError as error:
        return str(error)
    return ""


def cell(name: str, host: str) -> str:
    """Return what the table shows about a hook in a host."""
    refusal = find_refusal(name, host)
    if refusal:
        return f"no: {refusal.partition(': ')[2]}"
    return CONDITIONS.get((name, host), "yes")


def page() -> str:
    """Return the page with the table."""
    rows = [f"| `{name}` | yes | {' | '.join(cell(name, host) for host in HOSTS)} |" for name in NAMES]
    return "\n".join(
        [
            "# Which hook runs where",
            "",
            "Every built-in hook records in these loops exactly what it records in a `Runner` with the same model and "
            "data, or the",
            "callback of the engine refuses it when you create it. `tests/integrations` proves each cell, and `make "
            "docs` writes this",
            "page.",
            "",
            f"| hook | [your own loop](how-to/your-own-loop.md) | {' | '.join(HOSTS)} |",
            f"| --- | --- |{' --- |' * len(HOSTS)}",
            *rows,
            "",
            "Durations differ, of course. See [Inside Lightning](how-to/inside-lightning.md) and [Inside "
            "Transformers](how-to/inside-transformers.md).",
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
