"""Methods of hooks that watch modules of the model.

    class Watch(Hook):
        @on_module("layers.*", "forward", every=10)
        def seen(self, runner, name, module, outputs): ...

The hooks of torch are installed only while the step computes, and only in iterations that are due. Otherwise, the
modules of a run are as torch made them. `hookline.common.watching` does the watching.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, TypeVar

from hookline.common.escape import escaped
from hookline.common.patterns import matching
from hookline.common.watching import Backward, Forward, Kind, ModuleWatcher, Seen, check_kind, find_modules
from hookline.errors import ConfigError, HookError
from hookline.plan.hook import Every
from hookline.plan.matching import due_source
from hookline.plan.points import Point
from hookline.plan.sources import source_of

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger("hookline")

F = TypeVar("F", bound=Callable[..., Any])
#: The scope of a forward pass of training: `around_forward` without evaluations, and everything that watches modules.
TRAINED = "around_train_forward"
#: The arguments of a method that watches modules.
SEEN: dict[Kind, Point] = {
    "forward": Point("module_forward", Forward._fields, "iteration"),
    "backward": Point("module_backward", Backward._fields, "iteration"),
}


@dataclass(frozen=True)
class Watch:
    """A method of a hook that watches modules.

    Args:
        patterns: The modules to watch; see `on_module`.
        kind: `forward` or `backward`.
        method: The method to call.
        every: How often, in iterations (`10`) or epochs (`"2ep"`).
    """

    patterns: str | Iterable[str]
    kind: Kind
    method: Callable[..., Any]
    every: int | str | None = None

    def __post_init__(self) -> None:
        check_watch(self.patterns, self.kind, self.every)

    @property
    def name(self) -> str:
        """Return the name of the method."""
        return str(getattr(self.method, "__name__", type(self.method).__name__))


def check_watch(patterns: Any, kind: Any, every: int | str | None) -> None:
    """Refuse patterns that are not texts, an unknown kind, and an invalid frequency."""
    listed = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listed, (list, tuple)) or not listed or not all(isinstance(each, str) for each in listed):
        raise HookError(f"modules are selected by a pattern such as 'layers.*', or several in a list, not {patterns!r}")
    try:
        check_kind(kind)
    except ConfigError as error:
        raise HookError(str(error)) from None
    if every is not None:
        Every(every)


def on_module(
    patterns: str | Iterable[str], kind: Kind = "forward", every: int | str | None = None
) -> Callable[[F], F]:
    """Call a hook's method for modules of the model: after each of their calls, or with their gradients.

        @on_module("layers.*", "forward", every=10)
        def seen(self, runner, name, module, call, inputs, named_inputs, outputs): ...

        @on_module(["encoder", "decoder"], "backward", every=10)
        def flowing(self, runner, name, module, call, output, gradient): ...

    A method takes the runner and any of the other arguments. `*` in a pattern matches dots, too, and `""` is the model
    itself. Before training, a pattern that matches no module is refused. Only training is watched, no evaluation.
    """
    check_watch(patterns, kind, every)

    def mark(method: F) -> F:
        marks = (*getattr(method, "__hookline_watches__", ()), (patterns, kind, every))
        method.__hookline_watches__ = marks  # type: ignore[attr-defined]  # a mark on the function, read by the plan
        method.__hookline_helper__ = True  # type: ignore[attr-defined]  # it is no misspelled point
        return method

    return mark


def watches_of(hook: object, who: str, points: Iterable[str]) -> list[Watch]:
    """Return the methods of a hook that watch modules: marked ones, and those that depend on parameters."""
    watches = []
    for name in dir(type(hook)):
        for patterns, kind, every in getattr(getattr_static(type(hook), name), "__hookline_watches__", ()):
            method = getattr(hook, name)
            if name in points:
                raise HookError(
                    f"{who}.{name} ({source_of(method)}): this is the name of a point, so it cannot watch modules; "
                    "give the method another name"
                )
            watches.append(Watch(patterns, kind, method, every))
    more = getattr(hook, "watches", None)
    return [*watches, *(more() if more is not None else ())]


class Watched:
    """The modules that a method of a hook watches in a run. `hookline.plan.entry` calls the method.

    Args:
        watch: The method and its patterns.
        who: The name of the hook.
        around: The scope of a forward pass in the loop of the hook; None if the loop has none.
    """

    def __init__(self, watch: Watch, who: str, around: Point | None) -> None:
        self.watch, self._who = watch, who
        is_ours = str(getattr(watch.method, "__module__", "")).startswith("hookline.")
        self._where = who if is_ours else f"{who}.{watch.name} ({source_of(watch.method)})"
        if around is None:
            raise HookError(f"{self._where}: modules cannot be watched here, because this loop has no scope 'forward'")
        #: The arguments of the method, and the scope in which modules are watched.
        self.point = replace(SEEN[watch.kind], known_as=watch.name)
        self.scope = replace(around, name=TRAINED, known_as=watch.name)
        self.every = Every(watch.every) if watch.every is not None else frequency_on(watch.method)
        self.due = due_source(self.scope, self.every, self._where) if self.every is not None else ""
        self._watcher: ModuleWatcher | None = None
        #: The finished iterations when the watched iteration began.
        self._iter = -1
        #: True if a forward pass was watched, so that patterns without a call were reported.
        self._is_reported = False

    @property
    def patterns(self) -> list[str]:
        """Return the patterns of the modules."""
        return [self.watch.patterns] if isinstance(self.watch.patterns, str) else list(self.watch.patterns)

    def __str__(self) -> str:
        modules = ", ".join(escaped(pattern) or "the model" for pattern in self.patterns)
        return f"{self._who}.{self.watch.name} watches modules in the {self.watch.kind} pass: {modules}"

    def find(self, model: nn.Module, wrapped: nn.Module) -> None:
        """Find the modules. Refuse a pattern that matches none, and modules inside compiled code."""
        try:
            modules = find_modules(model, self.patterns, wrapped)
        except ConfigError as error:
            raise HookError(f"{self._where}: {error}") from None
        self._watcher = ModuleWatcher(modules, (self.watch.kind,), self.see)
        self._iter, self._is_reported = -1, False

    def close(self) -> None:
        """See nothing from now on: the hook was removed, perhaps by its own failure in this forward pass."""
        self._iter = -1

    def around(self, host: Any) -> Iterator[None]:
        """Watch the modules in a forward pass. Several passes of one iteration count calls together."""
        if self._watcher is None:  # registered during training
            self.find(host.model, getattr(host, "wrapped", host.model))
        assert self._watcher is not None, "it was found"
        if self._iter != host.iter:
            self._iter = host.iter
            self._watcher.begin()
        with self._watcher.installed():
            yield
        if not self._is_reported:
            self._is_reported = True
            self._report_uncalled(self._watcher.calls)

    def _report_uncalled(self, called: Iterable[str]) -> None:
        for pattern in self.patterns:
            if not (matching(pattern, called) if pattern else "" in called):
                log.warning(
                    "%s: no module that matches '%s' was called in the forward pass of iteration %d, so nothing is "
                    "seen; a parent may use its weights without calling it: watch the parent",
                    *(self._where, pattern, self._iter + 1),
                )

    def is_watching(self, host: Any) -> bool:
        """Return whether this iteration is watched. Graphs that the user keeps may have gradients in later ones."""
        return bool(self._iter == host.iter)

    def see(self, seen: Seen) -> None:
        """Call the method."""
        raise NotImplementedError


def frequency_on(method: Callable[..., Any]) -> Every | None:
    """Return the frequency that `@every` set on a method; None without one."""
    return getattr(method, "__hookline_every__", None)
