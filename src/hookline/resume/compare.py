"""The contract of a resume: what differs between a checkpoint and the run that resumes it, and who wins.

`compare` takes the facts of both as plain data and returns a list of differences. Nothing is loaded or changed here:
`hookline.resume.report` reports the list, and `apply` puts the choices into effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hookline.checkpoint.compatibility import Converted, describe_share
from hookline.common.escape import escaped
from hookline.resume.facts import is_plain
from hookline.run.keep import DEFAULTS, FIXED, SIDES, Keep

#: `undecided` is a difference that only the user can settle. What only one side has is `dropped` or starts `fresh`.
Winner = Literal["checkpoint", "config", "undecided", "dropped", "fresh"]

#: The parameters of schedulers that are the length of their curve.
LENGTHS = ("T_max", "total_iters", "total_steps", "length")
#: Facts about the surroundings. They may change the last bits of results.
SURROUNDINGS = ("device", "torch", "numpy", "python", "threads")

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One difference between a checkpoint and the run that resumes it."""

    #: The key of `keep`, or of the facts.
    key: str
    #: What differs, for people: `schedule (CosineAnnealingLR)`.
    what: str
    checkpoint: Any
    config: Any
    winner: Winner
    #: The consequence, or the reason why there is no choice.
    why: str = ""
    #: What the value on the other side is called. For surroundings, it is not a matter of the config.
    here: str = "config"
    #: Whether the new value is the length of a schedule that was `auto`.
    auto: bool = False
    #: For a schedule, its optim and its number there.
    schedule: tuple[str, int] | None = None

    @property
    def choices(self) -> list[str]:
        """Return the choices that change the winner, such as `lr=config`: both if it is undecided, or none."""
        if self.key not in DEFAULTS:
            return []
        return [f"{self.key}={side}" for side in SIDES if side != self.winner]

    def line(self, hint: Callable[[str], str]) -> str:
        """Return the difference as one line. `hint` turns a choice into what the user has to write."""
        if self.winner in ("dropped", "fresh"):
            return f"{self.what}: {self.why}"
        text = f"{self.what}: checkpoint {show(self.checkpoint)}, {self.here} {show(self.config)}: "
        if self.here != "config":
            return text + self.why
        if self.winner == "undecided":
            old, new = (hint(choice) for choice in self.choices)
            return f"{text}undecided; {old} continues the old curve, {new} stretches the rest of it"
        text += f"the {self.winner} wins"
        if not self.choices:
            no_choice = "no choice: " if self.key in FIXED and self.key != "hooks" else ""
            return text + (f" ({no_choice}{self.why})" if self.why else "")
        other = "config" if self.winner == "checkpoint" else "checkpoint"
        return f"{text}{f', {self.why}' if self.why else ''}; to use the {other}'s: {hint(self.choices[0])}"

    def as_data(self) -> dict[str, Any]:
        """Return the difference as data for JSON."""
        return {
            "key": self.key,
            "what": self.what,
            "checkpoint": self.checkpoint,
            "config": self.config,
            "winner": self.winner,
            "keep": self.choices,
            "why": self.why,
        }


def compare(
    then: Facts,
    now: Facts,
    keep: Keep,
    *,
    mid_epoch: bool = False,
    ends: bool = False,
    dtypes: Iterable[Converted] = (),
) -> list[Difference]:
    """Return all differences between the `meta` of a checkpoint and this run's `meta`, in the order of the docs.

    `mid_epoch` is true if the checkpoint is inside an epoch, and `ends` if this run has nothing left to train.
    `dtypes` are the weights that are converted. A fact that one side does not know is not compared.
    """
    old, new = _mapping(then.get("asked")), _mapping(now.get("asked"))
    return [
        *_rates(old, new, keep),
        *_options(old, new, keep),
        *_schedules(then, now, keep, ends),
        *_lengths(old, new, keep),
        *_sizes(then, now, keep, mid_epoch),
        *(hooks := list(_hooks(then, now))),
        *_parts(old, new),
        *_flags(then, now, changed_hooks=bool(hooks)),
        *(Difference("dtype", f"dtype of {each}", each.saved, each.own, "config", FIXED["dtype"]) for each in dtypes),
        *_surroundings(then, now),
    ]


def keeps_length(then: Facts, now: Facts, keep: Keep) -> bool:
    """Return whether the user chose the length of the checkpoint, so that the `auto` lengths of the config are void."""
    old, new = _mapping(then.get("asked")), _mapping(now.get("asked"))
    sides = {"max_epochs": (old, new), "max_iters": (old, new), "accumulate": (then, now)}
    differing = [key for key, (a, b) in sides.items() if a.get(key) != b.get(key)]
    chosen = all(
        keep.winner(key) == "checkpoint" and None not in (sides[key][0].get(key), sides[key][1].get(key))
        for key in differing
    )
    return bool(differing) and chosen and then.get("batches") == now.get("batches")


# -- one function per group of keys


def _rates(old: Facts, new: Facts, keep: Keep) -> Iterator[Difference]:
    for name, (a, b) in _pairs(old.get("lr"), new.get("lr")):
        if a != b:
            yield Difference("lr", _of("lr", name), _sole(a), _sole(b), keep.winner("lr"))


def _options(old: Facts, new: Facts, keep: Keep) -> Iterator[Difference]:
    for name, (a, b) in _pairs(old.get("options"), new.get("options")):
        if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b)):
            continue
        for index, (mine, theirs) in enumerate(zip(a, b, strict=True)):
            changed = _changed(mine, theirs)
            if changed:
                what = _of("optimizer", name) + (f", parameter group {index}" if len(a) > 1 else "")
                yield Difference("optimizer", what, *_both(changed), keep.winner("optimizer"))


def _schedules(then: Facts, now: Facts, keep: Keep, ends: bool) -> Iterator[Difference]:
    old, new = _mapping(then.get("asked")).get("schedules"), _mapping(now.get("asked")).get("schedules")
    as_long = keeps_length(then, now, keep) and "asked" in then
    for name, (theirs, mine) in _pairs(old, new):
        both = zip(theirs, mine, strict=False) if isinstance(theirs, list) and isinstance(mine, list) else ()
        for index, (a, b) in enumerate(both):
            if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
                continue
            changed, auto = changed_schedule(a, b)
            if as_long:
                changed = {key: pair for key, pair in changed.items() if key not in auto}
                auto = {}
            if not changed:
                continue
            winner: Winner = keep.winner("schedule")
            asks = bool(auto) and not ends and dict(auto_of(b)) != dict(_mapping(a.get("decided_for")))
            if asks and keep.side("schedule") is None:
                winner = "undecided"
            what = _of(f"schedule ({escaped(b.get('type'))})", name)
            yield Difference("schedule", what, *_both(changed), winner, auto=bool(auto), schedule=(name, index))


def changed_schedule(a: Facts, b: Facts) -> tuple[dict[str, tuple[Any, Any]], dict[str, tuple[Any, Any]]]:
    """Return the changed parameters of a schedule, and the ones whose new value is `auto`."""
    then, now = {**_mapping(a.get("values")), **auto_of(a)}, dict(_mapping(b.get("values")))
    auto = {**{key: then[key] for key in auto_of(b) if key in then}, **auto_of(a)}
    lengths = {key: (auto[key], value) for key, value in auto_of(b).items() if key in auto and auto[key] != value}
    changed = {key: pair for key, pair in _changed(then, now).items() if key not in auto_of(b)}
    if a.get("when") is not None and a.get("when") != b.get("when"):
        changed["when"] = (a["when"], b.get("when"))
    return {**lengths, **changed}, lengths


def auto_of(schedule: Facts) -> dict[str, int]:
    """Return the parameters of a schedule that are `auto`, with their lengths."""
    return {key: value for key, value in _mapping(schedule.get("auto")).items() if isinstance(value, int)}


def changed_lengths(changed: Mapping[str, tuple[Any, Any]], schedule: Facts) -> dict[str, tuple[int, int]]:
    """Return the changed parameters that set the length of a curve."""
    return {
        key: pair
        for key, pair in changed.items()
        if (key in auto_of(schedule) or key.rpartition(".")[2] in LENGTHS) and all(type(each) is int for each in pair)
    }


def _lengths(old: Facts, new: Facts, keep: Keep) -> Iterator[Difference]:
    for key in ("max_epochs", "max_iters"):
        a, b = old.get(key), new.get(key)
        if None not in (a, b) and a != b:
            yield Difference(key, key, a, b, keep.winner(key))
    if (old.get("max_epochs"), old.get("max_iters")) != (None, None) and new.get("max_epochs") != new.get("max_iters"):
        (a, then), (b, now) = _length_of(old), _length_of(new)
        if a != b:
            yield Difference("length", "length", f"{then} {a}", f"{now} {b}", "config", "set the unit in the config")


def _length_of(facts: Facts) -> tuple[str, Any]:
    by_epoch = facts.get("max_epochs") is not None
    return ("epochs", facts["max_epochs"]) if by_epoch else ("iterations", facts.get("max_iters"))


def _sizes(then: Facts, now: Facts, keep: Keep, mid_epoch: bool) -> Iterator[Difference]:
    def differs(key: str, a: Facts = then, b: Facts = now) -> bool:
        return key in a and is_plain(a[key]) and a[key] != b.get(key)

    old, new = _mapping(then.get("asked")), _mapping(now.get("asked"))
    several = then.get("world_size", 1) != now.get("world_size", 1)
    sized = differs("batch_size") and None not in (then["batch_size"], now["batch_size"]) and not several
    if sized:
        why = FIXED["batch_size"]
        if mid_epoch:
            why += ". The checkpoint is inside an epoch, so this epoch leaves out or repeats samples"
        yield Difference("batch_size", "batch_size", then["batch_size"], now["batch_size"], "config", why)
    if differs("accumulate"):
        a, b = _sole(then["accumulate"]), _sole(now["accumulate"])
        yield Difference("accumulate", "accumulate", a, b, keep.winner("accumulate"))
    resampled = differs("samples", old, new)
    if resampled:
        yield Difference("samples", "samples", old["samples"], new["samples"], "config", FIXED["samples"])
    if differs("batches") and not (sized or resampled or several):
        yield Difference("batches", "batches per epoch", then["batches"], now["batches"], "config", FIXED["batches"])
    if old.get("skip", []) != new.get("skip", []):
        yield Difference("skip", "skip", old.get("skip") or None, new.get("skip") or None, "config", FIXED["skip"])
    if differs("seed"):
        why = f"{FIXED['seed']}. From now on, the order of the data is different"
        yield Difference("seed", "seed", then["seed"], now["seed"], "config", why)
    if differs("precision"):
        yield Difference("precision", "precision", then["precision"], now["precision"], "config", FIXED["precision"])
    for name, (a, b) in _pairs(old.get("clip"), new.get("clip")):
        if a != b:
            yield Difference("clip", _of("clip", name), a, b, "config", FIXED["clip"])


def _names(found: Any) -> list[str] | None:
    """Return names from a checkpoint, whatever is in the list; None if there is no list."""
    return [str(each) for each in found] if isinstance(found, list) else None


def _hooks(then: Facts, now: Facts) -> Iterator[Difference]:
    names, saved = now.get("hooks", []), _names(then.get("hooks"))
    if saved is None:
        return
    old, new = (_mapping(_mapping(side.get("asked")).get("hooks")) for side in (then, now))
    stateful = _mapping(then.get("states"))
    for name in dict.fromkeys([*saved, *map(str, stateful)]):
        if name not in names:
            with_state = ", with its state" if name in stateful else ""
            why = f"only in the checkpoint, so it is dropped{with_state}"
            yield Difference("hooks", f"hook {escaped(name)}", name, None, "dropped", why)
    for name in names:
        if name not in saved:
            why = "not in the checkpoint, so it starts fresh"
            yield Difference("hooks", f"hook {escaped(name)}", None, name, "fresh", why)
        elif changed := _changed(old.get(name), new.get(name)):
            why = "its state continues from the checkpoint" if name in stateful else ""
            yield Difference("hooks", f"hook {escaped(name)}", *_both(changed), "config", why)


def _parts(old: Facts, new: Facts) -> Iterator[Difference]:
    saved, parts = _names(old.get("parts")), new.get("parts", [])
    for name in saved or ():
        if name not in parts:
            why = "only in the checkpoint, so it is dropped"
            yield Difference("parts", f"part {escaped(name)}", name, None, "dropped", why)
    for name in parts:
        if saved is not None and name not in saved:
            why = "not in the checkpoint, so it starts fresh"
            yield Difference("parts", f"part {escaped(name)}", None, name, "fresh", why)


def _flags(then: Facts, now: Facts, changed_hooks: bool) -> Iterator[Difference]:
    """Compare which parameters are frozen, and which modules are in evaluation mode: hooks and the script set both."""
    saved, built = _mapping(then.get("modules")), _mapping(now.get("built"))
    for key, name, what in (("frozen", "frozen", "frozen parameters"), ("modes", "eval", "modules in evaluation mode")):
        old, new, at_save = (set(side.get(name, ())) for side in (_mapping(saved.get("built")), built, saved))
        if not (saved and built):
            continue
        if old != new:
            why = "the model is built by your code; the others are as in the checkpoint"
            yield Difference(key, what, sorted(old - new) or None, sorted(new - old) or None, "config", why)
        elif at_save != old and changed_hooks:
            why = "a hook has changed them during the run"
            yield Difference(key, what, sorted(at_save) or None, sorted(old) or None, "checkpoint", why)


def _surroundings(then: Facts, now: Facts) -> Iterator[Difference]:
    a, b = then.get("world_size", 1), now.get("world_size", 1)
    if a != b:
        why = describe_share(then, now)
        yield Difference("processes", "processes", a, b, "config", why, here="this run")
    version = then.get("hookline")
    if isinstance(version, str) and version != now.get("hookline"):
        why = "a resume is exact only with the same version"
        yield Difference("hookline", "hookline", then["hookline"], now.get("hookline"), "config", why, here="this run")
    for key in SURROUNDINGS:
        if key in then and key in now and is_plain(then[key]) and then[key] != now[key]:
            why = "results may differ in their last bits"
            yield Difference(key, key, then[key], now[key], "config", why, here="this run")


# -- helpers


def show(value: Any) -> str:
    """Return a value for people, in one short line."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}={show(each)}" for key, each in value.items())
    elif isinstance(value, list):
        text = f"[{', '.join(map(show, value))}]"
    else:
        text = "none" if value is None else str(value)
    text = escaped(text)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pairs(old: Any, new: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the values that both sides have, by the name of their optim."""
    for name, value in _mapping(new).items():
        if name in _mapping(old):
            yield name, (_mapping(old)[name], value)


def _changed(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """Return the entries that both mappings have, with different values."""
    then, now = _mapping(old), _mapping(new)
    return {key: (then[key], now[key]) for key in now if key in then and is_plain(then[key]) and then[key] != now[key]}


def _both(changed: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {key: a for key, (a, _) in changed.items()}, {key: b for key, (_, b) in changed.items()}


def _sole(value: Any) -> Any:
    """Return the only entry of a list, or the list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _of(what: str, optim: str) -> str:
    return f"{what} of optim '{escaped(optim)}'" if optim else what
