"""Comparison of several runs: a table, only what differs in config, plan and environment, and where losses part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hookline.report.downsample import Curve, rounded
from hookline.rundir import parting

#: The most metrics that are columns of the table.
MOST_METRICS = 60
#: At most this many of them, if their names show which value is best, come before the config.
FIRST_METRICS = 4
#: Keys of a config that are different in every run.
IGNORED = frozenset({"work_dir"})


def compare(found: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Curve]]) -> dict[str, Any]:
    """Return the comparison as plain data. All lists of values are in the order of the runs."""
    return {
        "table": make_table(found),
        "config": only_different([dict(map(tuple, each["config"])) for each in found], IGNORED),
        "plan": only_different([dict(_hooks_at(each["plan"])) if each["plan"] else {} for each in found]),
        "environment": only_different([dict(map(tuple, each["environment"])) for each in found]),
        "losses": find_partings(found, curves),
    }


def make_table(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one row per run: facts, the best or last value of every metric, and config values that differ."""
    columns: list[dict[str, Any]] = [
        {"name": "run", "kind": "name", "rule": None, "cells": [each["name"] for each in found]},
        {"name": "status", "kind": "fact", "rule": None, "cells": [each["status"] for each in found]},
        {"name": "steps", "kind": "fact", "rule": None, "cells": [each["steps"] for each in found]},
        {"name": "seconds", "kind": "fact", "rule": "less", "cells": [each["seconds"] for each in found]},
    ]
    by_run = [{metric["name"]: metric for metric in each["metrics"]} for each in found]
    names = dict.fromkeys(name for metrics in by_run for name in metrics)
    ranked = sorted(names, key=lambda name: _rank(next(each[name] for each in by_run if name in each)))
    metrics = []
    for name in ranked[:MOST_METRICS]:
        some = next(each[name] for each in by_run if name in each)
        cells = [_value(each.get(name)) for each in by_run]
        metrics.append({"name": name, "kind": "metric", "rule": some["rule"], "cells": cells})
    configs = [
        {"name": row["key"], "kind": "config", "rule": None, "cells": row["values"]}
        for row in only_different([dict(map(tuple, each["config"])) for each in found], IGNORED)
    ]
    first = sum(each["rule"] is not None for each in metrics[:FIRST_METRICS])
    return {"columns": [*columns, *metrics[:first], *configs, *metrics[first:]]}


def _rank(metric: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    """Return a sort key: metrics of evaluations first, times last."""
    return metric["kind"] in ("time", "rate"), metric["stage"] not in ("val", "test"), metric["rule"] is None


def _value(metric: Mapping[str, Any] | None) -> float | None:
    """Return the best value of a metric, or its last one if its name does not show which one is best."""
    if metric is None:
        return None
    chosen = metric["best"] or metric["last"]
    return None if chosen is None else chosen[1]


def only_different(found: Sequence[Mapping[str, Any]], ignored: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Return the keys whose values differ, with the value of every run; None where a run lacks the key.

    Runs that have nothing at all (no config was recorded) are not compared.
    """
    known = [each for each in found if each]
    rows = []
    for key in dict.fromkeys(key for each in known for key in each):
        values = [each.get(key) for each in found]
        compared = [each.get(key) for each in known]
        if key not in ignored and any(value != compared[0] for value in compared):
            rows.append({"key": key, "values": values})
    return rows


def _hooks_at(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every point of a plan and its hooks in order, as text."""
    name = f"around_{tree['scope']}" if "scope" in tree else tree["point"]
    hooks = tree["around"] if "scope" in tree else tree["hooks"]
    if hooks:
        yield name, ", ".join(f"{hook['name']} ({hook['every']})" for hook in hooks)
    for child in tree.get("children", ()):
        yield from _hooks_at(child)


def find_partings(found: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Curve]]) -> list[dict[str, Any]]:
    """Return, for every run after the first, the first step at which its loss differs from the first run's loss."""
    name = found[0]["loss"]
    return [
        {"run": each["id"], "metric": name, **_part(curves[0].get(name), own.get(name)), "bits": _bits(found[0], each)}
        for each, own in zip(found[1:], curves[1:], strict=True)
        if name is not None
    ]


def _bits(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return until which step two runs are equal to the bit, as `hookline diff` says it; None if that is unknown."""
    found = parting.find(Path(one["path"]), Path(other["path"]))
    return found.line if any(found.compared) else None


def _part(one: Curve | None, other: Curve | None) -> dict[str, Any]:
    """Return the first step at which two curves differ, their values there, and how many steps were compared."""
    if one is None or other is None or not one.exact or not other.exact:
        return {"step": None, "values": [], "compared": 0}
    steps, at_one, at_other = np.intersect1d(*(_column(each, 0) for each in (one, other)), return_indices=True)
    values, others = _column(one, 1)[at_one], _column(other, 1)[at_other]
    differs = ~((values == others) | (np.isnan(values) & np.isnan(others)))
    if not differs.any():
        return {"step": None, "values": [], "compared": len(steps)}
    first = int(np.argmax(differs))
    both = [float(values[first]), float(others[first])]
    return {
        "step": int(steps[first]),
        "values": [rounded(each, 9) if math.isfinite(each) else None for each in both],
        "compared": len(steps),
    }


def _column(curve: Curve, number: int) -> Any:
    return np.concatenate([each[number] for each in curve.exact])
