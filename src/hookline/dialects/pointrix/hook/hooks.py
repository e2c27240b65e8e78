"""HookList: the hooks of a trainer as a list that may be changed."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from hookline.plan.plan import Plan


class HookList(MutableSequence[Any]):
    """The hooks of a plan, in the order in which they run. Changes of the list are changes of the plan.

    Hooks of the same priority run in the order of the list. A hook of another priority has the place that its priority
    gives it, wherever it was put.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def _hooks(self) -> list[Any]:
        return [entry.hook for entry in self._plan]

    def replace(self, hooks: Iterable[Any]) -> None:
        """Replace all hooks."""
        new = list(hooks)
        for hook in self._hooks():
            self._plan.remove(hook)
        for hook in new:
            self._plan.add(hook)

    def insert(self, index: int, value: Any) -> None:
        """Add a hook before the one with this index, even during training. It is called from the next point on."""
        later = list(self._plan)[index:]
        for entry in later:
            self._plan.remove(entry.hook)
        try:
            self._plan.add(value)
        finally:
            for entry in later:
                self._plan.add(entry.hook, entry.priority, priority_from=entry.priority_from)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._hooks()[index]

    def __setitem__(self, index: int | slice, value: Any) -> None:
        changed = self._hooks()
        changed[index] = value
        self.replace(changed)

    def __delitem__(self, index: int | slice) -> None:
        chosen = self._hooks()[index]
        for hook in chosen if isinstance(index, slice) else [chosen]:
            self._plan.remove(hook)

    def __len__(self) -> int:
        return len(self._hooks())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, tuple, HookList)) and self._hooks() == list(other)

    __hash__ = None  # type: ignore[assignment]  # a list has no hash

    def __repr__(self) -> str:
        return repr(self._hooks())
