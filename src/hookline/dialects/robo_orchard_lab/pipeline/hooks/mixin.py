"""What hooks of the pipeline are made of: channels, their arguments, and configs.

A run goes through its channels like this:

    with on_loop:
        with on_epoch:                      again and again
            with on_step:                   for every batch
                with on_batch:
                    with on_model_forward:  the batch processor's forward
                    with on_model_backward: the backward pass
                                            on leaving on_step, first of all: clip, optimizer, scheduler
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, get_args, runtime_checkable

from hookline.dialects.robo_orchard_core.refusals import HookAttributeError, HookKeyError, HookTypeError
from hookline.dialects.robo_orchard_core.utils.config import ClassConfig, ClassInitFromConfigMixin, ClassType
from hookline.dialects.robo_orchard_core.utils.function_info import class_name
from hookline.dialects.robo_orchard_core.utils.hook import (
    HookContext,
    HookContextChannel,
    HookContextFromCallable,
    RemoveableHandle,
)
from hookline.errors import did_you_mean

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.saves import FolderSaving

__all__ = [
    "ClassType",
    "HookContext",
    "HookContextChannel",
    "HookContextFromCallable",
    "ModelOutput",
    "ModelOutputHasLossKeys",
    "PipelineHookArgs",
    "PipelineHookChanelType",
    "PipelineHooks",
    "PipelineHooksConfig",
    "RemoveableHandle",
]

PipelineHookChanelType = Literal["on_loop", "on_epoch", "on_step", "on_batch", "on_model_forward", "on_model_backward"]
CHANNELS: tuple[PipelineHookChanelType, ...] = get_args(PipelineHookChanelType)


@runtime_checkable
class ModelOutput(Protocol):
    """Outputs by name."""

    def __getitem__(self, key: str) -> Any: ...

    def keys(self) -> Iterable[Any]:
        """The names."""
        ...


@runtime_checkable
class ModelOutputHasLossKeys(ModelOutput, Protocol):
    """Outputs that say which of them are losses."""

    def loss_keys(self) -> Iterable[str]:
        """The names of the losses."""
        ...


@dataclass
class PipelineHookArgs:
    """What a hook gets: one object for each passage through a channel, which hooks may write to.

    Epochs and steps are counted from 0. Where something failed, `exception` says what, in every `after`.
    """

    accelerator: Accelerator
    epoch_id: int = 0
    step_id: int = 0
    global_step_id: int = 0
    max_epoch: int | None = None
    max_step: int | None = None
    start_epoch: int = 0
    start_step: int = 0
    dataloader: Any = None
    model: Any = None
    optimizer: Any = None
    lr_scheduler: Any = None
    batch: Any = None
    model_outputs: Any = None
    reduce_loss: Any = None
    exception: BaseException | None = None
    #: Where a trainer takes orders for checkpoints; they are written when the step, the epoch or the loop is over.
    _saves: ClassVar[FolderSaving | None] = None
    #: Whether a trainer has found that the backward pass and the step are torch's own; see `direct.py`.
    _direct: ClassVar[bool] = False

    def copy_with_updates(self, **fields: Any) -> Self:
        """A copy with other values; what a hook has added to the original is in the copy, too."""
        for name in fields:
            if not hasattr(self, name):
                known = [one for one in vars(self) if not one.startswith("_")]
                raise HookAttributeError(f"hooks get no argument '{name}'; {did_you_mean(name, known)}")
        made = self.copy()
        made.__dict__.update(fields)
        return made

    def copy(self) -> Self:
        """A copy; made without the constructor, which takes longer."""
        made = object.__new__(type(self))
        made.__dict__ = self.__dict__.copy()
        return made


@dataclass(eq=False)
class _Part:
    """That hooks were added as a whole."""

    hooks: PipelineHooks


class PipelineHooks(ClassInitFromConfigMixin):
    """Hooks at the channels of the pipeline; a subclass registers its own ones in its constructor."""

    hooks: dict[str, HookContextChannel[PipelineHookArgs]]
    #: The hooks that were added as a whole, each as often as it was.
    _parts: list[_Part]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The channels are there from the beginning, also where a constructor leaves out `super().__init__()`."""
        made = super().__new__(cls)
        made.hooks, made._parts = {name: HookContextChannel(name) for name in CHANNELS}, []
        return made

    def _channel(self, name: str) -> HookContextChannel[PipelineHookArgs]:
        if name not in self.hooks:
            raise HookKeyError(f"there is no channel '{name}'; {did_you_mean(str(name), self.hooks)}")
        return self.hooks[name]

    def begin(self, channel: PipelineHookChanelType, arg: PipelineHookArgs) -> AbstractContextManager[PipelineHookArgs]:
        """Surround a piece of work with the hooks of a channel."""
        return self._channel(channel).begin(arg)

    def register_hook(
        self, channel: PipelineHookChanelType, hook: HookContext[PipelineHookArgs]
    ) -> RemoveableHandle[Callable[[], None]]:
        """Add a hook at a channel, behind the others. The handle takes it out."""
        return self._channel(channel).register(hook)

    def register_pipeline_hooks(self, hooks: PipelineHooks) -> RemoveableHandle[Callable[[], None]]:
        """Add all hooks of another one, also those that it gets later. The handle takes them out."""
        if not isinstance(hooks, PipelineHooks):
            raise HookTypeError(f"PipelineHooks can be added here, not a {type(hooks).__name__}; a config is called")
        handles = [self.hooks[name].register_hook_channel(channel) for name, channel in hooks.hooks.items()]
        self._parts.append(part := _Part(hooks))

        def remove() -> None:
            for handle in handles:
                handle.remove()
            if part in self._parts:
                self._parts.remove(part)

        return RemoveableHandle(remove)

    def __iadd__(self, other: PipelineHooks) -> Self:
        self.register_pipeline_hooks(other)
        return self

    def unregister_all(self) -> None:
        """Take all hooks out."""
        for channel in self.hooks.values():
            channel.unregister_all()
        self._parts.clear()

    @classmethod
    def from_hooks(cls, hooks: Any = None) -> Self:
        """All of these together: hooks or their configs, one or several, or None."""
        several = isinstance(hooks, Iterable) and not isinstance(hooks, (PipelineHooksConfig, Mapping, str, type))
        made = cls()
        for one in hooks if several else [] if hooks is None else [hooks]:
            hook = one() if isinstance(one, PipelineHooksConfig) else one
            if not isinstance(hook, PipelineHooks):
                raise HookTypeError(f"hooks are PipelineHooks or configs of them, not {_what_to_do(hook)}")
            made.register_pipeline_hooks(hook)
        return made

    def members(self) -> Iterator[Any]:
        """Everything that was registered, once each: hooks as a whole, what they are made of, and single contexts."""
        found: list[Any] = []
        for part in self._parts:
            found += [part.hooks, *part.hooks.members()]
        found += [context for channel in self.hooks.values() for context in channel]
        seen: set[int] = set()
        for member in found:
            if id(member) not in seen:
                seen.add(id(member))
                yield member

    def __repr__(self) -> str:
        channels = [f"{name}: {channel!r}, " for name, channel in self.hooks.items() if len(channel)]
        inside = "".join(f"\n{textwrap.indent(channel, '  ')}" for channel in channels)
        content = f"hooks={{{inside}" + ("\n}" if inside else "}")
        return f"<{class_name(type(self))}(\n{textwrap.indent(content, '  ')})>"


def _what_to_do(hook: Any) -> str:
    """What was given in the place of hooks, and, where that can be known, what to write."""
    if isinstance(hook, type):
        return f"the class {hook.__name__}; write {hook.__name__}(...)"
    if isinstance(hook, HookContext):
        return f"a {type(hook).__name__}; register it at a channel: PipelineHooks().register_hook('on_step', ...)"
    return repr(hook)


HooksT_co = TypeVar("HooksT_co", bound=PipelineHooks, covariant=True)


class PipelineHooksConfig(ClassConfig[HooksT_co]):
    """The config of hooks: calling it makes them."""
