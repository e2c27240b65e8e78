"""Checks a config and reports all problems in one error: its structure, its names, and their parameters."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hookline.common.marks import Keys, Problem, refuse_all, show
from hookline.config.messages import problems_of
from hookline.config.schema import Config, EvalSection, OptimSection, TrainSection, is_single, known_keys
from hookline.config.signature import Signature, filled_parameter, hook_problems, signature_of
from hookline.errors import ConfigError, nearest
from hookline.plan.registry import DEFAULT_HOOKS

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.config.names import Resolver

AUTO = "auto"


def check(loaded: LoadedConfig, resolver: Resolver) -> None:
    """Refuse an invalid config. The error lists all problems with their positions."""
    _refuse(loaded, _Checker(loaded.data, resolver).check_all())


def check_hooks(loaded: LoadedConfig, resolver: Resolver) -> None:
    """Refuse a config with invalid hooks, without checking model and data."""
    _refuse(loaded, _Checker(loaded.data, resolver).check_only_hooks())


def _refuse(loaded: LoadedConfig, problems: list[Problem]) -> None:
    refuse_all(loaded.title, [(loaded.mark(problem.keys), problem) for problem in problems])


def iter_sections(data: Mapping[str, Any], name: str) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """Yield the section `val`, `test` or `optim` with its keys, or each of its named sections."""
    value = data.get(name)
    if not isinstance(value, dict):
        return
    if is_single(OptimSection if name == "optim" else EvalSection, value):
        yield (name,), value
        return
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield (name, key), inner


class _Checker:
    """Collects the problems of a config. Values of a wrong type are skipped, because `check_shape` reports them."""

    def __init__(self, data: dict[str, Any], resolver: Resolver) -> None:
        self.data = data
        self.resolver = resolver
        self.problems: list[Problem] = []

    def check_all(self) -> list[Problem]:
        self.check_shape()
        self.check_imports()
        self.check_part("model", ("model",), self.data.get("model"))
        self.check_train()
        for name in ("val", "test"):
            for keys, section in iter_sections(self.data, name):
                self.check_evaluation(keys, section)
        self.check_optims()
        self.check_hooks()
        for index, writer in enumerate(_list(self.data.get("writers"))):
            self.check_part("writer", ("writers", index), writer)
        return self.problems

    def check_only_hooks(self) -> list[Problem]:
        self.check_shape()
        relevant = ("custom_hooks", "default_hooks", "imports", "points")
        self.problems = [one for one in self.problems if one.keys and one.keys[0] in relevant]
        self.check_imports()
        self.check_hooks()
        return self.problems

    def check_shape(self) -> None:
        try:
            Config.model_validate_json(json.dumps(self.data), strict=True)
        except ValidationError as error:
            self.problems += problems_of(error, self.data, (), known_keys)

    def check_imports(self) -> None:
        for index, name in enumerate(_list(self.data.get("imports"))):
            if isinstance(name, str):
                try:
                    self.resolver.import_modules([name])
                except ConfigError as error:
                    self.note(("imports", index), str(error))

    def note(self, keys: Keys, message: str) -> None:
        self.problems.append(Problem(keys, message))

    def resolve(self, slot: str, keys: Keys, name: Any) -> Callable[..., Any] | None:
        if not isinstance(name, str) or not name:
            return None
        try:
            return self.resolver.resolve(slot, name)
        except ConfigError as error:
            self.note(keys, str(error))
            return None

    def check_part(self, slot: str, keys: Keys, value: Any, other_keys: tuple[str, ...] = ()) -> None:
        """Check a mapping with `type`, or a name alone: the name must exist and accept these parameters."""
        name = value.get("type") if isinstance(value, dict) else value
        factory = self.resolve(slot, (*keys, "type") if isinstance(value, dict) else keys, name)
        if factory is not None:
            self.check_parameters(factory, keys, value if isinstance(value, dict) else {}, other_keys=other_keys)

    def check_parameters(
        self,
        factory: Callable[..., Any],
        keys: Keys,
        values: dict[str, Any],
        *,
        filled: tuple[str, ...] = (),
        other_keys: tuple[str, ...] = (),
    ) -> None:
        """Check parameters. hookline itself provides those in `filled`; `other_keys` are checked elsewhere."""
        signature = signature_of(factory, (*filled, *other_keys))
        self.problems += signature.problems(values, keys, ("type", *other_keys))
        self.check_functions(signature, keys, values)

    def check_functions(self, signature: Signature, keys: Keys, values: dict[str, Any]) -> None:
        """Check that the functions and classes that parameters name exist."""
        for name, parameter in signature.parameters.items():
            if parameter.is_name(values.get(name)):
                self.resolve("function", (*keys, name), values[name])

    def check_some_parameters(
        self, factory: Callable[..., Any], keys: Keys, values: dict[str, Any], key: str, filled: tuple[str, ...] = ()
    ) -> None:
        """Check parameters of a callable that gets the rest later. Missing ones are reported at `keys`, and ignored."""
        found = signature_of(factory, filled).problems(values, keys, (key,))
        self.problems += [problem for problem in found if problem.keys != keys]

    def check_loader(self, keys: Keys, value: Any) -> None:
        if not isinstance(value, dict):
            return
        nested = isinstance(value.get("dataset"), dict) and "type" in value["dataset"]
        if "type" in value:
            self.check_part("dataloader", keys, value, other_keys=("dataset",) if nested else ())
        if nested:
            self.check_part("dataset", (*keys, "dataset"), value["dataset"])
        self.resolve("collate_fn", (*keys, "collate_fn"), value.get("collate_fn"))

    def check_train(self) -> None:
        section = self.data.get("train")
        if not isinstance(section, dict):
            return
        lengths = ("max_epochs", "max_iters")
        given = [key for key in lengths if section.get(key) is not None]
        misspelled = not given and any(nearest(key, lengths) for key in section if key not in TrainSection.model_fields)
        if len(given) != 1 and not misspelled:
            what = "both" if given else "neither"
            self.note(("train",), f"expected either max_epochs or max_iters, found {what}")
        self.check_loader(("train", "dataloader"), section.get("dataloader"))
        self.resolve("step", ("train", "step"), section.get("step"))

    def check_evaluation(self, keys: Keys, section: dict[str, Any]) -> None:
        self.check_loader((*keys, "dataloader"), section.get("dataloader"))
        for name in ("step", "loss"):
            self.resolve("step", (*keys, name), section.get(name))
        metrics = section.get("metrics")
        for name, metric in metrics.items() if isinstance(metrics, dict) else ():
            self.check_metric((*keys, "metrics", name), metric)

    def check_metric(self, keys: Keys, value: Any) -> None:
        """Check a metric. A class is created with its parameters; a function is later called with more arguments."""
        values = value if isinstance(value, dict) else {}
        name = values.get("type") if values else value
        factory = self.resolve("metric", (*keys, "type") if values else keys, name)
        if inspect.isclass(factory):
            self.check_parameters(factory, keys, values)
        elif factory is not None:
            self.check_some_parameters(factory, keys, values, "type")

    def check_optims(self) -> None:
        found = list(iter_sections(self.data, "optim"))
        for keys, section in found:
            if len(found) > 1 and section.get("params") is None and "optimizer" in section:
                self.note(keys, "with several optimizers, each one needs 'params', the parameters that it updates")
            if section.get("clip_norm") is not None and section.get("clip_value") is not None:
                self.note(keys, "expected clip_norm or clip_value, not both")
            self.check_optimizer(keys, section)
            for index, scheduler in enumerate(_list(section.get("schedulers"))):
                place = (*keys, "schedulers", index)
                self.check_scheduler(place, scheduler, ("when", "monitor"))
                if isinstance(scheduler, dict) and scheduler.get("monitor") and scheduler.get("when", "val") != "val":
                    self.note(
                        (*place, "monitor"),
                        f"a scheduler that monitors a metric needs 'when: val', not {show(scheduler['when'])}",
                    )

    def check_optimizer(self, keys: Keys, section: dict[str, Any]) -> None:
        value = section.get("optimizer")
        if not isinstance(value, dict):
            return
        place = (*keys, "optimizer")
        factory = self.resolve("optimizer", (*place, "type"), value.get("type"))
        if factory is None:
            return
        automatic = not isinstance(value.get("fused"), bool)
        filled = filled_parameter(factory, "params")
        self.check_parameters(factory, place, value, filled=filled, other_keys=("fused",) if automatic else ())
        for index, group in enumerate(_list(section.get("param_groups"))):
            if isinstance(group, dict):
                self.check_some_parameters(factory, (*keys, "param_groups", index), group, "match", filled)
        for name in ("optimizer", "param_groups"):
            self.check_finite(factory, (*keys, name), section.get(name))

    def check_finite(self, factory: Callable[..., Any], keys: Keys, values: Any) -> None:
        """Report NaN and Inf among the parameters of an optimizer or scheduler of torch."""
        known = {problem.keys for problem in self.problems}
        for place, value in flatten(values, keys) if factory.__module__.startswith("torch.optim") else ():
            if isinstance(value, float) and not math.isfinite(value) and place not in known:
                self.note(place, f"expected a finite number, found {show(value)}")

    def check_scheduler(self, keys: Keys, value: Any, other_keys: tuple[str, ...] = ()) -> None:
        if not isinstance(value, dict):
            return
        inner = value.get("schedulers")
        nested = isinstance(inner, list) and all(isinstance(item, dict) for item in inner)
        factory = self.resolve("scheduler", (*keys, "type"), value.get("type"))
        if factory is not None:
            filled = filled_parameter(factory, "optimizer")
            known = signature_of(factory, filled).parameters
            automatic = tuple(name for name, given in value.items() if given == AUTO and name in known)
            listed = ("schedulers",) if nested and "schedulers" in known else ()
            self.check_parameters(factory, keys, value, filled=filled, other_keys=(*other_keys, *automatic, *listed))
            self.check_finite(factory, keys, {name: item for name, item in value.items() if name != "schedulers"})
        for index, item in enumerate(inner if nested and inner else ()):
            self.check_scheduler((*keys, "schedulers", index), item)

    def check_hooks(self) -> None:
        for index, hook in enumerate(_list(self.data.get("custom_hooks"))):
            self.check_hook(("custom_hooks", index), hook)
        defaults = self.data.get("default_hooks")
        for key, hook in defaults.items() if isinstance(defaults, dict) else ():
            if key in DEFAULT_HOOKS and hook is not None:
                self.check_hook(("default_hooks", key), hook, DEFAULT_HOOKS[key])

    def check_hook(self, keys: Keys, value: Any, default: str | None = None) -> None:
        values = value if isinstance(value, dict) else {}
        name = value if isinstance(value, str) else values.get("type", default)
        factory = self.resolve("hook", (*keys, "type") if "type" in values else keys, name)
        if factory is not None:
            self.problems += hook_problems(factory, values, keys)
            self.check_functions(signature_of(factory), keys, values)


def flatten(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield every value of a config that is not a mapping or a list, with its keys."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flatten(inner, (*keys, key))
    else:
        yield keys, value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
