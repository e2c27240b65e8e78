"""Validations that must not count: the trial batch before training, and a validation that a signal interrupts.

The trial uses copies of the metrics, and restores the buffers and gradients of the model. After an interrupted
validation, the checkpoint contains the state from before it, because the resumed run validates again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hookline.checkpoint.copies import Copies
from hookline.common.torch_private import buffers_of
from hookline.errors import StorageError
from hookline.plan.plan import is_custom
from hookline.state import hook_states
from hookline.state.host import CustomPart

if TYPE_CHECKING:
    from hookline.plan.plan import Entry
    from hookline.state.host import Host

#: The points of a validation before its metrics are known, and its scopes. A scope of hookline's own hooks undoes its
#: changes when it is left.
INSIDE = frozenset({"before_val", "before_val_epoch", "before_val_iter", "after_val_iter"})
SCOPES = frozenset({"around_val", "around_val_epoch", "around_val_iter"})
#: The parts of a checkpoint that a validation may change, besides buffers and parts that a user added.
CHANGED = ("position", "message_hub", "writers", "metric_states", "rng")


class Interrupted(BaseException):
    """Leaves a validation. It is not an error, and no hook sees it."""


class BeforeValidation:
    """The parts of a run's state that a validation may change, as they were before it."""

    def __init__(self, host: Host, model: nn.Module) -> None:
        weights = {name for name, _ in model.named_parameters()}
        hooks = [entry for entry in host.plan if _takes_part(entry)]
        self._states = Copies().take(
            {
                "parts": {
                    name: part.state_dict()
                    for name, part in host.parts.items()
                    if name in CHANGED or isinstance(part, CustomPart)
                },
                "hooks": dict.fromkeys(entry.name for entry in hooks) | hook_states.collect(hooks),
                "buffers": {name: value for name, value in model.state_dict().items() if name not in weights},
            }
        )

    def put_into(self, states: dict[str, Any]) -> None:
        """Replace the states that the validation may have changed."""
        states.update(self._states["parts"])
        hooks = states["hooks"] | self._states["hooks"]
        states["hooks"] = {name: state for name, state in hooks.items() if state is not None}
        states["state_dict"].update(self._states["buffers"])  # in place, so that it keeps the versions of the modules


def before_validation(host: Host, model: nn.Module) -> BeforeValidation | None:
    """Return the state before a validation that can be interrupted; None if it has to be finished.

    It has to be finished if a hook that affects training takes part in it: such a hook may have put other weights into
    the model, for example. A validation whose iteration is already saved needs no state.
    """
    if host.strategy.on_main(host.saving.is_saved):
        return None
    if any(
        is_custom(entry.hook) and _takes_part(entry) and getattr(entry.hook, "role", "actor") != "observer"
        for entry in host.plan
    ):
        return None
    try:
        return BeforeValidation(host, model)
    except (StorageError, RecursionError):  # records cannot be written, or a state contains itself: a save reports it
        return None


def _takes_part(entry: Entry) -> bool:
    points = INSIDE | SCOPES if is_custom(entry.hook) else INSIDE
    return any(call.point.name in points for call in entry.calls)


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the buffers and extra states of a model afterwards.

    A buffer that now has another shape is a cache, and stays.
    """
    buffers = [
        (module, name, buffer, buffer.shape, _elements(buffer).clone())
        for module in model.modules()
        for name, buffer in buffers_of(module).items()
        if buffer is not None
    ]
    extra = [
        (module, copy.deepcopy(module.get_extra_state()))
        for module in model.modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
        and type(module).set_extra_state is not nn.Module.set_extra_state
    ]
    try:
        yield
    finally:
        for module, name, buffer, shape, value in buffers:
            now = buffers_of(module).get(name)
            if now is not None and now.shape == shape == buffer.shape:
                _elements(buffer).copy_(value)
                buffers_of(module)[name] = buffer
        for module, state in extra:
            module.set_extra_state(state)


@contextmanager
def gradients_restored(model: nn.Module) -> Iterator[None]:
    """Hide the gradients of a model, and restore them afterwards: an evaluation may compute some of its own."""
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


def _elements(buffer: Tensor) -> Tensor:
    """Return a view that has every element once. torch cannot write into a buffer that was made with `expand`."""
    view = buffer.detach()
    repeated = [index for index, step in enumerate(view.stride()) if not step] if view.layout is torch.strided else []
    for index in repeated:
        view = view.narrow(index, 0, min(view.shape[index], 1))
    return view
