"""The settings that a run was asked for, as plain data. Checkpoints hold them, and a resumed run compares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.common.checks import is_count, is_finite
from hookline.common.environment import FromEnvironment
from hookline.data.skipping import parse_skip
from hookline.errors import ConfigError
from hookline.optim.nesting import walk
from hookline.plan.hook import BaseHook
from hookline.state.contents import CustomPart

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from hookline.engine.run import Run
    from hookline.optim.optim import Optim
    from hookline.optim.scheduled import Scheduled
    from hookline.plan.entry import Entry

#: The options of a parameter group that are no choice of the user, or that schedulers change.
NOT_OPTIONS = ("params", "lr", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "name")
#: The options that a scheduler with `cycle_momentum` changes.
CYCLED = ("momentum", "betas")
#: The numbers of a scheduler that change while it steps, or that follow from the optimizer.
COUNTED = (
    *("optimizer", "last_epoch", "last_step", "T_cur", "T_i", "best", "num_bad_epochs", "cooldown_counter"),
    *("mode_worse", "base_lrs", "base_momentums", "verbose", "retiming", "anchor", "speed", "rates", "asked"),
)


#: How deep plain data may be, and how many items a list or a dict may have.
DEPTH, ITEMS = 3, 64


def asked(runner: Run) -> dict[str, Any]:
    """Return what this run was asked to do, before any checkpoint is loaded."""
    loop = runner.train_loop if runner.has_training else None
    return {
        "max_epochs": loop.max_epochs if loop is not None else None,
        "max_iters": loop.max_iters if loop is not None else None,
        "samples": samples_of(loop.dataloader) if loop is not None else None,
        **({"skip": loop.skip.words} if loop is not None and loop.skip.ranges else {}),
        "lr": {name: initial_rates(optim.optimizer.param_groups) for name, optim in runner.optims.items()},
        "options": {name: options_of(optim) for name, optim in runner.optims.items()},
        "clip": {name: None if optim.clip is None else str(optim.clip) for name, optim in runner.optims.items()},
        "schedules": {name: [schedule_of(each) for each in optim.schedulers] for name, optim in runner.optims.items()},
        "hooks": {entry.name: parameters_of(entry) for entry in runner.plan},
        "parts": [name for name, part in runner.contents.parts.items() if isinstance(part, CustomPart)],
    }


def initial_rates(groups: list[dict[str, Any]]) -> list[float]:
    """Return the initial learning rates of parameter groups."""
    return [float(group.get("initial_lr", group["lr"])) for group in groups]


def options_of(optim: Optim) -> list[dict[str, Any]]:
    """Return the options of each parameter group besides its learning rate."""
    cycles = any(getattr(each.scheduler, "cycle_momentum", False) for each in optim.schedulers)
    left_out = NOT_OPTIONS + (CYCLED if cycles else ())
    return [
        plain({name: value for name, value in group.items() if name not in left_out})
        for group in optim.optimizer.param_groups
    ]


def schedule_of(scheduled: Scheduled) -> dict[str, Any]:
    """Return the class, the parameters and the `auto` lengths of a schedule."""
    scheduler = scheduled.scheduler
    return {
        "type": type(scheduler).__name__,
        "when": scheduled.when,
        "auto": dict(scheduled.auto),
        "values": _values_of(scheduler),
    }


def _values_of(scheduler: LRScheduler) -> dict[str, Any]:
    return {f"{prefix}{name}": value for prefix, each in walk(scheduler) for name, value in _own_values(each).items()}


def _own_values(scheduler: LRScheduler) -> dict[str, Any]:
    own = {name: value for name, value in vars(scheduler).items() if not name.startswith("_") and name not in COUNTED}
    # hookline's own schedules know what the user wrote: `warmup=0.05` is a number of steps in their attributes.
    given = vars(scheduler).get("asked", {})
    own |= given if isinstance(given, Mapping) else {"steps": given}
    return plain(own)


def parameters_of(entry: Entry) -> dict[str, Any]:
    """Return the plain parameters of a hook: those that it was built with, or else its attributes of these names."""
    if not isinstance(entry.hook, BaseHook):
        return {}
    kind: Any = type(entry.hook)
    known = _parameters(kind)
    if entry.given is not None:
        defaults = {each.name: each.default for each in known if each.default is not each.empty}
        return plain({**defaults, **entry.given})
    return plain({each.name: getattr(entry.hook, each.name) for each in known if hasattr(entry.hook, each.name)})


@lru_cache(maxsize=1000)
def _parameters(cls: Any) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a class of hooks."""
    return tuple(inspect.signature(cls).parameters.values())


def samples_of(loader: Any) -> int | None:
    """Return the number of samples of a loader's dataset, if it is known."""
    dataset: Any = getattr(loader, "dataset", None)
    return len(dataset) if hasattr(dataset, "__len__") else None


def malformed(asked: Mapping[str, Any]) -> list[str]:
    """Return the entries of saved facts that are not of the type that `asked` returns."""
    return [f"['{name}']" for name, fits in FITS.items() if name in asked and not fits(asked[name])]


def _is_length(value: Any) -> bool:
    return value is None or is_count(value, least=1)


def _by_optim(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def each_fits(value: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(key, str) and fits(each) for key, each in value.items())

    return each_fits


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_schedule(value: Any) -> bool:
    lengths = _by_optim(lambda each: is_count(each, least=1))
    return (
        isinstance(value, dict)
        and all(lengths(value.get(name, {})) for name in ("auto", "decided_for"))
        and isinstance(value.get("values", {}), dict)
        and value.get("when") in (None, "epoch", "iter", "step", "val")
    )


def _is_skip(value: Any) -> bool:
    try:
        parse_skip(value)
    except ConfigError:
        return False
    return True


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


#: The checks of `malformed`, by fact.
FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("max_epochs", "max_iters", "samples"), _is_length),
    "lr": _by_optim(_list_of(is_finite)),
    "options": _by_optim(_list_of(_is_dict)),
    "clip": _by_optim(lambda value: value is None or isinstance(value, str)),
    "schedules": _by_optim(_list_of(_is_schedule)),
    "hooks": _by_optim(_is_dict),
    "parts": _list_of(lambda value: isinstance(value, str)),
    "skip": _is_skip,
}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are small plain data: numbers, texts, flags, None, and short lists and dicts of them.

    >>> plain({"betas": (0.9, 0.99), "hook": object(), "names": ["a"]})
    {'betas': [0.9, 0.99], 'names': ['a']}
    """
    found = {name: _simplified(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if is_plain(value)}


def is_plain(value: Any, depth: int = DEPTH) -> bool:
    """Return whether a value, which may come from a file, is small plain data that can be compared and shown."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    if not isinstance(value, (list, dict)) or depth == 0 or len(value) > ITEMS:
        return False
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return all(is_plain(each, depth - 1) for each in inner)


def _simplified(value: Any, depth: int = DEPTH) -> Any:
    """Return a value with lists for tuples, and numbers for tensors of one number, as deep as `is_plain` looks."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, float):
        return float(value)
    if isinstance(value, FromEnvironment):
        return value.reference
    if depth == 0 or not isinstance(value, (list, tuple, Mapping)) or len(value) > ITEMS:
        return value
    if isinstance(value, Mapping):
        return {str(key): _simplified(each, depth - 1) for key, each in value.items()}
    return [_simplified(each, depth - 1) for each in value]


# -- hooks of one class that have changed places: their names in a checkpoint belong to other hooks than in the run

#: The entries of a saved position that name a hook.
BY = ("stopped_by", "stop_later_by")


def follow_parameters(checkpoint: dict[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Rename the hooks in a checkpoint as this run names them. Return the new names of those with other names.

    `now` has the parameters of the hooks of this run, by name.
    """
    meta = checkpoint["meta"]
    asked = meta.get("asked", {})
    then = asked.get("hooks") if isinstance(asked, Mapping) else None
    if not isinstance(then, Mapping):  # of an earlier version
        return {}
    names = {old: new for old, new in _match(then, now).items() if old != new}
    if names:
        meta["asked"] = {**asked, "hooks": _renamed(then, names)}
        meta["hooks"] = [names.get(name, name) for name in meta.get("hooks", ())]
        for states in (checkpoint, *checkpoint.get("ranks", ())):
            if isinstance(states.get("hooks"), Mapping):
                states["hooks"] = _renamed(states["hooks"], names)
        position = checkpoint["position"]
        checkpoint["position"] = position | {
            key: names.get(position[key], position[key]) for key in BY if key in position
        }
    return {old: new for old, new in names.items() if new in now}


def _renamed(entries: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in entries.items()}


def _match(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return the new name of each hook of the checkpoint whose class has several hooks, then or now."""
    found: dict[str, str] = {}
    for kind in dict.fromkeys(map(_class_of, then)):
        old, new = ({name: side[name] for name in side if _class_of(name) == kind} for side in (then, now))
        if len(old) > 1 or len(new) > 1:
            found |= _match_class(old, new)
    return found


def _match_class(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """Match hooks of one class: by name and parameters, then by parameters alone, then by name, then what is left."""
    found: dict[str, str] = {}
    rules = (
        lambda a, b: a == b and old[a] == new[b],
        lambda a, b: old[a] == new[b],
        lambda a, b: a == b,
        lambda a, b: len(old) == len(new),
    )
    for fits in rules:
        for a in old:
            free = [b for b in new if b not in found.values() and fits(a, b)]
            if a not in found and free:
                found[a] = free[0]
    # A hook that this run does not have keeps its name, or gets one that no hook of this run has.
    gone = [a for a in old if a not in found]
    unused = [name for name in old if name not in new and name not in found.values()]
    unused.sort(key=lambda name: name not in gone)
    return found | dict(zip(gone, unused, strict=False))


def _class_of(name: str) -> str:
    return name.partition("#")[0]
