"""The flags of a model: which parameters are frozen, and which modules are in evaluation mode.

A hook may freeze a layer once, with `requires_grad_(False)` or `eval()`. A checkpoint has the flags at the save, and
the flags of the model as the script built it. So a resumed run knows what hooks did, and what the user has changed in
the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.modes import HOLDERS, modes_in_training, modes_of
from hookline.state.host import HostPart

if TYPE_CHECKING:
    from torch import nn

#: The name of the part.
MODULES = "modules"
#: The lists of names: parameters that require no gradient, and modules in evaluation mode.
LISTS = ("frozen", "eval")

Flags = dict[str, list[str]]


class ModulesPart(HostPart):
    """The flags of the parameters and modules. What FreezeHook holds does not count: it decides from its parameters."""

    late = True
    loads_without_state = True

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        #: The flags of the model as the script built it.
        self.built: Flags = {}

    def note_built(self) -> None:
        """Remember the flags before hooks can change them."""
        self.built = _flags_of(self._host.model, modes_of(self._host.model))

    def state_dict(self) -> dict[str, Any]:
        """Return the flags now, and as the model was built."""
        now = _flags_of(self._host.model, modes_in_training(self._host.model))
        built = self.built or now
        # The same list is stored once.
        return {name: built[name] if now[name] == built[name] else now[name] for name in LISTS} | {"built": built}

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the flags, except where the user has changed the model since."""
        if state is None:  # of an earlier version
            return
        model: nn.Module = self._host.model
        parameters = {name: each for name, each in model.named_parameters() if HOLDERS not in vars(each)}
        for name, frozen in self._restored("frozen", state, parameters).items():
            if parameters[name].requires_grad is frozen:
                parameters[name].requires_grad = not frozen
        modules = {name: each for name, each in model.named_modules() if HOLDERS not in vars(each)}
        for name, evaluates in self._restored("eval", state, modules).items():
            modules[name].training = not evaluates

    def _restored(self, key: str, state: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, bool]:
        """Return the flags to restore: all but those that the script sets differently now, and that no hook changed."""
        saved, then, now = set(state[key]), set(state["built"][key]), set(self.built.get(key, ()))
        return {
            name: name in saved for name in names if (name in then) == (name in now) or (name in saved) == (name in now)
        }

    def malformed(self, state: Any) -> list[str]:
        """Expect lists of names."""
        if not isinstance(state, dict) or not isinstance(state.get("built"), dict):
            return [""]
        sides = {"": state, "['built']": state["built"]}
        return [
            f"{where}['{key}']"
            for where, side in sides.items()
            for key in LISTS
            if not isinstance(names := side.get(key), list) or not all(isinstance(name, str) for name in names)
        ]


def _flags_of(model: nn.Module, modes: Mapping[str, bool]) -> Flags:
    named = model.named_parameters()
    return {
        "frozen": [name for name, each in named if not each.requires_grad and HOLDERS not in vars(each)],
        "eval": [name for name, trains in modes.items() if not trains],
    }
