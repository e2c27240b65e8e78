"""What registering gives back, and functions that are called together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from hookline.dialects.robo_orchard_core.refusals import HookTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo

F = TypeVar("F", bound=Callable[..., Any])


class RemoveableHandle(Generic[F]):
    """What registering gives back: calling it, `remove()`, and leaving it as a context all take the hook out."""

    def __init__(self, hook: F) -> None:
        self.hook: F | None = hook

    def remove(self) -> None:
        """Take out what was registered; a second time does nothing."""
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()

    def __call__(self) -> None:
        """The same as `remove()`."""
        self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()


class HookHandler(Generic[F]):
    """Functions that are called together, in the order in which they were registered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._handlers: list[tuple[F, bool]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call them all; one that comes or goes meanwhile counts from the next time on."""
        for entry in list(self._handlers):
            handler, once = entry
            handler(*args, **kwargs)
            if once and entry in self._handlers:
                self._handlers.remove(entry)

    def call(self, *args: Any, **kwargs: Any) -> None:
        """Call them all."""
        self(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._handlers)

    def register(self, handler: F) -> RemoveableHandle[Callable[[], None]]:
        """Call this from now on; one that is there already stays where it is."""
        return self._register(handler, once=False)

    def register_once(self, handler: F) -> RemoveableHandle[Callable[[], None]]:
        """Call this the next time, and then no more."""
        return self._register(handler, once=True)

    def _register(self, handler: F, once: bool) -> RemoveableHandle[Callable[[], None]]:
        if not callable(handler):
            raise HookTypeError(f"the handlers of '{self.name}' are called, and {handler!r} cannot be")
        entry = (handler, once)
        if entry not in self._handlers:
            self._handlers.append(entry)

        def remove() -> None:
            if entry in self._handlers:
                self._handlers.remove(entry)

        return RemoveableHandle(remove)

    def unregister_all(self) -> None:
        """Call none of them any more."""
        self._handlers.clear()

    def __repr__(self) -> str:
        return f"<HookHandler {self.name}>({len(self)} handlers: {[FunctionInfo(one) for one, _ in self._handlers]})"
