"""The state before a validation that a signal interrupts. A checkpoint holds it, and a resumed run validates again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.checkpoint.copies import Copies
from hookline.errors import StorageError
from hookline.plan.entry import is_custom
from hookline.state import hook_states
from hookline.state.contents import CustomPart

if TYPE_CHECKING:
    from torch import nn

    from hookline.plan.entry import Entry
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
                    for name, part in host.contents.parts.items()
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
    if actors_inside(host):
        return None
    try:
        return BeforeValidation(host, model)
    except (StorageError, RecursionError):  # records cannot be written, or a state contains itself: a save reports it
        return None


def actors_inside(host: Host) -> list[str]:
    """Return the hooks of the user that take part in a validation, and may change training."""
    return [
        entry.name
        for entry in host.plan
        if is_custom(entry.hook) and _takes_part(entry) and getattr(entry.hook, "role", "actor") != "observer"
    ]


def _takes_part(entry: Entry) -> bool:
    points = INSIDE | SCOPES if is_custom(entry.hook) else INSIDE
    return any(call.point.name in points for call in entry.calls)
