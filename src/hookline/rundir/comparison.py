"""What differs between runs: in their configs, and in what came out. For `hookline compare`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.marks import Keys, dotted
from hookline.common.monitor import Monitor, monitor
from hookline.common.patterns import matching
from hookline.errors import ConfigError, HooklineError, did_you_mean

if TYPE_CHECKING:
    from hookline.rundir.runs import Result, Run

# The name of the folder stands at the top; that it differs says nothing.
LEFT_OUT = "work_dir"
STEP_TIME = "train/time"


@dataclass(frozen=True)
class Outcome:
    """What came out of one run: how far it went, how long that took, and the final and the best of every metric."""

    run: Run
    epochs: int
    iterations: int
    #: The time of all recorded steps, in seconds; None where step times were not recorded.
    seconds: float | None
    #: The mean of a step, in seconds.
    step_seconds: float | None
    final: Mapping[str, Result]
    #: Of the metrics whose name tells whether more or less is better, and that had a finite value.
    best: Mapping[str, Result]


def outcome(run: Run, names: Iterable[str]) -> Outcome:
    """What came out of a run, for the named metrics that it has."""
    metrics = run.metrics
    own = [name for name in names if name in metrics]
    steps = [int(metrics["step"].max(initial=0)), *(each.step or 0 for each in run.checkpoints)]
    epochs = metrics["epoch"][metrics["epoch"] >= 0]
    seconds, step_seconds = _times(run)
    return Outcome(
        run,
        epochs=int(epochs.max(initial=0)),
        iterations=max(steps),
        seconds=seconds,
        step_seconds=step_seconds,
        final={name: run.final(name) for name in own},
        best={name: best for name in own if (best := _best(run, name)) is not None},
    )


def _best(run: Run, name: str) -> Result | None:
    if watched(name) is None:
        return None
    try:
        return run.best(name)
    except HooklineError:  # it never had a finite value
        return None


def _times(run: Run) -> tuple[float | None, float | None]:
    """The time of all steps, and of one: each record has the mean of the steps since the one before."""
    if STEP_TIME not in run.metrics:
        return None, None
    steps, means = run.metrics.series(STEP_TIME)
    # A run that went on from another's checkpoint has its first record late; it stands for as many as the second.
    first, second = (*steps.tolist(), 0, 0)[:2]
    before = max(2 * first - second, 0) if second > first else 0
    total, counted = 0.0, 0
    for step, mean in zip(steps.tolist(), means.tolist(), strict=True):
        if math.isfinite(mean):
            total += mean * max(step - before, 0)
        counted, before = counted + max(step - before, 0), step
    return (total, total / counted) if counted else (None, None)


def watched(name: str) -> Monitor | None:
    """A metric with its rule; None where the name does not tell."""
    try:
        return monitor(name)
    except ConfigError:
        return None


def names_of(runs: Sequence[Run], wanted: Sequence[str] = ()) -> list[str]:
    """The metrics to compare: all but times, or those that are named, also by patterns as `val/*`."""
    known = list(dict.fromkeys(name for run in runs for name in run.metrics.names))
    if not wanted:
        return [name for name in known if name.rpartition("/")[2] not in ("time", "data_time")]
    chosen = set()
    for pattern in wanted:
        found = [pattern] if pattern in known else matching(pattern, known)
        if not found:
            raise ConfigError(f"--metric: nothing is recorded as '{pattern}'; {did_you_mean(pattern, known)}")
        chosen.update(found)
    return [name for name in known if name in chosen]


def differences(runs: Sequence[Run]) -> dict[str, dict[int, Any]]:
    """The keys of the configs whose values differ, with the value of each run that has one, by its number.

    A run without a config cannot differ.
    """
    flat = {number: dict(leaves(run.config)) for number, run in enumerate(runs) if run.has_config}
    found: dict[str, dict[int, Any]] = {}
    for key in dict.fromkeys(key for values in flat.values() for key in values):
        values = {number: own[key] for number, own in flat.items() if key in own}
        first = next(iter(values.values()))
        if key != LEFT_OUT and (len(values) < len(flat) or not all(same(first, value) for value in values.values())):
            found[key] = values
    return found


def leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[str, Any]]:
    """Every value of a config under its dotted key.

    >>> dict(leaves({"optim": {"lr": 0.1}, "hooks": [{"type": "EMAHook"}], "tags": []}))
    {'optim.lr': 0.1, 'hooks[0].type': 'EMAHook', 'tags': []}
    """
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if inside and value:
        for key, child in inside:
            yield from leaves(child, (*keys, key))
    else:
        yield dotted(keys), value


def same(one: Any, other: Any) -> bool:
    """Whether two values of a config mean the same: `1` is `1.0`, but not `true`.

    >>> same(1, 1.0), same(1, True), same(float("nan"), float("nan"))
    (True, False, True)
    """
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other) or (one != one and other != other)


def winners(values: Mapping[int, float], rule: Monitor) -> set[int]:
    """The numbers of the runs that have the best value; none where there is nothing to compare, or all are equal."""
    best: float | None = None
    for value in values.values():
        if rule.better(value, best):
            best = value
    found = {number for number, value in values.items() if value == best}
    return found if len(found) < len(values) else set()


def as_data(outcomes: Sequence[Outcome], differing: Mapping[str, Mapping[int, Any]]) -> dict[str, Any]:
    """The comparison as plain data that JSON can hold: what is not finite is None."""
    paths = [str(each.run.path) for each in outcomes]
    return {
        "runs": {path: _outcome_data(each) for path, each in zip(paths, outcomes, strict=True)},
        "config": {
            key: {paths[number]: _plain(value) for number, value in values.items()} for key, values in differing.items()
        },
    }


def _outcome_data(found: Outcome) -> dict[str, Any]:
    return {
        "name": found.run.name,
        "epochs": found.epochs,
        "iterations": found.iterations,
        "seconds": found.seconds,
        "step_seconds": found.step_seconds,
        "final": {name: _result_data(result) for name, result in found.final.items()},
        "best": {name: _result_data(result) for name, result in found.best.items()},
    }


def _result_data(result: Result) -> dict[str, Any]:
    return {"value": _plain(result.value), "step": result.step}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
