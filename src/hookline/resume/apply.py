"""Decisions of a resume: refuse to go on without one, and put the choices into effect after the load.

A resume loads the checkpoint as it is. `apply` then changes what the config wins: rates, options, schedules, lengths.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.common.escape import escaped
from hookline.data.skipping import parse_skip
from hookline.errors import ConfigError
from hookline.optim import retiming
from hookline.optim.nesting import walk
from hookline.optim.schedules import after_end
from hookline.resume.compare import Difference, auto_of, changed_lengths, changed_schedule, keeps_length, show

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.optim.optim import Optim
    from hookline.optim.scheduled import Scheduled
    from hookline.resume.report import Resumption
    from hookline.run.keep import Keep

#: The beginning of the message about a schedule that can no longer be stretched.
AT_END = "the curve is at its end"

#: The options of a parameter group that belong to its learning rate.
RATES = ("initial_lr", "max_lr", "min_lr")

#: The lengths of schedules that differ: then and now, by the name of the parameter.
Lengths = dict[str, tuple[int, int]]


def refuse_other_skips(found: Resumption, position: Mapping[str, Any]) -> None:
    """Refuse to leave out other batches than the run did before its checkpoint: its place in the data would change."""
    chosen = [side.get("asked", {}).get("skip") for side in (found.then, found.now)]
    if not any(chosen):
        return
    then, now = map(parse_skip, chosen)
    length, others = found.then.get("batches"), found.now["batches"]
    if length != others or not length:
        raise ConfigError(
            f"{found.path}: skip counts the batches of all passes, but a pass has {others} batches here, and had "
            f"{length} when the checkpoint was saved; resume with the same data, batch size and limit_batches"
        )
    epoch, batch = position["epoch"], position["batch"]
    place = epoch * length + (then.of_pass(epoch, length).place(batch - 1) + 1 if batch else 0)
    where = f"the checkpoint is after batch {place} of the data"
    if missing := then.before(place).without(now):
        raise ConfigError(f"{found.path}: {where}, and the run left out batch {missing} before; add it to skip")
    if trained := now.before(place).without(then):
        raise ConfigError(
            f"{found.path}: {where}, so the run has trained with batch {trained} already, and cannot leave it out; "
            "remove it from skip, or resume from an earlier checkpoint"
        )


def refuse_undecided(runner: Run, found: Resumption, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to resume if only the user can decide how a schedule continues, or if the choice is not possible."""
    if not any(each.key == "schedule" for each in found.differences):
        return
    blocked = list(_not_stretchable(runner, found, checkpoint))
    restart = f"\n  to begin a new curve with these weights, start a new run with load_from={found.path}"
    so = _after_end(runner, found)
    if found.winner("schedule") == "config" and blocked:
        raise ConfigError(
            f"{found.hint('schedule=config')} is not possible: {blocked[0]}; nothing was loaded"
            + (restart if AT_END in blocked[0] else "")
            + f"\n  to continue the old curve{so}: {found.hint('schedule=checkpoint')}"
        )
    if found.winner("schedule") == "config":
        found.differences = [_with_stretch(each, runner, found, checkpoint) for each in found.differences]
    undecided = [each for each in found.differences if each.winner == "undecided"]
    if not undecided:
        return
    old, new = found.hint("schedule=checkpoint"), found.hint("schedule=config")
    length = [
        f"{each.what} {show(each.checkpoint)} -> {show(each.config)}"
        for each in found.differences
        if each.key in ("max_epochs", "max_iters", "accumulate", "batch_size", "samples", "batches")
    ]
    why = f" ({', '.join(length)})" if length else ""
    stretched = f" not possible: {blocked[0]}" if blocked else _describe_all(undecided, runner, found, checkpoint)
    raise ConfigError(
        f"{found.path}: the length of training has changed{why}, and so has the length of a schedule with 'auto'; "
        "decide how the learning rate continues:\n  "
        + "\n  ".join(each.line(found.hint).partition(": undecided")[0] for each in undecided)
        + f"\n  {old}  to continue the old curve, which keeps its length{so}"
        + f"\n  {new}  to stretch the rest of the curve:{stretched}"
        + (restart if AT_END in stretched else "")
        + "\n  nothing was loaded"
    )


def _with_stretch(each: Difference, runner: Run, found: Resumption, checkpoint: Mapping[str, Any]) -> Difference:
    """Add what happens to the rate to a difference whose new length wins."""
    is_stretched = each.schedule in [(name, index) for name, index, _, _ in _stretched(runner, found)]
    return replace(each, why=_describe_stretch([each], runner, found, checkpoint)) if is_stretched else each


def _describe_all(undecided: list[Difference], runner: Run, found: Resumption, checkpoint: Mapping[str, Any]) -> str:
    """Describe what happens to the rate if these schedules are stretched, for each optim that has one."""
    by_optim: dict[str, list[Difference]] = {}
    for each in undecided:
        by_optim.setdefault(_optim_of(each), []).append(each)
    texts = {name: _describe_stretch(own, runner, found, checkpoint) for name, own in by_optim.items()}
    if len(texts) == 1:
        return f" {next(iter(texts.values()))}"
    return "".join(f"\n    optim '{escaped(name)}': {text}" for name, text in texts.items())


def _optim_of(each: Difference) -> str:
    assert each.schedule is not None, "only schedules ask for a decision"
    return each.schedule[0]


def _describe_stretch(
    schedules: list[Difference], runner: Run, found: Resumption, checkpoint: Mapping[str, Any]
) -> str:
    """Describe what happens to the rate if these schedules, which belong to one optim, are stretched."""
    optim, own = _optim_of(schedules[0]), {each.schedule for each in schedules}
    groups = runner.optims.share_of(optim, checkpoint["optimizer"])["param_groups"]
    rates = ", ".join(dict.fromkeys(f"{float(group['lr']):g}" for group in groups))
    over = all(
        _is_over(runner, checkpoint, name, index, lengths)
        for name, index, _, lengths in _stretched(runner, found)
        if (name, index) in own
    )
    if over:
        return f"{AT_END}, so the rate stays at {rates}"
    return f"the rate continues from {rates} without a jump, and the curve ends with the new length"


def _is_over(runner: Run, checkpoint: Mapping[str, Any], name: str, index: int, lengths: Lengths) -> bool:
    """Return whether a schedule of the checkpoint is at the end of all of its curves."""
    state = _state_of(runner, checkpoint, name, index)
    return all(
        (retiming.saved_parameter(state, _sibling(key, "last_epoch")) or 0) >= then
        for key, (then, _) in lengths.items()
    )


def _after_end(runner: Run, found: Resumption) -> str:
    """Describe the rate after the end of the old curves, if this run reaches it, as a part of a line."""
    texts = [
        after_end(retiming.find(scheduled.scheduler, key)[0])
        for _, _, scheduled, lengths in _stretched(runner, found)
        for key, (then, now) in lengths.items()
        if now > then
    ]
    known = dict.fromkeys(filter(None, texts))
    return f" ({'; '.join(known)})" if known else ""


def _state_of(runner: Run, checkpoint: Mapping[str, Any], name: str, index: int) -> Any:
    return runner.optims.share_of(name, checkpoint["param_schedulers"])[index]


def _sibling(parameter: str, name: str) -> str:
    return f"{parameter.rpartition('.')[0]}.{name}".lstrip(".")


def _stretched(runner: Run, found: Resumption) -> Iterator[tuple[str, int, Scheduled, Lengths]]:
    """Yield the schedules whose lengths differ: optim, number, schedule, and the lengths then and now."""
    for name, index, scheduled, a, b in _schedules(runner, found):
        changed, _ = changed_schedule(a, b)
        lengths = changed_lengths(changed, b)
        if lengths:
            yield name, index, scheduled, lengths


def _schedules(runner: Run, found: Resumption) -> Iterator[tuple[str, int, Scheduled, Any, Any]]:
    old, new = found.then["asked"].get("schedules", {}), found.now["asked"]["schedules"]
    for name, optim in runner.optims.items():
        for index, (scheduled, a, b) in enumerate(zip(optim.schedulers, old.get(name, ()), new[name], strict=False)):
            yield name, index, scheduled, a, b


def _not_stretchable(runner: Run, found: Resumption, checkpoint: Mapping[str, Any]) -> Iterator[str]:
    """Yield why schedules whose lengths differ cannot be stretched, or why a run with them would train nothing."""
    for name, index, scheduled, lengths in _stretched(runner, found):
        before, after = (side["asked"]["schedules"][name][index].get("when") for side in (found.then, found.now))
        if before is not None and before != after:
            yield f"{type(scheduled.scheduler).__name__} stepped per {before}, and now steps per {after}"
        for parameter in lengths:
            scheduler, _ = retiming.find(scheduled.scheduler, parameter)
            if not retiming.can_be_stretched(scheduler):
                who = type(scheduler).__name__
                yield f"the rate of {who} is not a function of its step, so there is no curve to stretch"
        groups = runner.optims.share_of(name, checkpoint["optimizer"])["param_groups"]
        longer = any(now > then for then, now in lengths.values())
        at_0 = not any(float(group["lr"]) for group in groups)
        if longer and at_0 and _is_over(runner, checkpoint, name, index, lengths):
            who = type(scheduled.scheduler).__name__
            yield f"{AT_END}, so the rate of {who} would stay at 0, and nothing would be trained"


# -- applying


@dataclass
class Originals:
    """The values of the config that loading a checkpoint replaces."""

    groups: dict[str, list[dict[str, Any]]]
    schedulers: dict[str, list[list[dict[str, Any]]]]

    @classmethod
    def of(cls, runner: Run) -> Originals:
        """Copy the values of this run before anything is loaded."""
        return cls(
            {
                name: [{key: _copied(value) for key, value in group.items() if key != "params"} for group in groups]
                for name, optim in runner.optims.items()
                for groups in [optim.optimizer.param_groups]
            },
            {
                name: [[dict(vars(each)) for _, each in walk(own.scheduler)] for own in optim.schedulers]
                for name, optim in runner.optims.items()
            },
        )


def apply(runner: Run, found: Resumption, before: Originals, keep: Keep) -> None:
    """Apply the user's choices that differ from the loaded state, and remember them for later resumes."""
    old, asked = found.then.get("asked", {}), copy.deepcopy(dict(found.now["asked"]))
    loop = runner.train_loop
    for key in ("max_epochs", "max_iters"):
        if found.winner(key) == "checkpoint":
            setattr(loop, key, old[key])
            asked[key] = old[key]
    if found.winner("accumulate") == "checkpoint":
        for optim, number in zip(runner.optims.values(), found.then["accumulate"], strict=False):
            optim.accumulate = number
    for name, optim in runner.optims.items():
        if found.winner("lr") == "config":
            _use_rates(optim, before.groups[name])
        elif name in old.get("lr", {}):
            asked["lr"][name] = old["lr"][name]
        if found.winner("optimizer") == "config":
            _use_options(optim, before.groups[name], old["options"].get(name, ()), asked["options"][name])
        elif name in old.get("options", {}):
            asked["options"][name] = old["options"][name]
    _apply_schedules(runner, found, before, asked, keep)
    runner.asked = asked


def _apply_schedules(runner: Run, found: Resumption, before: Originals, asked: dict[str, Any], keep: Keep) -> None:
    wins, as_long = found.winner("schedule") == "config", keeps_length(found.then, found.now, keep)
    for name, index, scheduled, a, b in _schedules(runner, found):
        changed, auto = changed_schedule(a, b)
        if wins:
            if as_long:
                changed = {key: pair for key, pair in changed.items() if key not in auto}
            originals = before.schedulers[name][index]
            _use_parameters(scheduled, changed, b, originals)
            continue
        if isinstance(a.get("when"), str) and a["when"] in ("epoch", "iter", "step", "val"):
            scheduled.when = a["when"]
        kept = asked["schedules"][name][index]
        kept["values"] |= a.get("values", {})
        kept["auto"] |= {key: then for key, (then, _) in auto.items()}
        if auto:
            kept["decided_for"] = auto_of(b)


def _use_rates(optim: Optim, own: list[dict[str, Any]]) -> None:
    """Give the parameter groups the learning rates of the config, at the place where their schedules are."""
    factors = []
    for group, mine in zip(optim.optimizer.param_groups, own, strict=True):
        then, now = (float(each.get("initial_lr", each["lr"])) for each in (group, mine))
        factors.append(now / then if then else None)
        _set(group, "lr", float(group["lr"]) * now / then if then else now)
        for key in RATES:
            if key in mine and key in group:
                group[key] = mine[key]
    for scheduled in optim.schedulers:
        for _, each in walk(scheduled.scheduler):
            # The rest belongs to groups that hooks have added: the config has no rates for them.
            rest = len(factors)
            if hasattr(each, "base_lrs"):
                rates = [_copied(group.get("initial_lr", group["lr"])) for group in optim.optimizer.param_groups]
                each.base_lrs = [*rates, *each.base_lrs[rest:]]
            if hasattr(each, "rates"):  # the rates of a Warmup, without its factor
                rates = [rate * (factor or 1.0) for rate, factor in zip(each.rates, factors, strict=False)]
                each.rates = [*rates, *each.rates[rest:]]
            if hasattr(each, "_last_lr"):
                rates = [_copied(group["lr"]) for group in optim.optimizer.param_groups]
                each._last_lr = [*rates, *each._last_lr[rest:]]


def _use_options(optim: Optim, own: list[dict[str, Any]], then: Any, now: list[dict[str, Any]]) -> None:
    """Give the parameter groups those options of the config that differ. The state of the optimizer stays."""
    for group, mine, old, new in zip(optim.optimizer.param_groups, own, then, now, strict=True):
        for key in new:
            if key in old and old[key] != new[key]:
                group[key] = mine[key]


def _use_parameters(
    scheduled: Scheduled, changed: Mapping[str, tuple[Any, Any]], now: Mapping[str, Any], before: list[dict[str, Any]]
) -> None:
    """Give a schedule those parameters of the config that differ, and stretch its curve to a new length."""
    originals = {id(each): values for (_, each), values in zip(walk(scheduled.scheduler), before, strict=True)}
    lengths = changed_lengths(changed, now)
    for key in changed:
        if key not in lengths and key != "when":
            scheduler, name = retiming.find(scheduled.scheduler, key)
            setattr(scheduler, name, originals[id(scheduler)][name])
    ends: dict[int, tuple[Any, int, int]] = {}
    for key, (then, new) in sorted(lengths.items(), key=lambda each: each[1]):  # the largest is the end of the curve
        scheduler, _ = retiming.find(scheduled.scheduler, key)
        ends[id(scheduler)] = (scheduler, then, new)
    for scheduler, then, new in ends.values():
        retiming.stretch(scheduler, then, new)


def _set(group: dict[str, Any], key: str, value: float) -> None:
    if isinstance(group[key], Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
