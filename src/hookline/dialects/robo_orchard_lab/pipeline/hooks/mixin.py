"""The building blocks of pipeline hooks: channels, their arguments, and configs.

A run uses its channels in this order:

    with on_loop:
        with on_epoch:                      for every epoch
            with on_step:                   for every batch
                with on_batch:
                    with on_model_forward:  the batch processor's forward
                    with on_model_backward: the backward pass
                                            at the end of on_step, before other hooks: clip, then
                    with on_optimizer_step: optimizer and scheduler
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, get_args, runtime_checkable

from hookline.dialects.errors import HookAttributeError, HookKeyError, HookTypeError
from hookline.dialects.robo_orchard_core.utils.config import ClassConfig, ClassInitFromConfigMixin, ClassType
from hookline.dialects.robo_orchard_core.utils.function_info import class_name
from hookline.dialects.robo_orchard_core.utils.hook import (
    HookContext,
    HookContextChannel,
    HookContextFromCallable,
    RemoveableHandle,
)
from hookline.errors import did_you_mean
from hookline.plan.plan import Plan
from hookline.plan.points import Point

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer
    from hookline.plan.points import Unit

__all__ = [
    "ClassType",
    "HookContext",
    "HookContextChannel",
    "HookContextFromCallable",
    "MicroStepProgressState",
    "ModelOutput",
    "ModelOutputHasLossKeys",
    "PipelineHookArgs",
    "PipelineHookChanelType",
    "PipelineHooks",
    "PipelineHooksConfig",
    "RemoveableHandle",
]

PipelineHookChanelType = Literal[
    "on_loop",
    "on_epoch",
    "on_step",
    "on_batch",
    "on_model_forward",
    "on_model_backward",
    "on_optimizer_step",
]
CHANNELS: tuple[PipelineHookChanelType, ...] = get_args(PipelineHookChanelType)
#: The scope of the core for each channel, and what it counts. So the ledger knows the parts of a step.
SCOPES: dict[PipelineHookChanelType, tuple[str, Unit | None]] = {
    "on_loop": ("train", None),
    "on_epoch": ("train_epoch", "epoch"),
    "on_step": ("train_iter", "iteration"),
    "on_batch": ("batch", "iteration"),
    "on_model_forward": ("train_forward", "iteration"),
    "on_model_backward": ("backward", "iteration"),
    "on_optimizer_step": ("optimizer_step", "update"),
}


@runtime_checkable
class ModelOutput(Protocol):
    """Outputs by name."""

    def __getitem__(self, key: str) -> Any: ...

    def keys(self) -> Iterable[Any]:
        """Return the names of the outputs."""
        ...


@runtime_checkable
class ModelOutputHasLossKeys(ModelOutput, Protocol):
    """Outputs that name their losses."""

    def loss_keys(self) -> Iterable[str]:
        """Return the names of the losses."""
        ...


@dataclass
class MicroStepProgressState:
    """The number of finished batches, in the epoch and in the run."""

    epoch_step_id: int = 0
    global_step_id: int = 0


@dataclass
class PipelineHookArgs:
    """The argument of a hook: one object per pass through a channel. Hooks may write to it.

    Epochs and steps are counted from 0. If something failed, `exception` is the error in every `after`.
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
    #: True in the `after` of a step that was processed.
    _processed: ClassVar[bool] = False
    #: The trainer, if there is one. It takes requests for checkpoints.
    _trainer: ClassVar[HookBasedTrainer | None] = None
    #: True in a step whose parts are measured, even without hooks around them.
    _measured: ClassVar[bool] = False
    #: True if the trainer found that torch itself does the backward pass and the step; see `direct.py`.
    _direct: ClassVar[bool] = False

    @property
    def micro_step(self) -> MicroStepProgressState:
        """Return how many batches are finished, as later versions count: one more in the `after` of a step."""
        return MicroStepProgressState(self.step_id + self._processed, self.global_step_id + self._processed)

    def copy_with_updates(self, **fields: Any) -> Self:
        """Return a copy with other values. Attributes that a hook has added are copied, too."""
        for name in fields:
            if not hasattr(self, name):
                known = [one for one in vars(self) if not one.startswith("_")]
                raise HookAttributeError(f"unknown hook argument '{name}'; {did_you_mean(name, known)}")
        copied = self.copy()
        copied.__dict__.update(fields)
        return copied

    def copy(self) -> Self:
        """Return a copy. It is created without the constructor, which would be slower."""
        copied = object.__new__(type(self))
        copied.__dict__ = self.__dict__.copy()
        return copied


@dataclass(eq=False)
class _Part:
    """One registration of a whole PipelineHooks."""

    hooks: PipelineHooks


class PipelineHooks(ClassInitFromConfigMixin):
    """Hooks at the channels of the pipeline. A subclass registers its own hooks in its constructor."""

    hooks: dict[str, HookContextChannel[PipelineHookArgs]]
    #: One entry for each time that a whole PipelineHooks was registered.
    _parts: list[_Part]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Create the channels here, so that they exist even if a constructor does not call `super().__init__()`."""
        created = super().__new__(cls)
        created.hooks, created._parts = {name: HookContextChannel(name) for name in CHANNELS}, []
        return created

    @classmethod
    def of_host(cls, host: Any) -> tuple[Plan, Self]:
        """Create the plan of a host, and hooks whose channels are its scopes."""
        points = [
            Point(f"around_{scope}", ("args",), counts, left_in_order=True, known_as=name)
            for name, (scope, counts) in SCOPES.items()
        ]
        plan, created = Plan(host, table={}, scopes={point.name: point for point in points}), cls()
        created.hooks = {name: HookContextChannel(name, plan, scope) for name, (scope, _) in SCOPES.items()}
        return plan, created

    def _channel(self, name: str) -> HookContextChannel[PipelineHookArgs]:
        if name not in self.hooks:
            raise HookKeyError(f"unknown channel '{name}'; {did_you_mean(str(name), self.hooks)}")
        return self.hooks[name]

    def begin(self, channel: PipelineHookChanelType, arg: PipelineHookArgs) -> AbstractContextManager[PipelineHookArgs]:
        """Return a context manager that wraps its body with the hooks of a channel."""
        return self._channel(channel).begin(arg)

    def register_hook(
        self, channel: PipelineHookChanelType, hook: HookContext[PipelineHookArgs]
    ) -> RemoveableHandle[Callable[[], None]]:
        """Register a hook at a channel, after the others. The handle removes it."""
        return self._channel(channel).register(hook)

    def register_pipeline_hooks(self, hooks: PipelineHooks) -> RemoveableHandle[Callable[[], None]]:
        """Register all hooks of another PipelineHooks, including those that it gets later. The handle removes them."""
        if not isinstance(hooks, PipelineHooks):
            raise HookTypeError(
                f"hooks must be a PipelineHooks, not a {type(hooks).__name__}; if it is a config, call it"
            )
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
        """Remove all hooks."""
        for channel in self.hooks.values():
            channel.unregister_all()
        self._parts.clear()

    @classmethod
    def from_hooks(cls, hooks: Any = None) -> Self:
        """Combine hooks or their configs (one, several or None) into one object."""
        several = isinstance(hooks, Iterable) and not isinstance(hooks, (PipelineHooksConfig, Mapping, str, type))
        combined = cls()
        for one in hooks if several else [] if hooks is None else [hooks]:
            hook = one() if isinstance(one, PipelineHooksConfig) else one
            if not isinstance(hook, PipelineHooks):
                raise HookTypeError(f"hooks must be PipelineHooks or their configs, not {_describe_and_advise(hook)}")
            combined.register_pipeline_hooks(hook)
        return combined

    def members(self) -> Iterator[Any]:
        """Yield everything that is registered, once each: whole PipelineHooks, their members, and single contexts."""
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


def _describe_and_advise(hook: Any) -> str:
    """Describe an object that is not a hook, and say what to write instead, if that is known."""
    if isinstance(hook, type):
        return f"the class {hook.__name__}; write {hook.__name__}(...)"
    if isinstance(hook, HookContext):
        return f"a {type(hook).__name__}; register it at a channel: PipelineHooks().register_hook('on_step', ...)"
    return repr(hook)


HooksT_co = TypeVar("HooksT_co", bound=PipelineHooks, covariant=True)


class PipelineHooksConfig(ClassConfig[HooksT_co]):
    """The config of a PipelineHooks. Call it to create the hooks."""
