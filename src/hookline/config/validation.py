"""All that is wrong with a config, in one error: its shape, its names, and the parameters of what it names."""

from __future__ import annotations

import inspect
import json
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
    """Refuse a config that cannot be right, with everything that is wrong in it and where."""
    _refuse(loaded, _Check(loaded.data, resolver).everything())


def check_hooks(loaded: LoadedConfig, resolver: Resolver) -> None:
    """The same for the hooks alone, without a look at model and data."""
    _refuse(loaded, _Check(loaded.data, resolver).only_hooks())


def _refuse(loaded: LoadedConfig, problems: list[Problem]) -> None:
    refuse_all(loaded.title, [(loaded.mark(problem.keys), problem) for problem in problems])


def sections(data: Mapping[str, Any], name: str) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """The section `val`, `test` or `optim` with its keys, or the several that stand there by name."""
    value = data.get(name)
    if not isinstance(value, dict):
        return
    if is_single(OptimSection if name == "optim" else EvalSection, value):
        yield (name,), value
        return
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield (name, key), inner


class _Check:
    """Goes through the config and notes problems. Shapes are checked first, so here a wrong one is just passed by."""

    def __init__(self, data: dict[str, Any], resolver: Resolver) -> None:
        self.data = data
        self.resolver = resolver
        self.problems: list[Problem] = []

    def everything(self) -> list[Problem]:
        self.shape()
        self.imports()
        self.part("model", ("model",), self.data.get("model"))
        self.train()
        for name in ("val", "test"):
            for keys, section in sections(self.data, name):
                self.evaluation(keys, section)
        self.optims()
        self.hooks()
        for index, writer in enumerate(_list(self.data.get("writers"))):
            self.part("writer", ("writers", index), writer)
        return self.problems

    def only_hooks(self) -> list[Problem]:
        self.shape()
        about = ("custom_hooks", "default_hooks", "imports", "points")
        self.problems = [one for one in self.problems if one.keys and one.keys[0] in about]
        self.imports()
        self.hooks()
        return self.problems

    def shape(self) -> None:
        try:
            Config.model_validate_json(json.dumps(self.data), strict=True)
        except ValidationError as error:
            self.problems += problems_of(error, self.data, (), known_keys)

    def imports(self) -> None:
        for index, name in enumerate(_list(self.data.get("imports"))):
            if isinstance(name, str):
                try:
                    self.resolver.import_modules([name])
                except ConfigError as error:
                    self.note(("imports", index), str(error))

    def note(self, keys: Keys, message: str) -> None:
        self.problems.append(Problem(keys, message))

    def named(self, slot: str, keys: Keys, name: Any) -> Callable[..., Any] | None:
        if not isinstance(name, str) or not name:
            return None
        try:
            return self.resolver.resolve(slot, name)
        except ConfigError as error:
            self.note(keys, str(error))
            return None

    def part(self, slot: str, keys: Keys, value: Any, besides: tuple[str, ...] = ()) -> None:
        """A mapping with `type`, or a bare name: what it names must be there, and take these parameters."""
        name = value.get("type") if isinstance(value, dict) else value
        factory = self.named(slot, (*keys, "type") if isinstance(value, dict) else keys, name)
        if factory is not None:
            self.parameters(factory, keys, value if isinstance(value, dict) else {}, besides=besides)

    def parameters(
        self,
        factory: Callable[..., Any],
        keys: Keys,
        values: dict[str, Any],
        *,
        filled: tuple[str, ...] = (),
        besides: tuple[str, ...] = (),
    ) -> None:
        """`filled` are parameters that hookline gives, `besides` keys that are looked at elsewhere."""
        signature = signature_of(factory, (*filled, *besides))
        self.problems += signature.problems(values, keys, ("type", *besides))
        self.functions(signature, keys, values)

    def functions(self, signature: Signature, keys: Keys, values: dict[str, Any]) -> None:
        """Functions and classes that parameters name must be there."""
        for name, parameter in signature.parameters.items():
            if parameter.is_name(values.get(name)):
                self.named("function", (*keys, name), values[name])

    def given_parameters(
        self, factory: Callable[..., Any], keys: Keys, values: dict[str, Any], key: str, filled: tuple[str, ...] = ()
    ) -> None:
        """Parameters of something that gets the rest later: that some are lacking, told of the whole, is fine."""
        found = signature_of(factory, filled).problems(values, keys, (key,))
        self.problems += [problem for problem in found if problem.keys != keys]

    def loader(self, keys: Keys, value: Any) -> None:
        if not isinstance(value, dict):
            return
        nested = isinstance(value.get("dataset"), dict) and "type" in value["dataset"]
        if "type" in value:
            self.part("dataloader", keys, value, besides=("dataset",) if nested else ())
        if nested:
            self.part("dataset", (*keys, "dataset"), value["dataset"])
        self.named("collate_fn", (*keys, "collate_fn"), value.get("collate_fn"))

    def train(self) -> None:
        section = self.data.get("train")
        if not isinstance(section, dict):
            return
        lengths = ("max_epochs", "max_iters")
        given = [key for key in lengths if section.get(key) is not None]
        misspelt = not given and any(nearest(key, lengths) for key in section if key not in TrainSection.model_fields)
        if len(given) != 1 and not misspelt:
            what = "both are given" if given else "none is given"
            self.note(("train",), f"expected max_epochs or max_iters, one of the two; {what}")
        self.loader(("train", "dataloader"), section.get("dataloader"))
        self.named("step", ("train", "step"), section.get("step"))

    def evaluation(self, keys: Keys, section: dict[str, Any]) -> None:
        self.loader((*keys, "dataloader"), section.get("dataloader"))
        for name in ("step", "loss"):
            self.named("step", (*keys, name), section.get(name))
        metrics = section.get("metrics")
        for name, metric in metrics.items() if isinstance(metrics, dict) else ():
            self.metric((*keys, "metrics", name), metric)

    def metric(self, keys: Keys, value: Any) -> None:
        """A class is made with its parameters; a function is the metric, and called with more than these."""
        values = value if isinstance(value, dict) else {}
        name = values.get("type") if values else value
        factory = self.named("metric", (*keys, "type") if values else keys, name)
        if inspect.isclass(factory):
            self.parameters(factory, keys, values)
        elif factory is not None:
            self.given_parameters(factory, keys, values, "type")

    def optims(self) -> None:
        found = list(sections(self.data, "optim"))
        for keys, section in found:
            if len(found) > 1 and section.get("params") is None and "optimizer" in section:
                self.note(keys, "with several optimizers, 'params' says which parameters each one updates")
            if section.get("clip_norm") is not None and section.get("clip_value") is not None:
                self.note(keys, "expected clip_norm or clip_value, not both")
            self.optimizer(keys, section)
            for index, scheduler in enumerate(_list(section.get("schedulers"))):
                place = (*keys, "schedulers", index)
                self.scheduler(place, scheduler, ("when", "monitor"))
                if isinstance(scheduler, dict) and scheduler.get("monitor") and scheduler.get("when", "val") != "val":
                    self.note((*place, "monitor"), f"a metric needs 'when: val', not {show(scheduler['when'])}")

    def optimizer(self, keys: Keys, section: dict[str, Any]) -> None:
        value = section.get("optimizer")
        if not isinstance(value, dict):
            return
        place = (*keys, "optimizer")
        factory = self.named("optimizer", (*place, "type"), value.get("type"))
        if factory is None:
            return
        automatic = not isinstance(value.get("fused"), bool)
        filled = filled_parameter(factory, "params")
        self.parameters(factory, place, value, filled=filled, besides=("fused",) if automatic else ())
        for index, group in enumerate(_list(section.get("param_groups"))):
            if isinstance(group, dict):
                self.given_parameters(factory, (*keys, "param_groups", index), group, "match", filled)

    def scheduler(self, keys: Keys, value: Any, besides: tuple[str, ...] = ()) -> None:
        if not isinstance(value, dict):
            return
        inner = value.get("schedulers")
        nested = isinstance(inner, list) and all(isinstance(item, dict) for item in inner)
        factory = self.named("scheduler", (*keys, "type"), value.get("type"))
        if factory is not None:
            filled = filled_parameter(factory, "optimizer")
            known = signature_of(factory, filled).parameters
            automatic = tuple(name for name, given in value.items() if given == AUTO and name in known)
            listed = ("schedulers",) if nested and "schedulers" in known else ()
            self.parameters(factory, keys, value, filled=filled, besides=(*besides, *automatic, *listed))
        for index, item in enumerate(inner if nested and inner else ()):
            self.scheduler((*keys, "schedulers", index), item)

    def hooks(self) -> None:
        for index, hook in enumerate(_list(self.data.get("custom_hooks"))):
            self.hook(("custom_hooks", index), hook)
        defaults = self.data.get("default_hooks")
        for key, hook in defaults.items() if isinstance(defaults, dict) else ():
            if key in DEFAULT_HOOKS and hook is not None:
                self.hook(("default_hooks", key), hook, DEFAULT_HOOKS[key])

    def hook(self, keys: Keys, value: Any, default: str | None = None) -> None:
        values = value if isinstance(value, dict) else {}
        name = value if isinstance(value, str) else values.get("type", default)
        factory = self.named("hook", (*keys, "type") if "type" in values else keys, name)
        if factory is not None:
            self.problems += hook_problems(factory, values, keys)
            self.functions(signature_of(factory), keys, values)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
