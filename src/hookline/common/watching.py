"""Watching the modules of a model: which of them were called, with which tensors, and which gradients came back.

    def show(seen):
        print(seen.kind, seen.name, seen.call)

    with watching(model, "layers.*", ["forward", "backward"], show):
        loss_of(model, batch).backward()

Watching changes no number. A callback runs without gradients and without autocast, and its result is ignored.

A gradient is read from the tensors that a module returns. `register_full_backward_hook` of torch would put a function
into the graph: then an in-place operation on the output, as `ReLU(inplace=True)` makes it, fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hookline.common.patterns import matching, no_match
from hookline.common.torch_private import compiled_from, has_compiled_call, is_in_backward
from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

#: The pass in which modules are watched.
Kind = Literal["forward", "backward"]
KINDS: tuple[Kind, ...] = ("forward", "backward")


class Forward(NamedTuple):
    """A call of a module."""

    name: str
    module: nn.Module
    #: The number of the call since watching began, from 0: a module may be used several times.
    call: int
    inputs: tuple[Any, ...]
    named_inputs: Mapping[str, Any]
    outputs: Any

    @property
    def kind(self) -> Kind:
        """Return the pass."""
        return "forward"


class Backward(NamedTuple):
    """The gradient of one tensor that a call of a module has returned."""

    name: str
    module: nn.Module
    #: The number of the call that returned the tensor, as in `Forward`.
    call: int
    #: The number of the tensor among all tensors that the call returned, from 0.
    output: int
    gradient: Tensor

    @property
    def kind(self) -> Kind:
        """Return the pass."""
        return "backward"


Seen = Forward | Backward


@contextmanager
def watching(
    model: nn.Module, patterns: str | Iterable[str], kinds: Collection[Kind], callback: Callable[[Seen], None]
) -> Iterator[None]:
    """Watch the modules that match a pattern inside the context. Gradients that come later are not seen.

    `""` is the model itself. All other patterns match the names of the modules in it, as `model.named_modules()` has
    them. A pattern that matches nothing is refused.
    """
    watcher = ModuleWatcher(find_modules(model, patterns), kinds, callback)
    try:
        with watcher.installed():
            yield
    finally:
        watcher.begin()


class ModuleWatcher:
    """Watches given modules, from the outside of any loop.

    Args:
        modules: The modules by name.
        kinds: The passes to watch: `forward`, `backward` or both.
        callback: Called for every call of a module, or every gradient.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], kinds: Collection[Kind], callback: Callable[[Seen], None]
    ) -> None:
        for kind in kinds:
            check_kind(kind)
        self.modules = modules
        self._kinds, self._callback = kinds, callback
        #: The number of calls of each module that was called.
        self.calls: dict[str, int] = {}
        self._recomputed: dict[str, int] = {}
        #: True while the callback runs: it may call modules itself.
        self._is_calling = False
        #: What graphs have to hold so that their gradients are seen: a new object ends the interest in older graphs.
        self._interest = object()

    def begin(self) -> None:
        """Count calls from 0. Gradients of earlier calls are no longer seen."""
        self.calls, self._recomputed, self._interest = {}, {}, object()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch all forward passes inside the context. Gradients of them are seen until the next `begin`."""
        with ExitStack() as handles:
            for name, module in self.modules.items():
                handle = module.register_forward_hook(partial(self._after_forward, name), with_kwargs=True)
                handles.callback(handle.remove)
            yield

    def _after_forward(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any], outputs: Any
    ) -> None:
        if self._is_calling:
            return
        # Activation checkpointing calls modules again in the backward pass. Such a call is not a new one.
        counts = self._recomputed if (is_recomputed := is_in_backward()) else self.calls
        call = counts.get(name, 0)
        counts[name] = call + 1
        if "forward" in self._kinds and not is_recomputed:
            with undisturbed(outputs):
                self._call(Forward(name, module, call, inputs, named_inputs, outputs))
        if "backward" in self._kinds:
            self._follow(name, module, call, outputs)

    def _call(self, seen: Seen) -> None:
        self._is_calling = True
        try:
            self._callback(seen)
        finally:
            self._is_calling = False

    def _follow(self, name: str, module: nn.Module, call: int, outputs: Any) -> None:
        """Wait for the gradients of the outputs. Only the graph keeps this, and it ends with the graph."""
        interest, followed = self._interest, set()

        def see(output: int, gradient: Tensor) -> None:
            if interest is self._interest:
                with undisturbed(gradient):
                    self._call(Backward(name, module, call, output, gradient))

        for output, tensor in enumerate(tensors_in(outputs)):
            if tensor.requires_grad and id(tensor) not in followed:
                followed.add(id(tensor))
                tensor.register_hook(partial(see, output))  # type: ignore[no-untyped-call]  # torch has no annotations


def check_kind(kind: object) -> None:
    """Refuse a pass that does not exist."""
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) if isinstance(kind, str) else "use 'forward' or 'backward'"
        raise ConfigError(f"modules are watched in the 'forward' or the 'backward' pass, not {kind!r}; {hint}")


def find_modules(
    model: nn.Module, patterns: str | Iterable[str], wrapped: nn.Module | None = None
) -> dict[str, nn.Module]:
    """Return the modules of a model that match a pattern, by name. Refuse a pattern that matches nothing.

    Containers that are never called, such as `ModuleList`, are left out. A module with several names has the first one
    that matches. `wrapped` is the model as it is called, which may be compiled: modules inside are refused.
    """
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    named = {name: module for name, module in model.named_modules(remove_duplicate=False) if is_called(module)}
    own = named.pop("", None)
    modules: dict[str, nn.Module] = {}
    known: set[nn.Module] = set()
    for pattern in listed:
        names = [""] if pattern == "" and own is not None else matching(pattern, named)
        if not names:
            raise ConfigError(no_match(pattern, named, "module"))
        for name in names:
            module = named[name] if name else model
            if module not in known:
                known.add(module)
                modules[name] = module
    compiled = compiled_modules(model if wrapped is None else wrapped)
    for name, module in modules.items():
        if module in compiled:
            what = f"module '{name}'" if name else "model"
            raise ConfigError(
                f"the {what} is compiled, and compiled code does not call modules one by one, so it cannot be "
                "watched; train without compile, or watch modules outside the compiled part"
            )
    return modules


def is_called(module: nn.Module) -> bool:
    """Return whether a module can be called. Containers such as `ModuleList` cannot."""
    from torch import nn

    return type(module).forward is not nn.Module.forward or "forward" in vars(module)


def compiled_modules(model: nn.Module) -> set[nn.Module]:
    """Return the modules that run inside compiled code."""
    inside: set[nn.Module] = set()
    for module in model.modules():
        whole = module if has_compiled_call(module) else compiled_from(module)
        if whole is not None:
            inside.update(whole.modules())
    return inside


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in the outputs of a module: in tuples, lists, mappings and dataclasses."""
    from torch import Tensor

    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


@contextmanager
def undisturbed(value: Any) -> Iterator[None]:
    """Compute something beside the forward pass: without a graph, and without autocast.

    Autocast would keep a weight that it converts here, without a gradient, and the model would use that one later.
    """
    import torch

    kind = next((tensor.device.type for tensor in tensors_in(value)), "cpu")
    casts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    with torch.no_grad(), torch.autocast(kind, enabled=False) if casts else nullcontext():
        yield
