"""Names of metrics: which of them belong into one chart, and what they measure."""

from __future__ import annotations

import re
from typing import NamedTuple

#: Words for the stages of a run, as hookline and other programs write them at the beginning or the end of a name.
STAGES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_FIRST = re.compile(r"^([A-Za-z]+)[/_.](.+)$", re.DOTALL)
_LAST = re.compile(r"^(.+)[/]([A-Za-z]+)$", re.DOTALL)
RATES = re.compile(r"(^|[/_.\-])(lr|learning_rate|lr-\w+|base_lr)([/_.\-]|$)", re.IGNORECASE)
TIMES = re.compile(r"(^|[/_.])(data_time|time|step_time|iter_time)$")

Kind = str


class Place(NamedTuple):
    """The place of a metric on a page: the chart, the stage, and the kind of chart."""

    chart: str
    stage: str
    kind: Kind


def place_of(name: str) -> Place:
    """Return the chart of a metric, its stage (empty if unknown), and its kind: `rate`, `time`, `loss` or `metric`.

    >>> place_of("train/loss"), place_of("val_acc")
    (Place(chart='loss', stage='train', kind='loss'), Place(chart='acc', stage='val', kind='metric'))
    """
    chart, stage = name, ""
    first, last = _FIRST.match(name), _LAST.match(name)
    if first and first[1].lower() in STAGES:
        stage, chart = STAGES[first[1].lower()], first[2]
    elif last and last[2].lower() in STAGES:
        stage, chart = STAGES[last[2].lower()], last[1]
    if RATES.search(name):
        kind = "rate"
    elif TIMES.search(name):
        kind = "time"
    elif chart.lower().rpartition("/")[2].endswith("loss"):
        kind = "loss"
    else:
        kind = "metric"
    return Place(chart, stage, kind)


def find_loss(names: list[str]) -> str | None:
    """Return the name of the training loss; None if there is none.

    >>> find_loss(["train/aux_loss", "val/loss", "train/loss"]), find_loss(["val/loss"])
    ('train/loss', 'val/loss')
    """
    for wanted in ("train/loss", "loss", "train_loss", "loss/train", "training_loss"):
        if wanted in names:
            return wanted
    losses = [name for name in names if place_of(name).kind == "loss"]
    return next((name for name in losses if place_of(name).stage in ("train", "")), next(iter(losses), None))
