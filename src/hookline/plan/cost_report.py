"""The ledger as a table for people and as data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from hookline.common.escape import escaped
from hookline.common.memory import Held, Search
from hookline.plan.costs import PERIOD, Total
from hookline.plan.explanation import as_data

if TYPE_CHECKING:
    from rich.table import Table

    from hookline.plan.ledger import Ledger
    from hookline.plan.plan import Plan

#: The version of the file.
VERSION = 1


@dataclass(frozen=True)
class HookCost:
    """The cost of one hook."""

    name: str
    role: str
    priority: int
    #: The cost at each point.
    points: Mapping[str, Total]
    #: The share of the training time.
    share: float
    #: The tensors that the hook holds, besides the tensors of the model and the optimizers.
    held: Held
    budget: float | None = None

    @property
    def total(self) -> Total:
        """Return the cost at all points together."""
        return sum(self.points.values(), Total())

    def to_dict(self, has_device: bool) -> dict[str, Any]:
        """Return the entry as plain data."""
        return {
            "name": self.name,
            "role": self.role,
            "priority": self.priority,
            "seconds": self.total.seconds,
            "share": self.share,
            "points": {point: total.to_dict() for point, total in self.points.items() if total.calls},
            "memory": {
                "tensors": round(self.held.tensors),
                "device": round(self.held.device) if has_device else None,
            },
            "budget": self.budget,
        }


@dataclass(frozen=True, repr=False)
class CostReport:
    """The costs of the hooks and of the parts of training in this session so far. Printing it shows a table."""

    #: The finished iterations before this session, in this session, and the measured ones.
    first_step: int
    steps: int
    sampled_steps: int
    seconds: float
    parts: Mapping[str, Total]
    hooks: tuple[HookCost, ...]
    #: Samples of the memory over the session.
    memory: tuple[Mapping[str, Any], ...]
    #: An estimate of the seconds that measuring took.
    overhead: float
    plan: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; this is what `hooks.json` holds."""
        has_device = any(sample["device"] is not None for sample in self.memory)
        return {
            "version": VERSION,
            "first_step": self.first_step,
            "steps": self.steps,
            "seconds": self.seconds,
            "sampled_steps": self.sampled_steps,
            "period": PERIOD,
            "parts": {name: total.to_dict() for name, total in self.parts.items()},
            "hooks": [hook.to_dict(has_device) for hook in self.hooks],
            "memory": [dict(sample) for sample in self.memory],
            "overhead": {"seconds": self.overhead, "share": share_of(self.overhead, self.seconds)},
            "plan": self.plan,
        }

    # -- showing

    def rows(self) -> Iterator[tuple[str, Total, str]]:
        """Yield the rows of the table: a label, the cost, and a remark. The hooks come first, by their costs."""
        for hook in sorted(self.hooks, key=lambda hook: -hook.total.seconds):
            yield hook.name, hook.total, remark_on(hook)
            if len(hook.points) > 1:
                for point, total in sorted(hook.points.items(), key=lambda item: -item[1].seconds):
                    if total.calls:
                        yield f"  {point}", total, ""
        for name, total in self.parts.items():
            yield name, total, ""

    def __rich__(self) -> Table:
        """Return the table for rich."""
        from rich.table import Table
        from rich.text import Text

        title = f"{self.steps} iterations in {self.seconds:.1f}s, {self.sampled_steps} of them measured"
        table = Table(title=Text(title), title_justify="left")
        table.add_column("")
        for name in ("calls", "total", "share", "mean", "longest"):
            table.add_column(name, justify="right")
        table.add_column("")
        cells = list(self._cells())
        for number, row in enumerate(cells):
            table.add_row(*map(Text, row), end_section=number + 1 == len(cells) - len(self.parts))
        return table

    def _cells(self) -> Iterator[list[str]]:
        for label, total, remark in self.rows():
            times = [f"{total.seconds:.2f}s", f"{share_of(total.seconds, self.seconds):.1%}"]
            per_call = [as_short(total.mean), as_short(total.longest)] if total.calls else ["", ""]
            yield [escaped(label), f"{total.calls}" if total.calls else "", *times, *per_call, remark]

    def __str__(self) -> str:
        from rich.console import Console

        with StringIO() as lines:
            Console(file=lines, width=110, color_system=None, emoji=False, highlight=False).print(self)
            return lines.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        heads = "".join(f"<th>{name}</th>" for name in ("", "calls", "total", "share", "mean", "longest", ""))
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in self._cells()
        )
        return f"<table><tr>{heads}</tr>{rows}</table>"


def remark_on(hook: HookCost) -> str:
    """Return what is special about a hook: over its budget, or holding much memory."""
    texts = []
    if hook.budget is not None and hook.share > hook.budget:
        texts.append(f"over its budget of {hook.budget * 100:.4g}%")
    if hook.held.tensors >= 2**20:
        texts.append(f"holds {hook.held.tensors / 2**20:.0f} MB of tensors")
    return ", ".join(texts)


def as_short(seconds: float) -> str:
    """Return a short duration: `1.2 ms`, `350 µs`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def share_of(part: float, whole: float) -> float:
    """Return a share; 0 of nothing."""
    return part / whole if whole > 0 else 0.0


def report_costs(plan: Plan, ledger: Ledger) -> CostReport:
    """Return the costs of a plan so far."""
    seconds, totals = ledger.seconds, ledger.totals()
    search = Search()
    search.look_into(*ledger.roots())
    known = {entry.name: entry for entry in reversed(plan.entries)}
    hooks = []
    for name in dict.fromkeys([*(entry.name for entry in plan.entries), *totals]):
        entry, points = known.get(name), totals[name]
        hooks.append(
            HookCost(
                name,
                entry.role if entry is not None else "observer",
                entry.priority if entry is not None else 50,
                points,
                share_of(sum(total.seconds for total in points.values()), seconds),
                search.look_into(entry.hook) if entry is not None else Held(),
                entry.budget if entry is not None else None,
            )
        )
    return CostReport(
        first_step=ledger.first_step,
        steps=ledger.steps,
        sampled_steps=ledger.sampled_steps,
        seconds=seconds,
        parts=ledger.parts_total(),
        hooks=tuple(hooks),
        memory=tuple(ledger.memory),
        overhead=ledger.overhead(),
        plan=as_data(plan),
    )
