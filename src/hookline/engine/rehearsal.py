"""Validations that must not count: the trial batch before training, and a validation that a signal interrupts.

The trial uses copies of the metrics, and restores the buffers of the model. After an interrupted validation, the
checkpoint contains the state from before it, because the resumed run validates again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hookline.engine import hook_states
from hookline.engine.host import CustomPart
from hookline.errors import StorageError
from hookline.plan.plan import is_custom

if TYPE_CHECKING:
    from hookline.engine.runner_host import RunnerHost
    from hookline.plan.plan import Entry

#: The points and scopes of a validation before its metrics are known.
INSIDE = frozenset(
    {"before_val", "before_val_epoch", "before_val_iter", "after_val_iter"}
    | {"around_val", "around_val_epoch", "around_val_iter"}
)
#: The parts of a checkpoint that a validation may change, besides buffers and parts that a user added.
CHANGED = ("position", "message_hub", "writers", "rng")


class Interrupted(BaseException):
    """Leaves a validation. It is not an error, and no hook sees it."""


class BeforeValidation:
    """The parts of a run's state that a validation may change, as they were before it."""

    def __init__(self, runner: RunnerHost) -> None:
        self._parts = {
            name: copy.deepcopy(part.state_dict())
            for name, part in runner.parts.items()
            if name in CHANGED or isinstance(part, CustomPart)
        }
        self._hooks = copy.deepcopy(hook_states.collect(entry for entry in runner.plan if _takes_part(entry)))
        weights = set(runner.weight_names())
        state = runner.model.state_dict()
        self._buffers = {name: _copy(state[name]) for name in state if name not in weights}

    def put_into(self, states: dict[str, Any]) -> None:
        """Replace the states that the validation may have changed."""
        states |= self._parts
        states["hooks"] = states["hooks"] | self._hooks
        states["state_dict"] = states["state_dict"] | self._buffers


def before_validation(runner: RunnerHost) -> BeforeValidation | None:
    """Return the state before a validation that can be interrupted; None if it has to be finished.

    It has to be finished if a hook that affects training takes part in it: such a hook may have put other weights into
    the model, for example. A validation whose iteration is already saved needs no state.
    """
    if runner.saving.saved_at == runner.iter:
        return None
    if any(_takes_part(entry) and getattr(entry.hook, "role", "actor") != "observer" for entry in runner.plan):
        return None
    try:
        return BeforeValidation(runner)
    except StorageError:  # records that a checkpoint refers to cannot be written
        return None


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _takes_part(entry: Entry) -> bool:
    return is_custom(entry.hook) and any(call.point.name in INSIDE for call in entry.calls)


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the buffers and extra states of a model afterwards.

    A buffer that now has another shape is a cache, and stays.
    """
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    extra = [
        (module, copy.deepcopy(module.get_extra_state()))
        for module in model.modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    ]
    try:
        yield
    finally:
        for module, name, buffer, value in buffers:
            now = module._buffers.get(name)
            if now is not None and now.shape == value.shape == buffer.shape:
                with torch.no_grad():
                    buffer.copy_(value)
                module._buffers[name] = buffer
        for module, state in extra:
            module.set_extra_state(state)
