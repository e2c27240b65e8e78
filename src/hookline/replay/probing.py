"""Probing: look at the state of a run before and after every call of an observer, and note what has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookline.plan.entry import is_custom
from hookline.replay import bits
from hookline.replay.rerun import ReplayOver
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from pathlib import Path

    from hookline.plan.calls import Call
    from hookline.replay.trail import Record
    from hookline.runner.runner import Runner


@dataclass
class Change:
    """Something that an observer has changed."""

    hook: str
    point: str
    step: int
    where: str
    #: The names of what was changed, by kind.
    names: dict[str, list[str]]

    def __str__(self) -> str:
        kinds = [f"{kind} {', '.join(names[:3])}{', ...' * (len(names) > 3)}" for kind, names in self.names.items()]
        where = f" ({self.where})" if self.where else ""
        return f"{self.hook} at {self.point}, step {self.step}{where}, changes: {'; '.join(kinds)}"


@dataclass
class Probes:
    """Looks at a run around the calls of its observers.

    Args:
        runner: The runner, before it trains.
        names: The observers to look at.
    """

    runner: Runner
    names: tuple[str, ...]
    #: The first change by each method of an observer.
    found: dict[tuple[str, str], Change] = field(default_factory=dict)
    #: What was already noted inside the calls in progress, so that the outer call is not blamed for it.
    _noted: list[set[tuple[str, str]]] = field(default_factory=list)

    def install(self) -> None:
        """Look around every call from now on."""
        for entry in self.runner._host.plan:
            if entry.name in self.names:
                entry.probe(self._around)

    @contextmanager
    def _around(self, call: Call) -> Iterator[None]:
        before = self._look()
        self._noted.append(set())
        try:
            yield
        finally:
            noted, after = self._noted.pop(), self._look()
            changed: dict[str, list[str]] = {}
            for kind in before:
                names = dict.fromkeys((*before[kind], *after[kind]))
                differing = [name for name in names if before[kind].get(name) != after[kind].get(name)]
                if own := [name for name in differing if (kind, name) not in noted]:
                    changed[kind] = own
                if self._noted:
                    self._noted[-1] |= {(kind, name) for name in differing}
            if changed:
                where = call.where if is_custom(call.method) else ""
                change = Change(call.who, call.place, self.runner.iter + 1, where, changed)
                self.found.setdefault((call.who, call.place), change)

    def _look(self) -> Record:
        runner = self.runner
        batch = runner.data_batch
        return {
            **bits.bits_of_run(runner),
            "gradient": bits.bits_of_gradients(runner),
            "batch": {} if batch is None else bits.bits_of(batch),
            "random numbers": bits.bits_of_generators(),
            "loader": bits_of_loader(runner.train_loop.dataloader),
            "state of": bits.bits_of_hooks(runner),
            "setting": bits.bits_of_settings(),
        }


def bits_of_loader(loader: object) -> bits.Bits:
    """Return the hashes of the numbers that a loader and its parts are set to."""
    found: bits.Bits = {}
    for name in ("", "order", "sampler", "batch_sampler", "generator"):
        part = getattr(loader, name, None) if name else loader
        if hasattr(part, "get_state"):
            found |= bits.bits_of(part.get_state(), name)
            continue
        for key, value in getattr(part, "__dict__", {}).items():
            if value is None or isinstance(value, (bool, int, float, str)):
                found |= bits.bits_of(value, f"{name}.{key}".lstrip("."))
    return found


class Attributes(Hook):
    """Notes the attributes of the user's hooks before every step, and saves once, so that a resume can be compared.

    Args:
        save_at: The step after which a checkpoint is saved; 0 to save none, and to end before the first step.
    """

    priority = "HIGHEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(self, save_at: int) -> None:
        self.save_at = save_at
        #: The hashes of the attributes, by the number of finished iterations and the name of the hook.
        self.seen: dict[int, dict[str, bits.Bits]] = {}
        self.saved: Path | None = None

    def before_train_iter(self, runner: Runner) -> None:
        """Note the attributes."""
        self.seen[runner.iter] = {
            entry.name: attributes_of(entry.hook) for entry in runner._host.plan if is_custom(entry.hook)
        }
        if not self.save_at:
            raise ReplayOver

    def after_train_iter(self, runner: Runner) -> None:
        """Save in the middle of the run."""
        if runner.iter + 1 == self.save_at:
            runner.request_save("verify.pth", done=self._keep)

    def _keep(self, path: Path) -> None:
        self.saved = path


def attributes_of(hook: object) -> bits.Bits:
    """Return the hash of every attribute of a hook. Of objects that are no plain data, only the type counts."""
    attributes = getattr(hook, "__dict__", {})
    return {
        name: repr(sorted(bits.bits_of(value, objects=False).items()))
        for name, value in attributes.items()
        if name != "_host"
    }
