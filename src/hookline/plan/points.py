"""The points of the loop: one table of where hooks are called, in which order and with which arguments.

A scope (`┌ name`) is a piece of work that an `around_<name>` method surrounds. The lines in it are points, called in
this order. `*` marks what repeats, and `?` marks what happens only when it is due.

    train(), by epochs
    ┌ run
    │   before_run
    │   after_load_checkpoint ?             resuming, or load_from
    │   ┌ train
    │   │   before_train
    │   │   > validation ?                  val_begin=0, or a killed run missed it
    │   │   > epoch *
    │   │   after_train
    │   │   before_save_checkpoint ?        save_last, when training was stopped early
    │   └
    │   after_run
    └

    train(), by iterations
    ┌ run
    │   before_run
    │   after_load_checkpoint ?
    │   ┌ train
    │   │   before_train
    │   │   ┌ train_epoch                   once, around all passes over the data
    │   │   │   before_train_epoch
    │   │   │   > validation ?              val_begin=0, or a killed run missed it
    │   │   │   > iteration *
    │   │   │   after_train_epoch
    │   │   └
    │   │   after_train
    │   │   before_save_checkpoint ?
    │   └
    │   after_run
    └

    epoch
    ┌ train_epoch
    │   before_train_epoch
    │   > iteration *
    │   after_train_epoch
    └
    before_save_checkpoint ?                requested at the end of the epoch; the counters are already advanced
    > validation ?                          every val_interval epochs, and after the last

    iteration
    ┌ train_iter
    │   before_train_iter                   may replace the batch: runner.data_batch = ...
    │   ┌ forward                           your step
    │   └
    │   ┌ backward
    │   │   before_backward                 may replace the loss: outputs["loss"] = ...
    │   │   after_backward
    │   └
    │   ┌ optimizer_step ?                  where an accumulation window ends
    │   │   before_optimizer_step           gradients complete and unscaled, not yet clipped
    │   │   after_optimizer_step            gradients still there
    │   └
    │   after_train_iter
    └
    before_save_checkpoint ?                requested in the iteration; the counters are already advanced
    > validation ?                          requested; by iterations, every val_interval, and after the last

    validation
    ┌ val
    │   before_val
    │   ┌ val_epoch
    │   │   before_val_epoch
    │   │   ┌ val_iter *
    │   │   │   before_val_iter
    │   │   │   ┌ forward
    │   │   │   └
    │   │   │   after_val_iter
    │   │   └
    │   │   after_val_epoch
    │   └
    │   after_val
    └
    before_save_checkpoint ?                requested in the validation: a best checkpoint

    val()
    ┌ run
    │   before_run
    │   after_load_checkpoint ?
    │   > validation
    │   after_run
    └

    test()
    ┌ run
    │   before_run
    │   after_load_checkpoint ?
    │   ┌ test
    │   │   before_test
    │   │   ┌ test_epoch
    │   │   │   before_test_epoch
    │   │   │   ┌ test_iter *
    │   │   │   │   before_test_iter
    │   │   │   │   ┌ forward
    │   │   │   │   └
    │   │   │   │   after_test_iter
    │   │   │   └
    │   │   │   after_test_epoch
    │   │   └
    │   │   after_test
    │   └
    │   after_run
    └

When anything fails, the scopes that were entered are left in reverse, with the error thrown into them. The `after_`
points of unfinished work are not called. `on_exception` is called once, just before the scope `run` is left. A test
compares this drawing with recorded runs.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from hookline.errors import HookError, did_you_mean
from hookline.plan.known_elsewhere import point_elsewhere

# The unit of `every=10` at a point: iterations, epochs, batches of an evaluation, validations, optimizer steps.
Unit = Literal["iteration", "epoch", "batch", "validation", "update"]


@dataclass(frozen=True)
class Point:
    """A named place in the loop, with its arguments besides the runner and the unit that `every` counts there."""

    name: str
    arguments: tuple[str, ...] = ()
    counts: Unit | None = None
    # Arguments that are read from the runner for each hook, because an earlier hook may have replaced them.
    live: frozenset[str] = frozenset()
    # Only for scopes: leave the hooks in the order in which they were entered, not in reverse.
    left_in_order: bool = False
    # The name to use in notes on errors, if users know the point by another name.
    known_as: str = ""

    def __str__(self) -> str:
        return f"{self.known_as or self.name}({', '.join(('runner', *self.arguments))})"


BATCH = ("batch_idx", "data_batch")
LIVE_BATCH = frozenset({"data_batch"})


def _evaluation(stage: str) -> list[Point]:
    counts: Unit | None = "validation" if stage == "val" else None
    return [
        Point(f"before_{stage}", (), counts),
        Point(f"before_{stage}_epoch", (), counts),
        Point(f"before_{stage}_iter", BATCH, "batch", LIVE_BATCH),
        Point(f"after_{stage}_iter", (*BATCH, "outputs"), "batch"),
        Point(f"after_{stage}_epoch", ("metrics",), counts),
        Point(f"after_{stage}", (), counts),
    ]


# In the order in which a run reaches them.
POINTS: dict[str, Point] = {
    point.name: point
    for point in [
        Point("before_run"),
        Point("after_load_checkpoint", ("checkpoint",)),
        Point("before_train"),
        Point("before_train_epoch", (), "epoch"),
        Point("before_train_iter", BATCH, "iteration", LIVE_BATCH),
        Point("before_backward", ("outputs",), "iteration"),
        Point("after_backward", ("outputs",), "iteration"),
        Point("before_optimizer_step", (), "update"),
        Point("after_optimizer_step", (), "update"),
        Point("after_train_iter", (*BATCH, "outputs"), "iteration"),
        Point("after_train_epoch", (), "epoch"),
        *_evaluation("val"),
        Point("before_save_checkpoint", ("checkpoint",)),
        Point("after_train"),
        *_evaluation("test"),
        Point("on_exception", ("error",)),
        Point("after_run"),
    ]
}

# An `around_` method has the arguments of the `before_` point of its scope.
SCOPES: dict[str, Point] = {
    f"around_{scope.name}": Point(f"around_{scope.name}", scope.arguments, scope.counts)
    for scope in [
        Point("run"),
        Point("train"),
        Point("train_epoch", (), "epoch"),
        Point("train_iter", BATCH, "iteration"),
        Point("forward", ("data_batch",), "iteration"),
        Point("backward", ("outputs",), "iteration"),
        Point("optimizer_step", (), "update"),
        Point("val", (), "validation"),
        Point("val_epoch", (), "validation"),
        Point("val_iter", BATCH, "batch"),
        Point("test"),
        Point("test_epoch"),
        Point("test_iter", BATCH, "batch"),
    ]
}

PREFIXES = ("before_", "after_", "around_", "on_")


def user_point(name: str, arguments: Iterable[str], known: Mapping[str, Point] = POINTS | SCOPES) -> Point:
    """Check and create a custom point. `every` counts iterations there."""
    if name in known:
        raise HookError(f"the point '{name}' already exists: {known[name]}")
    arguments = arguments if isinstance(arguments, str) else tuple(arguments)
    if isinstance(arguments, str) or not all(isinstance(argument, str) for argument in arguments):
        raise HookError(f"the arguments of the point '{name}' must be a tuple of names, not {arguments!r}")
    for word in (name, *arguments):
        if not word.isidentifier() or keyword.iskeyword(word):
            raise HookError(f"the point '{name}' needs valid Python names, and '{word}' is not one")
    if name.startswith("around_"):
        raise HookError(
            f"'{name}' cannot be a point: names that begin with 'around_' belong to scopes; call it 'before_...'"
        )
    if len(set(arguments)) != len(arguments) or "runner" in arguments:
        raise HookError(f"the arguments of the point '{name}' must be different names, without 'runner': {arguments}")
    return Point(name, tuple(arguments), "iteration")


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Return the point that a name misspells; None for a name that differs enough to be a custom point.

    >>> near_miss("before_trian", POINTS), near_miss("after_trainepoch", POINTS), near_miss("after_train_step", POINTS)
    ('before_train', 'after_train_epoch', None)
    """
    words = name.lower().split("_")
    for point in known:
        others = point.split("_")
        joined = SequenceMatcher(None, "".join(words), "".join(others)).ratio()
        pairs = [SequenceMatcher(None, one, other).ratio() for one, other in zip(words, others, strict=False)]
        if joined >= 0.9 or (len(words) == len(others) > 1 and min(pairs) >= 0.7):
            return point
    return None


def unknown_point(name: str, known: dict[str, Point]) -> str:
    """Return the message about an unknown point."""
    return f"unknown point '{name}'; {point_elsewhere(name, known) or did_you_mean(name, known)}"
