"""The handle that registering returns, and groups of functions that are called together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from hookline.dialects.errors import HookTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo

F = TypeVar("F", bound=Callable[..., Any])


class RemoveableHandle(Generic[F]):
    """The handle that registering returns. Call it, call `remove()`, or leave its context to remove the hook."""

    def __init__(self, hook: F) -> None:
        self.hook: F | None = hook

    def remove(self) -> None:
        """Remove the registration. A second call does nothing."""
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()

    def __call__(self) -> None:
        """Do the same as `remove()`."""
        self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()


class HookHandler(Generic[F]):
    """A group of functions that are called together, in the order of registration."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._handlers: list[tuple[F, bool]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call all functions. Changes made during the call take effect at the next call."""
        for entry in list(self._handlers):
            handler, once = entry
            handler(*args, **kwargs)
            if once and entry in self._handlers:
                self._handlers.remove(entry)

    def call(self, *args: Any, **kwargs: Any) -> None:
        """Call all functions."""
        self(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._handlers)

    def register(self, handler: F) -> RemoveableHandle[Callable[[], None]]:
        """Add a function. One that is already registered keeps its position."""
        return self._register(handler, once=False)

    def register_once(self, handler: F) -> RemoveableHandle[Callable[[], None]]:
        """Add a function for the next call only."""
        return self._register(handler, once=True)

    def _register(self, handler: F, once: bool) -> RemoveableHandle[Callable[[], None]]:
        if not callable(handler):
            raise HookTypeError(f"a handler of '{self.name}' must be callable, not {handler!r}")
        entry = (handler, once)
        if entry not in self._handlers:
            self._handlers.append(entry)

        def remove() -> None:
            if entry in self._handlers:
                self._handlers.remove(entry)

        return RemoveableHandle(remove)

    def unregister_all(self) -> None:
        """Remove all functions."""
        self._handlers.clear()

    def __repr__(self) -> str:
        return f"<HookHandler {self.name}>({len(self)} handlers: {[FunctionInfo(one) for one, _ in self._handlers]})"
