"""Comparison of runs by config and results, for `hookline compare`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hookline.common.marks import Keys, dotted
from hookline.common.monitor import Monitor, monitor
from hookline.common.patterns import matching
from hookline.errors import ConfigError, HooklineError, did_you_mean

if TYPE_CHECKING:
    from hookline.rundir.runs import Result, Run

# Every run has its own folder, and the header of the table shows it already.
IGNORED_KEY = "work_dir"
STEP_TIME = "train/time"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run: its length, its times, and the final and best value of every metric."""

    run: Run
    epochs: int
    iterations: int
    #: The total time of all recorded steps, in seconds; None if step times were not recorded.
    seconds: float | None
    #: The mean time of a step, in seconds.
    step_seconds: float | None
    final: Mapping[str, Result]
    #: Only metrics that had a finite value and whose name shows whether greater or less is better.
    best: Mapping[str, Result]


def summarize(run: Run, names: Iterable[str]) -> Outcome:
    """Return the outcome of a run, with the named metrics that it has."""
    metrics = run.metrics
    recorded = [name for name in names if name in metrics]
    steps = [int(metrics["step"].max(initial=0)), *(checkpoint.step or 0 for checkpoint in run.checkpoints)]
    epochs = metrics["epoch"][metrics["epoch"] >= 0]
    seconds, step_seconds = _times(run)
    return Outcome(
        run,
        epochs=int(epochs.max(initial=0)),
        iterations=max(steps),
        seconds=seconds,
        step_seconds=step_seconds,
        final={name: run.final(name) for name in recorded},
        best={name: best for name in recorded if (best := _best(run, name)) is not None},
    )


def _best(run: Run, name: str) -> Result | None:
    if find_rule(name) is None:
        return None
    try:
        return run.best(name)
    except HooklineError:  # no value was finite
        return None


def _times(run: Run) -> tuple[float | None, float | None]:
    """Return the total time of all steps and the mean time of one.

    Each record holds the mean over the steps since the previous record.
    """
    if STEP_TIME not in run.metrics:
        return None, None
    steps, means = run.metrics.series(STEP_TIME)
    # A run that continued from another run's checkpoint starts at a high step. Its first record then covers as many
    # steps as the second.
    first, second = (*steps.tolist(), 0, 0)[:2]
    before = max(2 * first - second, 0) if second > first else 0
    total, counted = 0.0, 0
    for step, mean in zip(steps.tolist(), means.tolist(), strict=True):
        if math.isfinite(mean):
            total += mean * max(step - before, 0)
        counted, before = counted + max(step - before, 0), step
    return (total, total / counted) if counted else (None, None)


def find_rule(name: str) -> Monitor | None:
    """Return the monitor of a metric; None if its name does not show whether greater or less is better."""
    try:
        return monitor(name)
    except ConfigError:
        return None


def select_metrics(runs: Sequence[Run], wanted: Sequence[str] = ()) -> list[str]:
    """Return the metrics to compare: the wanted names and patterns (`val/*`), or by default all except times."""
    known = list(dict.fromkeys(name for run in runs for name in run.metrics.names))
    if not wanted:
        return [name for name in known if name.rpartition("/")[2] not in ("time", "data_time")]
    chosen = set()
    for pattern in wanted:
        matches = [pattern] if pattern in known else matching(pattern, known)
        if not matches:
            raise ConfigError(f"--metric: unknown metric '{pattern}'; {did_you_mean(pattern, known)}")
        chosen.update(matches)
    return [name for name in known if name in chosen]


def find_differences(runs: Sequence[Run]) -> dict[str, dict[int, Any]]:
    """Return the config keys whose values differ, with the values by run number.

    A run that lacks a key has no entry for it. A run without a config is left out of the comparison.
    """
    flat = {number: dict(flatten(run.config)) for number, run in enumerate(runs) if run.has_config}
    differences: dict[str, dict[int, Any]] = {}
    for key in dict.fromkeys(key for values in flat.values() for key in values):
        values = {number: config[key] for number, config in flat.items() if key in config}
        first = next(iter(values.values()))
        differs = len(values) < len(flat) or not all(is_same(first, value) for value in values.values())
        if key != IGNORED_KEY and differs:
            differences[key] = values
    return differences


def flatten(value: Any, keys: Keys = ()) -> Iterator[tuple[str, Any]]:
    """Yield every value of a config with its dotted key.

    >>> dict(flatten({"optim": {"lr": 0.1}, "hooks": [{"type": "EMAHook"}], "tags": []}))
    {'optim.lr': 0.1, 'hooks[0].type': 'EMAHook', 'tags': []}
    """
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if inside and value:
        for key, child in inside:
            yield from flatten(child, (*keys, key))
    else:
        yield dotted(keys), value


def is_same(one: Any, other: Any) -> bool:
    """Return whether two config values mean the same: `1` equals `1.0`, but not `true`.

    >>> is_same(1, 1.0), is_same(1, True), is_same(float("nan"), float("nan"))
    (True, False, True)
    """
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other) or (one != one and other != other)


def find_winners(values: Mapping[int, float], rule: Monitor) -> set[int]:
    """Return the numbers of the runs with the best value; empty if there is nothing to compare or all are equal."""
    best: float | None = None
    for value in values.values():
        if rule.better(value, best):
            best = value
    winners = {number for number, value in values.items() if value == best}
    return winners if len(winners) < len(values) else set()


def to_data(
    outcomes: Sequence[Outcome],
    differing: Mapping[str, Mapping[int, Any]],
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the comparison as plain data for JSON, with None for numbers that are not finite.

    `left_out` has the reasons for paths that could not be compared.
    """
    paths = [str(outcome.run.path) for outcome in outcomes]
    return {
        "runs": {path: _outcome_data(outcome) for path, outcome in zip(paths, outcomes, strict=True)},
        "config": {
            key: {paths[number]: _plain(value) for number, value in values.items()} for key, values in differing.items()
        },
        "left_out": dict(left_out),
    }


def _outcome_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.run.name,
        "epochs": outcome.epochs,
        "iterations": outcome.iterations,
        "seconds": outcome.seconds,
        "step_seconds": outcome.step_seconds,
        "final": {name: _result_data(result) for name, result in outcome.final.items()},
        "best": {name: _result_data(result) for name, result in outcome.best.items()},
    }


def _result_data(result: Result) -> dict[str, Any]:
    return {"value": _plain(result.value), "step": result.step}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
