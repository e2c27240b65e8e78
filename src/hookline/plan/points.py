"""The points of the loop: the one table of where hooks are called, with what, and in which order.

A scope (`┌ name`) is a piece of work that an `around_<name>` surrounds; the lines in it are points, called in this
order. What is marked happens only where the mark says so: `*` again and again, `?` when it is due.

    train(), by epochs
    ┌ run
    │   before_run
    │   after_load_checkpoint ?             resuming, or load_from
    │   ┌ train
    │   │   before_train
    │   │   > validation ?                  val_begin=0, or a killed run still owes it
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
    │   │   │   > validation ?              val_begin=0, or a killed run still owes it
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
    before_save_checkpoint ?                asked for in the epoch's last points; the counters have moved on
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
    before_save_checkpoint ?                asked for in the iteration; the counters have moved on
    > validation ?                          asked for; by iterations, every val_interval, and after the last

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
    before_save_checkpoint ?                asked for in the validation: a best one

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

When anything fails, the scopes that were entered are left in reverse with the error thrown in, `after_` points of
unfinished work are not called, and `on_exception` is called once, just before the scope `run` is left. A test compares
this drawing with recorded runs.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from hookline.errors import HookError, did_you_mean

# What `every=10` counts at a point: iterations, epochs, batches of an evaluation, validations, optimizer steps.
Unit = Literal["iteration", "epoch", "batch", "validation", "update"]


@dataclass(frozen=True)
class Point:
    """A named place in the loop: the arguments it gives besides the runner, and what `every` counts there."""

    name: str
    arguments: tuple[str, ...] = ()
    counts: Unit | None = None
    # Taken from the runner when each hook is called, because a hook before it may have put another one there.
    live: frozenset[str] = frozenset()
    # Of a scope: left in the order in which it was entered, and not in reverse.
    left_in_order: bool = False
    # What notes on errors call it, where its users know it by another name.
    known_as: str = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(('runner', *self.arguments))})"


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


# In the order in which a run comes across them.
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

# A scope gives an `around_` what its `before_` point gives.
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
    """Check and make a user's own point; `every` counts iterations there."""
    if name in known:
        raise HookError(f"the point '{name}' exists already: {known[name]}")
    arguments = arguments if isinstance(arguments, str) else tuple(arguments)
    if isinstance(arguments, str) or not all(isinstance(argument, str) for argument in arguments):
        raise HookError(f"the arguments of the point '{name}' must be a tuple of names, not {arguments!r}")
    for word in (name, *arguments):
        if not word.isidentifier() or keyword.iskeyword(word):
            raise HookError(f"the point '{name}' needs names that Python allows, and '{word}' is not one")
    if name.startswith("around_"):
        raise HookError(f"'{name}' cannot be a point: names with 'around_' surround scopes; call it 'before_...'")
    if len(set(arguments)) != len(arguments) or "runner" in arguments:
        raise HookError(f"the arguments of the point '{name}' must differ and leave out 'runner': {arguments}")
    return Point(name, tuple(arguments), "iteration")


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The point that a name misspells, where people may have points of their own; None for a name of one's own.

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
    """The message about a name that is no point."""
    return f"'{name}' is no point of the loop; {did_you_mean(name, known)}"
