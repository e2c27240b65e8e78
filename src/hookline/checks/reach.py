"""Reports of what a run never reaches: hooks, frequencies and intervals that would silently do nothing.

`Lengths` says how often a run does each thing. A hook shows what it waits for: by the frequencies of its methods, or,
if it has its own counter, by its milestones (`must_reach`). Everything is compared with the whole run, so a resumed run
reports the same. If a length is unknown, as for a stream, nothing is reported.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from hookline.engine.loop_specs import TrainLoop
from hookline.plan.entry import is_custom
from hookline.plan.hook import BaseHook
from hookline.plan.matching import function_of
from hookline.plan.milestones import quantity

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.run import Run
    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry
    from hookline.plan.milestones import Milestone

log = logging.getLogger("hookline")

#: A point or scope of an evaluation.
OF_EVALUATION = re.compile(r"(?:before|after|around)_(val|test)(?:_epoch|_iter)?")
#: The points and scopes at which a hook can still do what its frequency has not let it do.
AT_THE_END = {
    *("after_train_epoch", "after_train", "after_run"),
    *("around_train_epoch", "around_train", "around_run"),
}
ADD_EVALUATION = {
    "val": "no validation; add `val` to the Runner or to the config, or remove the hook",
    "test": "no test; add `test` to the Runner or to the config, or remove the hook",
}


@dataclass(frozen=True)
class Lengths:
    """The number of times that a run does each thing, from its first step to its last; None if it is unknown."""

    #: The training loop; in a dry run, as it was before it was shortened.
    loop: TrainLoop
    update: int | None
    validation: int | None
    #: The number of batches of the longest data set, by stage.
    batches: Mapping[str, int | None]
    #: The stages that this run can evaluate.
    stages: frozenset[str]
    #: True if a hook of the user may request more validations.
    may_validate_more: bool

    @classmethod
    def of(cls, runner: Run) -> Lengths:
        """Return the lengths of a run; in a dry run, the lengths of the real run."""
        loop = runner.train_loop.planned
        evaluations = {"val": runner.val_loops, "test": runner.test_loops}
        stages = {stage for stage, loops in evaluations.items() if loops}
        more = mentions(runner, "request_val")
        return cls(
            loop=loop,
            update=_updates(runner, loop),
            validation=None if runner.validates_itself else _validations(loop, more) if runner.val_loops else 0,
            batches={stage: _longest(loops) for stage, loops in evaluations.items()},
            stages=frozenset(stages | {"val"} if runner.may_validate else stages),
            may_validate_more=more,
        )

    @property
    def whole_epochs(self) -> int | None:
        """Return the number of passes over the data that end. Training by iterations may end inside a pass."""
        if self.loop.max_iters is None or self.loop.by_epoch:
            return self.loop.max_epochs
        return (self.loop.places or 0) // self.loop.length if self.loop.length else None

    def count(self, unit: str) -> int | None:
        """Return how many of a unit there are. An epoch is a pass over the data, even one that does not end."""
        validations = self.validation
        found = {
            "iteration": self.loop.total_iters,
            "epoch": self.loop.total_passes if not self.loop.by_epoch else self.loop.max_epochs,
            "update": self.update,
            "validation": validations,
            "test": int("test" in self.stages),
            "evaluation": None if validations is None else validations + ("test" in self.stages),
        }
        return found[unit]


def _longest(loops: Mapping[str, EvalLoop]) -> int | None:
    lengths = [loop.planned.length for loop in loops.values()]
    known = [length for length in lengths if length is not None]
    return max(known) if known and len(known) == len(lengths) else None


def _updates(runner: Run, loop: TrainLoop) -> int | None:
    """Return the number of optimizer steps of the optim that makes the most of them, if no batch is skipped."""
    if loop.updates_itself or loop.total_iters is None or not runner.optims:
        return None
    return loop.updates(min(optim.accumulate for optim in runner.optims.values()))


def _validations(loop: TrainLoop, more: bool) -> int | None:
    """Return the number of validations, unless a hook may request more, or the loop has its own rule for them."""
    its_own = type(loop).validation_due is not TrainLoop.validation_due
    return None if more or its_own else loop.total_validations


def mentions(runner: Run, name: str) -> bool:
    """Return whether the code of a user's hook uses an attribute of this name, in any of its methods."""
    custom = [entry.hook for entry in runner.plan if is_custom(entry.hook)]
    different = {type(hook) if isinstance(hook, BaseHook) else id(hook): hook for hook in custom}  # by their code
    return any(name in names_in(hook) for hook in different.values())


def names_in(thing: Any) -> set[str]:
    """Return the names that the code of a function, or of an object's methods, uses."""
    methods = [each for cls in type(thing).__mro__ for each in vars(cls).values()]
    codes = [getattr(function_of(each), "__code__", None) for each in [thing, *methods] if callable(each)]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            found.update(code.co_names)
            codes += code.co_consts  # nested functions
    return found


def report_unreached(runner: Run) -> None:
    """Warn about everything that this run never reaches, with one line for each hook."""
    lengths = Lengths.of(runner)
    for entry in runner.plan:
        declared = getattr(entry.hook, "must_reach", None)
        milestones = declared(runner.plan.host) if declared is not None else None
        if milestones is not None:
            text = unreached(list(milestones), lengths)
            texts = [f"{entry.name}: {text}"] if text else []
        elif runner.strict_start:
            texts = list(never_called(entry, lengths))
        else:
            texts = []
        for text in texts:
            log.warning("%s", text)
    if runner.strict_start:
        report_validation(lengths)


def unreached(milestones: list[Milestone], lengths: Lengths) -> str:
    """Describe the milestones if a run reaches none of them; return an empty string if it does."""
    counts = [(each, lengths.count(each.unit)) for each in milestones]
    short = [(each, count) for each, count in counts if count is not None and count < each.needed]
    if not short or len(short) < len(counts):
        return ""
    found = ", and ".join(each.describe(count) for each, count in short)
    return f"{found}, so {milestones[0].effect}; {short[0][0].advise(short[0][1])}"


def never_called(entry: Entry, lengths: Lengths) -> Iterator[str]:
    """Yield a text for each method of a hook that this run never calls."""
    calls = [call for call in entry.calls if call.point.name not in entry.idle_everywhere]
    stages = [found[1] for call in calls if (found := OF_EVALUATION.fullmatch(call.point.name))]
    if stages and len(stages) == len(calls) and lengths.stages.isdisjoint(stages):
        yield f"{entry.name} is never called, because this run has {ADD_EVALUATION[stages[0]]}"
        return
    if any(call.point.name in AT_THE_END and call.every is None for call in calls):
        return
    for call in calls:
        if call.every is not None and (why := never_due(call, lengths, _name_of_frequency(entry.hook))):
            method = "" if call.method is entry.hook else f".{call.place}"
            at = "" if method else f" at {call.place}"
            yield f"{entry.name}{method} is never called{at}: {why}"


def _name_of_frequency(hook: Any) -> str:
    """Return the parameter that sets how often a hook is called: most hooks have an `interval`."""
    return "interval" if "interval" in getattr(type(hook).__init__, "__annotations__", {}) else "every"


def never_due(call: Call, lengths: Lengths, parameter: str = "every") -> str:
    """Return why the frequency of a method is never due; an empty string if it is, or if that is unknown."""
    every, unit, loop = call.every, call.point.counts, lengths.loop
    assert every is not None
    assert unit is not None, "the plan refuses a frequency at a point that counts nothing"
    often = f"{parameter}={every.n}" if not every.by_epoch else f"{parameter}='{every.n}ep'"
    found = OF_EVALUATION.fullmatch(call.point.name)
    stage = found[1] if found else ""
    if stage and stage not in lengths.stages:  # a hook may have methods for stages that a run does not have
        return ""
    if unit == "epoch" and not loop.by_epoch:
        return "" if every.n == 1 else f"{often} counts epochs, but training by iterations calls this point only once"
    if every.by_epoch and stage:
        due = stage == "test" or lengths.may_validate_more or _validates_at_multiple(loop, every.n)
        return "" if due else f"{often}, but this run validates after no such epoch"
    if every.by_epoch:
        unit, highest = "epoch", lengths.whole_epochs
    else:
        highest = lengths.batches[stage] if unit == "batch" else lengths.count(unit)
    if highest is None or every.n <= highest:
        return ""
    where = f"the longest data set of {stage}" if unit == "batch" else "this run"
    lower = f"; use {parameter}={highest} or less" if highest and not every.by_epoch else ""
    return f"{often}, but {where} has {quantity(highest, unit)}{lower}"


def _validates_at_multiple(loop: TrainLoop, number: int) -> bool:
    """Return whether a validation follows an epoch that is a multiple of a number, or may do so."""
    if not loop.by_epoch or loop.max_epochs is None or loop.val_begin == 0:
        return True
    common = math.lcm(number, loop.val_interval)
    return loop.max_epochs % number == 0 or loop.max_epochs // common > (loop.val_begin - 1) // common


def report_validation(lengths: Lengths) -> None:
    """Warn about an interval or a begin of validation that the user has set, and that has no effect."""
    loop = lengths.loop
    unit, end = ("epoch", loop.max_epochs) if loop.by_epoch else ("iteration", loop.max_iters)
    for name in loop.set_for_validation:
        value = getattr(loop, name)
        if "val" not in lengths.stages:
            log.warning("train: %s=%s has no effect, because this run has no validation", name, value)
        elif end is not None and value > end:
            log.warning(
                "train: %s=%s is never reached, because this run has %s, so it validates only at its end; set %s to at "
                "most %s, or train longer",
                *(name, value, quantity(end, unit), name, end),
            )
