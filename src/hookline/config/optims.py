"""Builds optimizers and schedulers from the `optim` section: parameter groups, the fastest step, and `auto` lengths."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from hookline.common.collector import paused
from hookline.common.patterns import matching, no_match
from hookline.common.torch_private import fused_devices
from hookline.config.signature import filled_parameter, signature_of
from hookline.config.validation import AUTO, iter_sections
from hookline.optim.lengths import UNITS, default_when, known_length, length_of_training, steps_of
from hookline.optim.optim import Optim
from hookline.optim.scheduled import Scheduled, When
from hookline.optim.schedules import Schedule
from hookline.optim.warmup import Warmup

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
        self._refuse_unmatched((*keys, "params"), patterns, parameters, parameters)
        return {name: parameters[name] for name in matching(patterns, parameters)}

    def build_one(self, keys: Keys, section: Mapping[str, Any], parameters: Named) -> Optim:
        """Build one Optim from its section."""
        optimizer = self.build_optimizer(keys, section, parameters)
        accumulate = section.get("accumulate", 1)
        schedulers: list[Scheduled] = []
        for index, value in enumerate(section.get("schedulers") or ()):
            schedulers += self.build_timed_scheduler((*keys, "schedulers", index), value, optimizer, accumulate)
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
        options = self.maker.build_parameters("optimizer", place, factory, values, filled=filled, other_keys=("fused",))
        fused = section["optimizer"].get("fused", AUTO)
        if fused == AUTO:
            options |= self._fast_options(factory, options, parameters)
        elif fused is not None:
            options["fused"] = fused
        groups = self.build_groups(keys, section.get("param_groups") or [], parameters)
        with paused():  # torch imports its compiler with the first optimizer
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
            place = (*keys, "param_groups", index, "match")
            self._refuse_unmatched(place, group["match"], left, parameters)
            taken = matching(group["match"], left)
            options = {name: value for name, value in group.items() if name != "match"}
            groups.append({"params": [left.pop(name) for name in taken], **options})
        return [{"params": list(left.values())}, *groups] if left or not groups else groups

    def _refuse_unmatched(self, keys: Keys, patterns: str | list[str], left: Named, parameters: Named) -> None:
        """Refuse a pattern, or the first of several, that selects nothing."""
        for index, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
            place = keys if isinstance(patterns, str) else (*keys, index)
            if matching(pattern, left):
                continue
            if matching(pattern, parameters):
                raise self.maker.refusal(place, f"'{pattern}' matches only parameters that earlier groups already take")
            raise self.maker.refusal(place, no_match(pattern, parameters))

    def _fast_options(
        self, factory: Callable[..., Any], options: Mapping[str, Any], parameters: Named
    ) -> dict[str, bool]:
        """Return the option for the fastest step: fused if torch has one, or else `foreach`, if the user chose nothing.

        It must suit the parameters where they are and on the run's device. On an accelerator, torch chooses `foreach`
        automatically.
        """
        known = inspect.signature(factory).parameters
        if options.get("foreach") is not None or options.get("differentiable") or not parameters:
            return {}
        # Embeddings can have sparse gradients, which neither supports.
        if any(getattr(module, "sparse", False) is True for module in self.model.modules()):
            return {}
        if not all(torch.is_floating_point(parameter) for parameter in parameters.values()):
            return {}
        kinds = {parameter.device.type for parameter in parameters.values()}
        kinds |= {self.device.partition(":")[0]} - {AUTO}
        if "fused" in known:
            return {"fused": True} if kinds <= set(fused_devices()) else {}
        return {"foreach": True} if "foreach" in known and kinds == {"cpu"} else {}

    # -- the schedulers

    def build_timed_scheduler(
        self, keys: Keys, value: Mapping[str, Any], optimizer: Optimizer, accumulate: int
    ) -> list[Scheduled]:
        """Build a scheduler, with when it steps and with the lengths that are `auto`, and its warmup."""
        monitor = value.get("monitor")
        when: When | None = value.get("when") if monitor is None else "val"
        factory = self.maker.resolver.resolve("scheduler", value["type"])
        known = signature_of(factory, filled_parameter(factory, "optimizer")).parameters
        ours = ("when", "monitor") if "warmup" in known else ("when", "monitor", "warmup")
        values = {name: item for name, item in value.items() if name not in ours}
        auto: dict[str, int] = {}
        scheduler = self.build_scheduler(keys, values, optimizer, when, accumulate, auto)
        built = [Scheduled(scheduler, when, monitor, auto)]
        if "warmup" in ours and value.get("warmup") is not None:
            built.append(self.build_warmup((*keys, "warmup"), value["warmup"], optimizer, when, accumulate))
        return built

    def build_warmup(
        self, keys: Keys, value: float, optimizer: Optimizer, when: When | None, accumulate: int
    ) -> Scheduled:
        """Build the warmup of a scheduler. It counts iterations, or optimizer steps if the scheduler does."""
        unit: When = "step" if when == "step" else "iter"
        if isinstance(value, float):
            length = self.resolve_length(keys, Warmup, unit, accumulate)
        else:
            length = (self.train and known_length(self.train, unit, accumulate)) or value
        steps = self.maker.call(keys, steps_of, "warmup", value, length, UNITS[unit])
        return Scheduled(self.maker.call(keys, Warmup, optimizer, steps), unit)

    def build_scheduler(
        self,
        keys: Keys,
        value: Mapping[str, Any],
        optimizer: Optimizer,
        when: When | None,
        accumulate: int,
        auto: dict[str, int],
        prefix: str = "",
    ) -> Any:
        """Build a torch scheduler. If it consists of others (SequentialLR), build those first.

        The lengths that are `auto` are added to a mapping: parameter -> number.
        """
        factory = self.maker.resolver.resolve("scheduler", value["type"])
        filled = filled_parameter(factory, "optimizer")
        ours = inspect.isclass(factory) and issubclass(factory, Schedule)
        values = {name: item for name, item in value.items() if name not in ("type", "schedulers")}
        for name, item in ({"length": AUTO} | values if ours else values).items():
            if item == AUTO:
                values[name] = auto[f"{prefix}{name}"] = self.resolve_length((*keys, name), factory, when, accumulate)
        nested: dict[str, Any] = {}
        if "schedulers" in value:
            nested["schedulers"] = [
                self.build_scheduler(
                    *((*keys, "schedulers", index), inner, optimizer, when, accumulate, auto),
                    prefix=f"{prefix}schedulers.{index}.",
                )
                for index, inner in enumerate(value["schedulers"])
            ]
        options = self.maker.build_parameters(
            "scheduler", keys, factory, values, filled=filled, other_keys=tuple(nested)
        )
        length = options.pop("length") if ours else 0
        scheduler = self.maker.call(keys, factory, **dict.fromkeys(filled, optimizer), **nested, **options)
        if ours:  # the message about a length that is too short then has the unit
            self.maker.call(keys, scheduler.resolve, length, UNITS[when or scheduler.default_when])
        return scheduler

    def resolve_length(self, keys: Keys, factory: Callable[..., Any], when: When | None, accumulate: int) -> int:
        """Return the length of training, in the unit that a scheduler steps in."""
        if self.train is None:
            if keys[-1] == "warmup":
                raise self.maker.refusal(keys, "a share of the training needs a 'train' section; set a number")
            raise self.maker.refusal(keys, "'auto' is the length of training, but there is no 'train' section")
        unit = when or default_when(self.train, factory)
        length: int = self.maker.call(keys, length_of_training, self.train, unit, accumulate)
        return length
