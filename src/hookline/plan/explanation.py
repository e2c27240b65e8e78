"""A plan as text: what `hookline plan` and `print(runner.hooks)` show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from hookline.common.escape import escaped
from hookline.plan.hook import Priority

if TYPE_CHECKING:
    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry
    from hookline.plan.plan import Plan

COUNTED = {
    "iteration": "iteration",
    "epoch": "epoch",
    "batch": "batch",
    "validation": "validation",
    "update": "optimizer step",
}


def _places(plan: Plan) -> Iterator[tuple[str, tuple[Call, ...]]]:
    """Yield the points and scopes that have hooks, each scope before its `before_` point."""
    shown = set()
    for name in plan.points:
        stem = name.partition("_")[2]
        around = f"around_{stem}"
        if around in plan.scopes and around not in shown:
            shown.add(around)
            if calls := plan.calls_at(around):
                yield around, calls
        if calls := plan.calls_at(name):
            yield name, calls
    for name in plan.scopes:
        if name not in shown and (calls := plan.calls_at(name)):
            yield name, calls


def explain(plan: Plan) -> str:
    """Return a text that shows, for every point, which hooks run, in which order, how often, and why there."""
    entries = {call: entry for entry in plan.entries for call in entry.calls}
    lines = []
    for name, calls in _places(plan):
        point = (plan.points | plan.scopes)[name]
        left = "the same order" if point.left_in_order else "reverse"
        lines.append(str(point) + (f"   entered in this order, left in {left}" if name in plan.scopes else ""))
        rows = [
            (
                call.who,
                Priority.label(entries[call].priority),
                describe_frequency(call),
                explain_place(plan, entries[call]),
            )
            for call in calls
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for number, row in enumerate(rows, 1):
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
            lines.append(f"  {number:>2}  {cells}  {row[3]}".rstrip())
        lines.append("")
    for entry in plan.entries:
        if entry.undeclared:
            lines.append(
                f"{entry.name} has methods that run only when call_hook names them: "
                + ", ".join(map(escaped, entry.undeclared))
            )
    for entry in plan.entries:
        lines += [f"{watched} ({describe_frequency(watched.install)})" for watched in entry.watched]
    if not lines:
        return "no hook runs at any point"
    return "\n".join(lines if lines[-1] else lines[:-1])


def as_data(plan: Plan) -> dict[str, Any]:
    """Return what `explain` shows as plain data: the points and scopes that have hooks, in the order of a run."""
    entries = {call: entry for entry in plan.entries for call in entry.calls}
    points = []
    for name, calls in _places(plan):
        point = (plan.points | plan.scopes)[name]
        hooks = [
            {
                "name": call.who,
                "priority": entries[call].priority,
                "every": describe_frequency(call),
                "why": explain_place(plan, entries[call]),
                "where": call.where,
            }
            for call in calls
        ]
        points.append({"name": name, "arguments": ["runner", *point.arguments], "hooks": hooks})
    roles = [
        {"name": entry.name, "role": getattr(entry.hook, "role", "actor"), "priority": entry.priority}
        for entry in plan.entries
    ]
    return {"version": 1, "points": points, "hooks": roles}


def describe_frequency(call: Call) -> str:
    """Return `every iteration`, `every 10 iterations`, `every 2 epochs`; `each time` at a point without a counter."""
    if call.point.counts is None:
        return "each time"
    unit = COUNTED[call.point.counts]
    if call.every is None:
        return f"every {unit}"
    if call.every.by_epoch:
        unit = "epoch"
    return f"every {call.every.n} {unit}s" if call.every.n > 1 else f"every {unit}"


def explain_place(plan: Plan, entry: Entry) -> str:
    """Return the reasons for a hook's place: where its priority was set, and its `runs_after` and `runs_before`."""
    after, before = getattr(entry.hook, "runs_after", ()), getattr(entry.hook, "runs_before", ())
    others = {
        **{other: f"before {other.name}" for wanted in before for other in plan.named(wanted)},
        **{other: f"after {other.name}" for wanted in after for other in plan.named(wanted)},
    }
    others.pop(entry, None)
    reasons = [others[other] for other in sorted(others, key=lambda other: (other.priority, other.index))]
    return ", ".join([f"priority from the {entry.priority_from}", *reasons])


class Hooks(Sequence[Any]):
    """The hooks of a run in plan order. Printing it shows a tree of the points and the hooks that run there."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return [entry.hook for entry in self._plan.entries][index]

    def __len__(self) -> int:
        return len(self._plan.entries)

    def __str__(self) -> str:
        entries = {call: entry for entry in self._plan.entries for call in entry.calls}
        lines = [f"{len(self)} hooks"]
        for name, calls in _places(self._plan):
            lines.append(f"├── {name}")
            for index, call in enumerate(calls):
                corner = "└──" if call is calls[-1] else "├──"
                method = escaped(getattr(call.method, "__name__", type(call.method).__name__))
                shown = call.who if method == call.who else f"{call.who}.{method}"
                often = f", {describe_frequency(call)}" if call.every is not None else ""
                priority = Priority.label(entries[call].priority)
                lines.append(f"│   {corner} {index}: {shown}  {priority}{often}  {escaped(call.where)}")
        starts = [number for number, line in enumerate(lines) if line.startswith("├")]
        if starts:
            for number in range(starts[-1], len(lines)):
                lines[number] = ("└" if number == starts[-1] else " ") + lines[number][1:]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{len(self)} hooks: {', '.join(entry.name for entry in self._plan.entries)}>"
