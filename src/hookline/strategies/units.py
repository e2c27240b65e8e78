"""The units of FSDP: which modules are gathered and freed together, by class name or by size."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from hookline.common.torch_private import parameters_of
from hookline.errors import ConfigError, did_you_mean

#: The least parameters of a unit, if nothing else is chosen. Smaller messages cost more time than they save memory.
MIN_PARAMS = 1_000_000
WHO = "the strategy 'fsdp'"


def find_units(model: nn.Module, wrap: Sequence[str], min_params: int | None) -> list[nn.Module]:
    """Return the modules that are separate units besides the whole model, inner ones first."""
    if wrap:
        return _by_class(model, wrap)
    units = _by_size(model, MIN_PARAMS if min_params is None else min_params)
    if min_params is not None and not units:
        largest, name = max((_count(module), name) for name, module in model.named_modules() if module is not model)
        raise (
            ConfigError(
                f"{WHO}: min_params is {min_params:,}, but no module inside the model can be a unit of that size (the "
                f"largest is '{name}' with {largest:,}), so it does nothing; lower it, or remove it"
            )
            if largest
            else ConfigError(f"{WHO}: min_params does nothing: the model has no modules inside")
        )
    return units


def _by_class(model: nn.Module, wrap: Sequence[str]) -> list[nn.Module]:
    names = {type(module).__name__ for module in model.modules()}
    for name in wrap:
        if name not in names:
            raise ConfigError(f"{WHO}: wrap: unknown module class '{name}'; {did_you_mean(name, sorted(names))}")
        found = [module for module in model.modules() if type(module).__name__ == name]
        if isinstance(found[0], (nn.ModuleList, nn.ModuleDict)):
            raise ConfigError(f"{WHO}: wrap: a {name} is never called itself, so it cannot be a unit; name its modules")
        if not any(map(_count, found)):
            raise ConfigError(f"{WHO}: wrap: the modules of the class '{name}' have no parameters")
        if found == [model]:
            raise ConfigError(f"{WHO}: wrap: '{name}' is the whole model, which is a unit anyway")
    units = []
    for path, module in reversed(list(model.named_modules())):
        if type(module).__name__ in wrap and module is not model and _count(module):
            if shared := _shared_outside(model, module):
                raise ConfigError(
                    f"{WHO}: wrap: {path} ({type(module).__name__}) cannot be a unit, because its parameter "
                    f"{shared} is also used outside the unit; tied parameters must be in one unit"
                )
            units.append(module)
    return units


def _by_size(model: nn.Module, least: int) -> list[nn.Module]:
    """Return the modules that have as many parameters that are not in a smaller unit."""
    units: list[nn.Module] = []
    taken: set[int] = set()
    for module in reversed(list(model.modules())):  # inner ones first
        own = {id(each): each.numel() for each in module.parameters() if id(each) not in taken}
        never_called = isinstance(module, (nn.ModuleList, nn.ModuleDict))
        if module is model or never_called or sum(own.values()) < least or _shared_outside(model, module):
            continue
        units.append(module)
        taken.update(own)
    return units


def _shared_outside(model: nn.Module, unit: nn.Module) -> str:
    """Return the name of a parameter in a unit that is also used outside the unit; empty if there is none."""
    inside = set(unit.modules())
    within = {id(each) for module in inside for each in parameters_of(module).values() if each is not None}
    for path, module in model.named_modules():
        for name, each in parameters_of(module).items() if module not in inside else ():
            if id(each) in within:
                return f"{path}.{name}".removeprefix(".")
    return ""


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
