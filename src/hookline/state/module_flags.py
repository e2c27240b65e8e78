"""What hooks change in a model and its optimizers: flags of parameters and modules, and parameter groups.

A hook may freeze a layer once, with `requires_grad_(False)` or `eval()`. A checkpoint has the flags at the save, and
the flags of the model as the script built it. So a resumed run knows what hooks did, and what the user has changed in
the script.

An optimizer stores its parameters by their numbers, and the script of a resumed run builds its first groups only. So if
a hook has added a group (`add_param_group`) or moved parameters, the names are saved, too. The states are loaded into
the groups of the checkpoint, and the optimizer then gets its own groups back until the run continues: hooks that run
before see what they saw when the run began, and may add the group again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from hookline.common.escape import escaped
from hookline.common.modes import HOLDERS, LEFT
from hookline.errors import HookError
from hookline.state.contents import CustomPart, HostPart

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.optim.optim import Optim

#: The names of the parts.
MODULES, GROUPS = "modules", "groups"
#: The lists of names: parameters that require no gradient, and modules in evaluation mode.
LISTS = ("frozen", "eval")

Flags = dict[str, list[str]]
Names = list[list[str]]


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
        self.built = _flags_of(self._host.model)

    def state_dict(self) -> dict[str, Any]:
        """Return the flags now, and as the model was built."""
        now = _flags_of(self._host.model)
        if (evaluated := LEFT.get(self._host.model)) is not None:  # the model is not in training now
            now["eval"] = evaluated
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


def _flags_of(model: nn.Module) -> Flags:
    parameters, modules = model.named_parameters(), model.named_modules()
    return {
        "frozen": [name for name, each in parameters if not each.requires_grad and HOLDERS not in vars(each)],
        "eval": [name for name, each in modules if not each.training and HOLDERS not in vars(each)],
    }


class GroupsPart(HostPart):
    """The names of the parameters in each group, for the optimizers whose groups have changed during the run."""

    late = True
    loads_without_state = True
    option = "optimizer"

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        #: The groups of each optim as the script built them.
        self._built: dict[str, Names] = {}
        #: The same as numbers, which are found much faster. The names decide.
        self._same: dict[str, list[list[int]]] = {}
        #: The groups of the checkpoint that the script does not build, until the run continues.
        self._added: dict[str, list[dict[str, Any]]] = {}
        #: The states of their parameters.
        self._states: dict[str, dict[Tensor, Any]] = {}

    def note_built(self) -> None:
        """Remember the groups before hooks can change them."""
        named = self._named()
        self._built = {name: _names_of(optim, named) for name, optim in self._host.optims.items()}
        self._same = {name: _groups_of(optim) for name, optim in self._host.optims.items()}

    def state_dict(self) -> dict[str, Any] | None:
        """Return the groups that have changed: the sizes as they were built, and the names now."""
        changed = {}
        for name, optim in self._host.optims.items():
            if name not in self._built or _groups_of(optim) == self._same[name]:
                continue
            now = _names_of(optim, self._named())
            if now != self._built[name]:
                _refuse_nameless(name, optim, now)
                changed[name] = {"built": [len(group) for group in self._built[name]], "names": now}
        return changed or None

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Give the optimizers the groups of the checkpoint, with their options."""
        for name, optim in self._host.optims.items():
            if (saved := _share(state, name)) is not None:
                self._adopt(optim, self._parameters(saved["names"]), len(saved["built"]), self._added.pop(name, []))
                optim.optimizer.state.update(self._states.pop(name, {}))

    def _adopt(self, optim: Optim, parameters: list[list[Tensor]], built: int, added: list[dict[str, Any]]) -> None:
        """Put the parameters into the groups. A group that a hook has added again gets the saved options."""
        groups = optim.optimizer.param_groups
        newer = groups[max(len(parameters), built) :]
        del groups[len(parameters) :]
        for number, own in enumerate(parameters):
            if number == len(groups):
                groups.append(added[number - built])
            elif number >= built:
                groups[number].update(added[number - built])
            groups[number]["params"] = own
        known = {id(each) for own in parameters for each in own}
        for group in newer:  # of a hook that only this run has
            group["params"] = [each for each in group["params"] if id(each) not in known]
            groups += [group] if group["params"] else []

    # -- for the states of the optimizers, which are loaded earlier

    @contextmanager
    def as_saved(self, name: str, optim: Optim, checkpoint: Mapping[str, Any]) -> Iterator[None]:
        """Give an optimizer the groups of a checkpoint inside the context, and then its own ones with new options."""
        saved = _share(checkpoint.get(GROUPS), name)
        if saved is None:
            yield
            return
        optimizer = optim.optimizer
        own = [(group, group["params"]) for group in optimizer.param_groups]
        groups = [dict(group) for group in (*optimizer.param_groups, *self._added.get(name, ()))]
        for number, parameters in enumerate(self._parameters(saved["names"])):
            if number == len(groups):
                groups.append(dict(optimizer.defaults))
            groups[number]["params"] = parameters
        optimizer.param_groups = groups[: len(saved["names"])]
        yield
        loaded, built = optimizer.param_groups, {id(each) for _, parameters in own for each in parameters}
        self._added[name] = loaded[len(own) :]
        others = [each for each in optimizer.state if id(each) not in built]
        self._states.setdefault(name, {}).update({each: optimizer.state.pop(each) for each in others})
        optimizer.param_groups = [
            {**(loaded[number] if number < len(loaded) else group), "params": parameters}
            for number, (group, parameters) in enumerate(own)
        ]

    def find(self, who: str, name: str, optim: Optim, checkpoint: Mapping[str, Any]) -> list[list[Tensor]] | str:
        """Return the parameters in the groups of a checkpoint, or why this optimizer cannot have them."""
        saved, own = _share(checkpoint.get(GROUPS), name), [group["params"] for group in optim.optimizer.param_groups]
        if saved is None:
            return own
        sizes, then, known = [len(group) for group in own], saved["built"], self._named()
        if sizes != then:
            return f"{who}: this run has groups of {sizes} parameters, the run of the checkpoint began with {then}"
        for each in (each for group in saved["names"] for each in group if each not in known):
            return (
                f"{who}: a hook has put '{escaped(each)}' into a parameter group of the checkpoint, but the model has "
                "no such parameter"
            )
        return self._parameters(saved["names"])

    def malformed(self, state: Any) -> list[str]:
        """Expect names in lists, and sizes."""
        if not isinstance(state, dict):
            return [""]
        return [f"['{name}']" for name, saved in state.items() if not _is_groups(saved)]

    # -- names

    def _named(self) -> dict[str, Tensor]:
        """Return the parameters by name: of the model, and of modules that the user has added as parts."""
        parts = {name: part.part for name, part in self._host.contents.parts.items() if isinstance(part, CustomPart)}
        modules = {f"{name}:": each for name, each in parts.items() if isinstance(each, nn.Module)}
        return {
            f"{prefix}{name}": parameter
            for prefix, module in {"": self._host.model, **modules}.items()
            for name, parameter in module.named_parameters(remove_duplicate=False)
        }

    def _parameters(self, names: Names) -> list[list[Tensor]]:
        known = self._named()
        return [[known[name] for name in group] for group in names]


def _groups_of(optim: Optim) -> list[list[int]]:
    return [[id(each) for each in group["params"]] for group in optim.optimizer.param_groups]


def _names_of(optim: Optim, named: Mapping[str, Tensor]) -> Names:
    """Return the names of the parameters in each group; empty for a parameter without one."""
    names: dict[int, str] = {}
    for name, parameter in named.items():
        names.setdefault(id(parameter), name)
    return [[names.get(id(each), "") for each in group["params"]] for group in optim.optimizer.param_groups]


def _refuse_nameless(name: str, optim: Optim, now: Names) -> None:
    """Refuse a group with a parameter that no checkpoint contains."""
    who = f"optim '{escaped(name)}'" if name else "the optimizer"
    for number, group in enumerate(now):
        if "" in group:
            shape = tuple(optim.optimizer.param_groups[number]["params"][group.index("")].shape)
            raise HookError(
                f"{who} ({type(optim.optimizer).__name__}): parameter group {number} has changed during the run, and "
                f"has a parameter of shape {shape} that is not in the model, so no run could resume from this "
                "checkpoint; nothing was saved. Put the parameter into the model, or add its module with "
                "runner.add_part, before add_param_group"
            )


def _share(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else None


def _is_groups(saved: Any) -> bool:
    if not isinstance(saved, dict) or not all(isinstance(saved.get(key), list) for key in ("built", "names")):
        return False
    groups = saved["names"]
    return all(type(size) is int for size in saved["built"]) and all(
        isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups
    )
