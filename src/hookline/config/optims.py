"""Builds optimizers and schedulers from the `optim` section: parameter groups, `fused`, and `auto` lengths."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

from hookline.common.patterns import matching, no_match
from hookline.config.signature import filled_parameter, signature_of
from hookline.config.validation import AUTO, iter_sections
from hookline.engine.optim import Optim

if TYPE_CHECKING:
    from hookline.common.marks import Keys
    from hookline.config.factory import Maker
    from hookline.engine.loop_specs import TrainLoop

Named = dict[str, nn.Parameter]


class OptimBuilder:
    """Builds the optims of a config, for one model and one training loop."""

    def __init__(self, maker: Maker, model: nn.Module, train: TrainLoop | None, device: str) -> None:
        self.maker = maker
        self.model = model
        self.train = train
        self.device = device

    def build_all(self, data: Mapping[str, Any]) -> Optim | dict[str, Optim] | None:
        """Build one Optim, several by name, or none, as the section says."""
        found = list(iter_sections(data, "optim"))
        owners: dict[str, Keys] = {}
        optims: dict[str, Optim] = {}
        for keys, section in found:
            parameters = self.select_parameters(keys, section.get("params"))
            for name in parameters:
                if name in owners:
                    raise self.maker.refusal(
                        (*keys, "params"), f"the parameter '{name}' is already updated by '{owners[name][-1]}'"
                    )
                owners[name] = keys
            optims[str(keys[-1])] = self.build_one(keys, section, parameters)
        if len(found) == 1 and found[0][0] == ("optim",):
            return optims["optim"]
        return optims or None

    def select_parameters(self, keys: Keys, patterns: str | list[str] | None) -> Named:
        """Return the parameters of the model that one optimizer updates."""
        parameters = dict(self.model.named_parameters())
        if patterns is None:
            return parameters
        listed = [patterns] if isinstance(patterns, str) else patterns
        for pattern in listed:
            self._refuse_unmatched((*keys, "params"), pattern, parameters, parameters)
        return {name: parameters[name] for name in matching(listed, parameters)}

    def build_one(self, keys: Keys, section: Mapping[str, Any], parameters: Named) -> Optim:
        """Build one Optim from its section."""
        optimizer = self.build_optimizer(keys, section, parameters)
        accumulate = section.get("accumulate", 1)
        schedulers = [
            self.build_timed_scheduler((*keys, "schedulers", index), value, optimizer, accumulate)
            for index, value in enumerate(section.get("schedulers") or ())
        ]
        clipping = {name: section[name] for name in ("clip_norm", "clip_value") if section.get(name) is not None}
        optim: Optim = self.maker.call(
            keys, Optim, optimizer=optimizer, schedulers=schedulers, accumulate=accumulate, **clipping
        )
        return optim

    # -- the optimizer

    def build_optimizer(self, keys: Keys, section: Mapping[str, Any], parameters: Named) -> Optimizer:
        """Build the torch optimizer over all parameter groups."""
        place = (*keys, "optimizer")
        values = {name: value for name, value in section["optimizer"].items() if name not in ("type", "fused")}
        factory = self.maker.resolver.resolve("optimizer", section["optimizer"]["type"])
        filled = filled_parameter(factory, "params")
        options = signature_of(factory, (*filled, "fused")).convert(values)
        fused = section["optimizer"].get("fused", AUTO)
        if fused == AUTO:
            options |= {"fused": True} if self._can_fuse(factory, options, parameters) else {}
        elif fused is not None:
            options["fused"] = fused
        groups = self.build_groups(keys, section.get("param_groups") or [], parameters)
        optimizer = self.maker.call(place, factory, **dict.fromkeys(filled, groups), **options)
        if not isinstance(optimizer, Optimizer):
            raise self.maker.refusal(
                place, f"expected a torch optimizer, but this creates a {type(optimizer).__name__}"
            )
        return optimizer

    def build_groups(self, keys: Keys, given: list[dict[str, Any]], parameters: Named) -> list[dict[str, Any]]:
        """Put each parameter into the first group that matches it.

        Parameters without a group come first, with the common options.
        """
        left = dict(parameters)
        groups = []
        for index, group in enumerate(given):
            pattern = group["match"]
            self._refuse_unmatched((*keys, "param_groups", index, "match"), pattern, left, parameters)
            taken = matching(pattern, left)
            options = {name: value for name, value in group.items() if name != "match"}
            groups.append({"params": [left.pop(name) for name in taken], **options})
        return [{"params": list(left.values())}, *groups] if left or not groups else groups

    def _refuse_unmatched(self, keys: Keys, pattern: str, left: Named, parameters: Named) -> None:
        if matching(pattern, left):
            return
        if matching(pattern, parameters):
            raise self.maker.refusal(keys, f"'{pattern}' matches only parameters that earlier groups already take")
        raise self.maker.refusal(keys, no_match(pattern, parameters))

    def _can_fuse(self, factory: Callable[..., Any], options: Mapping[str, Any], parameters: Named) -> bool:
        """Return whether torch has a fused step for these parameters, both where they are and on the run's device."""
        if "fused" not in inspect.signature(factory).parameters or not parameters:
            return False
        if options.get("foreach") or options.get("differentiable"):
            return False
        # Embeddings can have sparse gradients, which no fused step supports.
        if any(getattr(module, "sparse", False) is True for module in self.model.modules()):
            return False
        kinds = {parameter.device.type for parameter in parameters.values()}
        kinds |= {self.device.partition(":")[0]} - {AUTO}
        floating = all(torch.is_floating_point(parameter) for parameter in parameters.values())
        return floating and kinds <= set(_get_fused_kernels_supported_devices())

    # -- the schedulers

    def build_timed_scheduler(self, keys: Keys, value: Mapping[str, Any], optimizer: Optimizer, accumulate: int) -> Any:
        """Build a scheduler, paired with when it steps if the config says so."""
        when, monitor = value.get("when"), value.get("monitor")
        values = {name: item for name, item in value.items() if name not in ("when", "monitor")}
        scheduler = self.build_scheduler(keys, values, optimizer, when, accumulate)
        if monitor is not None:
            return (scheduler, "val", monitor)
        return scheduler if when is None else (scheduler, when)

    def build_scheduler(
        self, keys: Keys, value: Mapping[str, Any], optimizer: Optimizer, when: str | None, accumulate: int
    ) -> Any:
        """Build a torch scheduler. If it consists of others (SequentialLR), build those first."""
        factory = self.maker.resolver.resolve("scheduler", value["type"])
        filled = filled_parameter(factory, "optimizer")
        values = {name: item for name, item in value.items() if name not in ("type", "schedulers")}
        for name, item in values.items():
            if item == AUTO:
                values[name] = self.resolve_length((*keys, name), when, accumulate)
        nested: dict[str, Any] = {}
        if "schedulers" in value:
            nested["schedulers"] = [
                self.build_scheduler((*keys, "schedulers", index), inner, optimizer, when, accumulate)
                for index, inner in enumerate(value["schedulers"])
            ]
        options = signature_of(factory, (*filled, *nested)).convert(values)
        return self.maker.call(keys, factory, **dict.fromkeys(filled, optimizer), **nested, **options)

    def resolve_length(self, keys: Keys, when: str | None, accumulate: int) -> int:
        """Return the length of training, in the unit that a scheduler steps in."""
        loop = self.train
        if loop is None:
            raise self.maker.refusal(keys, "'auto' is the length of training, but there is no 'train' section")
        unit = when or ("epoch" if loop.by_epoch else "iter")
        if unit == "val":
            raise self.maker.refusal(keys, "'auto' is not available for a scheduler that steps at 'val'; set a number")
        if unit == "epoch" and loop.max_epochs is not None:
            return loop.max_epochs
        if unit == "iter" and loop.max_iters is not None:
            return loop.max_iters
        if unit == "step" and loop.max_iters is not None:
            return _divide_up(loop.max_iters, accumulate)
        batches = loop.length
        if not batches:
            raise self.maker.refusal(keys, "'auto' needs the length of the loader, which has none; set a number")
        if loop.max_epochs is None:
            return _divide_up(loop.max_iters or 0, batches)
        # When training by epochs, the last accumulation window of each epoch may be shorter.
        return loop.max_epochs * (batches if unit == "iter" else _divide_up(batches, accumulate))


def _divide_up(number: int, by: int) -> int:
    return -(-number // by)
