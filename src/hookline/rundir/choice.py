"""Choosing one checkpoint of a run: the best one, or else the last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hookline.checkpoint.names import safe_file_name
from hookline.common.escape import escaped
from hookline.common.monitor import infer_rule
from hookline.common.numbers import as_number
from hookline.errors import ConfigError, StorageError, did_you_mean
from hookline.rundir.runs import read_checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline.rundir.runs import Checkpoint, Run


#: The end of the name of a published copy, which has only some entries of the checkpoint.
PUBLISHED = re.compile(r"-[0-9a-f]{8}\.(pth|dcp)$")


class Choice(NamedTuple):
    """A checkpoint, and why it was chosen."""

    path: Path
    reason: str


def choose(run: Run, metric: str = "", last: bool = False) -> Choice:
    """Return the best checkpoint of a run, or the last one if there is no best one or if `last` asks for it.

    If the run has best checkpoints for several metrics, `metric` chooses one. Without it, it is the first one that
    `save_best` names.
    """
    checkpoints = [*run.checkpoints, *(each for folder in _more_folders(run) for each in read_checkpoints(folder))]
    checkpoints = [each for each in checkpoints if not PUBLISHED.search(each.path.name)]
    if not checkpoints:
        raise StorageError(f"{run.path} has no checkpoint yet")
    best: dict[str, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        if checkpoint.is_best:  # the metric is unknown if the names have a template
            best.setdefault(checkpoint.metric or "", []).append(checkpoint)
    if metric and safe_file_name(metric) not in best:
        raise ConfigError(f"{run.path} has no best checkpoint for '{metric}'; {did_you_mean(metric, best)}")
    if last or not best:
        newest = _newest_intact(run, checkpoints)
        why = "the last checkpoint" if last else "the last checkpoint, because the run saved no best one (save_best)"
        return Choice(newest.path, why)
    label = safe_file_name(metric) if metric else _first_of(run, list(best))
    others = [each for each in best if each != label]
    names = [escaped(_metric_of(run, each)) for each in others]
    hint = f"; for another one, use --best {' or --best '.join(names)}" if others and not metric else ""
    chosen, value = _best_of(run, label, best[label])
    which = f" for {escaped(_metric_of(run, label))}" if label else ""
    return Choice(chosen.path, f"the best checkpoint{which}{value}{hint}")


def last_regular(newest: Path) -> Path | None:
    """Return the last checkpoint that was not saved as best, if `newest` is the newest one of its folder.

    The newest one is often the best: the validation of an epoch comes after its regular save.
    """
    checkpoints = [
        checkpoint for checkpoint in read_checkpoints(newest.parent) if not PUBLISHED.search(checkpoint.path.name)
    ]
    names = {checkpoint.path.name: checkpoint for checkpoint in checkpoints}
    if newest.name not in names or not names[newest.name].is_best:
        return newest
    return next((checkpoint.path for checkpoint in reversed(checkpoints) if not checkpoint.is_best), None)


def _best_of(run: Run, label: str, candidates: Sequence[Checkpoint]) -> tuple[Checkpoint, str]:
    """Return the best of the checkpoints for one metric, by the records, and its value as text.

    Without records or a rule for the metric, it is the newest one: it was better than an earlier one when it was saved.
    """
    name = next((metric for metric in run.metrics.names if metric == f"val/{label}" or _label(metric) == label), None)
    rule = _rule_of(run, label, name)
    values = {}
    for number, checkpoint in enumerate(candidates):
        if name is not None and checkpoint.step is not None:
            steps, recorded = run.metrics.series(name)
            at = np.flatnonzero((steps == checkpoint.step) & np.isfinite(recorded))
            if len(at):
                values[number] = float(recorded[at[-1]])
    if len(values) < len(candidates) or rule is None:
        newest = len(candidates) - 1
        shown = f" ({as_number(values[newest])})" if newest in values else ""
        return candidates[newest], f"{shown}, the newest of {len(candidates)}" if newest else shown
    number = (max if rule == "greater" else min)(values, key=values.__getitem__)
    return candidates[number], f" ({as_number(values[number])})"


def _metric_of(run: Run, label: str) -> str:
    """Return the metric that a label in the name of a file stands for: `clean/accuracy` for `clean_accuracy`."""
    names = [name.removeprefix("val/") for name in run.metrics.names if name.startswith("val/")]
    return next((name for name in names if safe_file_name(name) == label), label)


def _label(name: str) -> str:
    return safe_file_name(name.removeprefix("val/"))


def _rule_of(run: Run, label: str, name: str | None) -> str | None:
    """Return the rule of a metric: the config's, if it has one for all metrics; otherwise, the name decides."""
    settings = _settings(run)
    rule = settings.get("rule")
    names = settings.get("save_best")
    if isinstance(rule, str):
        return rule
    if isinstance(rule, list) and isinstance(names, list) and len(rule) == len(names):
        by_label = {safe_file_name(str(metric)): str(direction) for metric, direction in zip(names, rule, strict=True)}
        return by_label.get(label)
    return infer_rule(name or label, settings.get("greater_keys"), settings.get("less_keys"))


def _first_of(run: Run, labels: Sequence[str]) -> str:
    """Return the metric that `save_best` names first, of those that have a checkpoint."""
    names = _settings(run).get("save_best")
    named = [safe_file_name(str(metric)) for metric in (names if isinstance(names, list) else [names])]
    return next((label for label in named if label in labels), labels[0])


def _settings(run: Run) -> dict[str, Any]:
    """Return the parameters of CheckpointHook in the config of the run, as far as they are there."""
    hooks = run.config.get("default_hooks") if run.has_config else None
    settings = hooks.get("checkpoint") if isinstance(hooks, dict) else None
    return settings if isinstance(settings, dict) else {}


def _more_folders(run: Run) -> list[Path]:
    """Return the folder of `out_dir`, where CheckpointHook may have saved instead."""
    out_dir = _settings(run).get("out_dir")
    folder = Path(out_dir) / run.path.resolve().name if isinstance(out_dir, str) else None
    return [folder] if folder is not None and folder.is_dir() else []


def _newest_intact(run: Run, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    usable = [checkpoint for checkpoint in checkpoints if not checkpoint.is_best] or list(checkpoints)
    for checkpoint in reversed(usable):
        if checkpoint.is_intact():
            return checkpoint
    damage = "\n  ".join(f"{checkpoint.path}: {checkpoint.damage()}" for checkpoint in usable)
    raise StorageError(f"{run.path} has no intact checkpoint:\n  {damage}")
