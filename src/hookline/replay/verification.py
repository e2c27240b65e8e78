"""Verification: train a few steps without observers and with them, and name the observer that changes a bit.

    plain      the steps without observers
    observed   the steps with all of them; a checkpoint is saved in the middle
    probed     only if these two differ: looks at the run around every call of an observer
    alone      only if that finds nobody: each observer alone
    resumed    from the checkpoint in the middle, for the attributes of hooks

Each is a training in a process of its own, so that no state of a module or of torch is left from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hookline.replay import trail
from hookline.replay.probing import Attributes, Change, Probes
from hookline.replay.rerun import ReplayOver
from hookline.replay.running import in_a_process
from hookline.replay.trail import Difference, Trail

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.engine.loop_specs import TrainLoop
    from hookline.replay.bits import Bits

#: A trail, by step and rank.
Steps = dict[trail.Key, trail.Record]
#: The kinds of a trail that have the states of hooks.
HOOK_STATES = ("hook state", "hook state before the step")


@dataclass
class Training:
    """One training of a few steps.

    Args:
        folder: The folder to train in.
        observers: The observers that take part; None for all.
        probed: Look at the run around the calls of observers.
        resume: The checkpoint to resume from. The training then ends before its first step.
    """

    loaded: LoadedConfig
    allow: Sequence[str]
    steps: int
    folder: Path
    observers: Sequence[str] | None = None
    probed: bool = False
    resume: Path | None = None


@dataclass
class Trained:
    """What is known about a training."""

    steps: int
    observers: tuple[str, ...]
    trail: Steps = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    attributes: dict[int, dict[str, Bits]] = field(default_factory=dict)
    saved: Path | None = None


@dataclass
class Verification:
    """What observers do to a training."""

    steps: int
    observers: tuple[str, ...]
    #: The first difference between the training with observers and without; None if they are equal.
    difference: Difference | None = None
    #: True if two trainings without observers differ, too, so that nothing can be said.
    unstable: bool = False
    changes: list[Change] = field(default_factory=list)
    #: The observers that make a difference although no call of them changes anything, with the first difference.
    alone: list[tuple[str, Difference]] = field(default_factory=list)
    #: The attributes of hooks that change during the run, and that a resume does not restore.
    lost: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "equal": self.difference is None}

    def lines(self) -> list[str]:
        """Return it as lines."""
        names = ", ".join(self.observers) or "none"
        found = [f"note: {each} changes during the run, and a resume does not restore it" for each in self.lost]
        if self.difference is None:
            return [f"{self.steps} steps are equal to the bit with and without observers ({names})", *found]
        first = f"from step {self.difference.step}: {self.difference}"
        if self.unstable:
            return [
                f"two trainings without observers differ {first}",
                "so nothing can be said about observers; seed what is random, see docs/replay.md",
                *found,
            ]
        culprits = [*map(str, self.changes), *self._alone()]
        culprits = culprits or ["no observer makes a difference alone, so several do so together"]
        return [f"the observers change the training {first}", *(f"  {each}" for each in culprits), *found]

    def _alone(self) -> Iterator[str]:
        for name, first in self.alone:
            yield f"{name} alone makes a difference, from step {first.step}: {first}, outside of its calls"


def verify(loaded: LoadedConfig, steps: int, allow: Sequence[str] = ()) -> Verification:
    """Train a few steps without observers and with them, and compare."""
    with TemporaryDirectory(prefix="hookline-verify-") as scratch:

        def trained(name: str, **how: Any) -> Trained:
            folder = Path(scratch, name)
            folder.mkdir()
            return in_a_process(partial(train, Training(loaded, tuple(allow), steps, folder, **how)))

        plain, observed = trained("plain", observers=()), trained("observed")
        found = Verification(observed.steps, observed.observers)
        if trail.first_difference(plain.trail, observed.trail) is not None:
            explain(found, plain.trail, observed, trained)
        if observed.saved is not None and any(changed(observed)):
            found.lost = lost(observed, trained("resumed", resume=observed.saved))
    return found


def explain(found: Verification, plain: Steps, observed: Trained, trained: Callable[..., Trained]) -> None:
    """Find out which observer makes the difference, or that there is none."""
    again = trained("again", observers=()).trail
    times = times_in(plain, again)
    plain = without(plain, times)
    if (unstable := trail.first_difference(plain, without(again, times))) is not None:
        found.difference, found.unstable = unstable, True
        return
    found.difference = trail.first_difference(plain, without(observed.trail, times))
    if found.difference is None:
        return
    found.changes = trained("probed", probed=True).changes
    for name in () if found.changes else observed.observers:
        alone = trained(f"alone-{name}", observers=(name,)).trail
        if (first := trail.first_difference(plain, without(alone, times))) is not None:
            found.alone.append((name, first))


def times_in(one: Steps, other: Steps) -> set[str]:
    """Return the states of hooks that differ between two equal trainings, such as the duration of a save."""
    return {
        name
        for key in one.keys() & other.keys()
        for kind in HOOK_STATES
        for name, digest in one[key].get(kind, {}).items()
        if other[key].get(kind, {}).get(name) != digest
    }


def without(steps: Steps, names: set[str]) -> Steps:
    """Return a trail without some states of hooks."""
    return {
        key: {
            kind: {name: digest for name, digest in bits.items() if kind not in HOOK_STATES or name not in names}
            for kind, bits in record.items()
        }
        for key, record in steps.items()
    }


def changed(training: Trained) -> Iterator[tuple[str, str]]:
    """Yield the attributes of hooks that changed between the first step and another one."""
    seen = training.attributes
    first = seen.get(min(seen, default=0), {})
    for hook, names in first.items():
        for name in sorted({name for later in seen.values() for name in later.get(hook, {})}):
            if any(later.get(hook, {}).get(name) != names.get(name) for later in seen.values()):
                yield hook, name


def lost(observed: Trained, resumed: Trained) -> list[str]:
    """Return the attributes that change during a run, and that are different after a resume at the same step."""
    step = min(resumed.attributes, default=-1)
    then, now = observed.attributes.get(step, {}), resumed.attributes.get(step, {})
    return [
        f"{hook}.{name}"
        for hook, name in changed(observed)
        if hook in now and then.get(hook, {}).get(name) != now[hook].get(name)
    ]


def train(what: Training) -> Trained:
    """Train a few steps in this process."""
    from hookline.config import build_runner

    changes: dict[str, Any] = {"work_dir": what.folder, "resume": what.resume or False, "keep": None, "quiet": True}
    runner = build_runner(what.loaded, allow=what.allow, writers=[], **changes)
    host = runner._host
    shorten(runner.train_loop, what.steps)
    for loop in runner.val_loops.values():
        loop.shorten(what.steps)
    observers = tuple(entry.name for entry in host.plan if entry.role == "observer")
    for entry in list(host.plan):
        if getattr(entry.hook, "out_dir", None) is not None:
            entry.hook.out_dir = str(what.folder / "elsewhere")
        if entry.name in observers and what.observers is not None and entry.name not in what.observers:
            host.plan.remove(entry.hook)
    probes = Probes(runner, observers)
    if what.probed:
        probes.install()
    attributes = Attributes(0 if what.resume else max(1, what.steps // 2))
    runner.register_hook(attributes)
    runner.register_hook(Trail(what.folder, runner.model))
    with suppress(ReplayOver):
        runner.train()
    found = trail.read_folder(what.folder)
    return Trained(len(found), observers, found, [*probes.found.values()], attributes.seen, attributes.saved)


def shorten(loop: TrainLoop, steps: int) -> None:
    """Let a training end after this many steps, or with the epoch that they end in."""
    epochs = loop.max_epochs
    loop.shorten(steps)
    if epochs is not None and loop.length:
        loop.max_epochs = min(epochs, -(-steps // loop.length))
