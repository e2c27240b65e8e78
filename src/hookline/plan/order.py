"""The order of hooks: by priority, then by registration, with `runs_after` and `runs_before` in between.

Every declaration is checked when a hook is added, in a time that does not depend on how many hooks there are. They are
sorted when somebody asks for the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hookline.errors import HookError

if TYPE_CHECKING:
    from hookline.plan.entry import Entry

#: For each hook, the hooks that must run before it, each with the declaration that requires it.
Before = dict["Entry", dict["Entry", str]]


class Order:
    """The hooks of a plan."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._added: list[Entry] = []
        self._sorted: list[Entry] | None = None
        self._before: Before = {}
        #: The entries by the names and classes that `runs_after` and `runs_before` can refer to them by.
        self._called: defaultdict[str | type, list[Entry]] = defaultdict(list)
        #: The declarations about a name or class: the hook that declared it, and whether that hook runs after.
        self._declared: defaultdict[str | type, list[tuple[Entry, bool]]] = defaultdict(list)
        self._by_hook: defaultdict[int, list[Entry]] = defaultdict(list)
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def entries(self) -> list[Entry]:
        """Return the hooks in the order in which they run."""
        if self._sorted is None:
            self._sorted = _sort(self._added, self._before)
        return self._sorted

    def of(self, hook: Any) -> list[Entry]:
        """Return the entries of a hook or function."""
        return self._by_hook.get(id(hook), [])

    def called(self, wanted: str | type) -> list[Entry]:
        """Return the hooks that an item of `runs_after` or `runs_before` refers to."""
        if isinstance(wanted, type) and type(wanted).__instancecheck__ is not type.__instancecheck__:
            return [entry for entry in self._added if isinstance(entry.hook, wanted)]  # the class decides
        return self._called.get(wanted, [])

    def unique_name(self, name: str) -> str:
        """Return a name, with a number from the second hook of that name on: `EMAHook#2`."""
        if name not in self._names:
            return name
        number = self._numbers.get(name, 2)
        while f"{name}#{number}" in self._names:
            number += 1
        self._numbers[name] = number
        return f"{name}#{number}"

    def add(self, entry: Entry) -> None:
        """Add a hook. If its place is contradictory, refuse it, and leave the order as it was."""
        new = self._find_constraints(entry)
        _refuse_contradictions(new)
        if entry in new and len(new) > 1:  # only a hook that runs both after and before others can close a circle
            _refuse_cycles(_joined(self._before, new))
        for later, earlier in new.items():
            self._before.setdefault(later, {}).update(earlier)
        self._added.append(entry)
        self._sorted = None
        self._by_hook[id(entry.hook)].append(entry)
        self._names.add(entry.name)
        for name in _calls_of(entry):
            self._called[name].append(entry)
        for wanted in _declared_by(entry, "runs_after"):
            self._declared[wanted].append((entry, True))
        for wanted in _declared_by(entry, "runs_before"):
            self._declared[wanted].append((entry, False))

    def without(self, removed: Collection[Entry]) -> Order:
        """Return the order without some hooks."""
        return Order(entry for entry in self._added if entry not in removed)

    def _find_constraints(self, entry: Entry) -> Before:
        """Return the order that the declarations of a new hook, and the declarations about it, require."""
        new: Before = {}

        def require(earlier: Entry, later: Entry, declaration: str) -> None:
            if earlier is not later:
                new.setdefault(later, {}).setdefault(earlier, declaration)

        for wanted in _declared_by(entry, "runs_after"):
            for other in self.called(wanted):
                require(other, entry, f"{entry.name} declares runs_after {other.name}")
        for wanted in _declared_by(entry, "runs_before"):
            for other in self.called(wanted):
                require(entry, other, f"{entry.name} declares runs_before {other.name}")
        known = set(_calls_of(entry))
        for wanted, declared in self._declared.items():
            if wanted in known or (isinstance(wanted, type) and isinstance(entry.hook, wanted)):
                for other, after in declared:
                    text = f"{other.name} declares runs_{'after' if after else 'before'} {entry.name}"
                    require(*((entry, other) if after else (other, entry)), text)
        return new


def _calls_of(entry: Entry) -> Iterator[str | type]:
    """Yield the names and classes that refer to a hook, each once."""
    names = (entry.name, getattr(entry.hook, "__name__", None), *(cls.__name__ for cls in type(entry.hook).__mro__))
    yield from dict.fromkeys(name for name in names if isinstance(name, str))
    yield from type(entry.hook).__mro__


def _declared_by(entry: Entry, declaration: str) -> Iterable[str | type]:
    found: Iterable[str | type] = getattr(entry.hook, declaration, ())
    return found


def _joined(before: Before, new: Before) -> Before:
    return {later: {**before.get(later, {}), **new.get(later, {})} for later in (*before, *new)}


def _refuse_contradictions(before: Before) -> None:
    for later, earlier in before.items():
        for entry, declaration in earlier.items():
            if entry.priority > later.priority:
                raise HookError(
                    f"the order of the hooks is contradictory: {declaration}, but a lower number runs first: "
                    f"{entry.label}, {later.label}. Give {later.name} a priority of at least {entry.priority}, "
                    f"or {entry.name} one of at most {later.priority}."
                )


def _refuse_cycles(before: Mapping[Entry, Mapping[Entry, str]]) -> None:
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle = error.args[1]
        declarations = [before[later][earlier] for earlier, later in pairwise(cycle)]
        raise HookError(f"the order of the hooks is circular: {'; '.join(declarations)}") from None


def _sort(entries: list[Entry], before: Before) -> list[Entry]:
    """Return the hooks sorted by priority, then by registration. Declarations move hooks of equal priority."""
    ordered = sorted(entries, key=lambda entry: (entry.priority, entry.index))
    if not before:
        return ordered
    followers: dict[Entry, list[Entry]] = {}
    for later, earlier in before.items():
        for entry in earlier:
            followers.setdefault(entry, []).append(later)
    waiting = {later: len(earlier) for later, earlier in before.items()}
    ready = [(entry.priority, entry.index, entry) for entry in ordered if entry not in waiting]  # sorted, so a heap
    placed = []
    while ready:
        _, _, entry = heappop(ready)
        placed.append(entry)
        for later in followers.get(entry, ()):
            waiting[later] -= 1
            if not waiting[later]:
                heappush(ready, (later.priority, later.index, later))
    return placed
