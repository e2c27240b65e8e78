"""Checks a config and reports all problems in one error: its structure, its names, and their parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hookline.common.marks import Keys, Problem, refuse_all, show
from hookline.config.blueprints import Around, Drafter
from hookline.config.functions import accepts
from hookline.config.messages import problems_of
from hookline.config.problems import Problems
from hookline.config.schema import Config, known_keys
from hookline.config.sections import EvalSection, OptimSection, TrainSection, is_single
from hookline.config.signature import filled_parameter, hook_key_problems, signature_of
from hookline.config.slots import HOOK_KEYS
from hookline.errors import MOST_NAMES, ConfigError, nearest
from hookline.optim.lengths import check_share
from hookline.plan.registry import DEFAULT_HOOKS, SCHEDULERS

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
        self.problems = Problems()
        self.note = self.problems.note
        self.drafter = Drafter(resolver, self.problems)

    def check_all(self) -> list[Problem]:
        self.check_shape()
        self.check_imports()
        self.drafter.part("model", ("model",), self.data.get("model"))
        self.check_train()
        for name in ("val", "test"):
            for keys, section in iter_sections(self.data, name):
                self.check_evaluation(keys, section)
        self.check_optims()
        self.check_hooks()
        for index, writer in enumerate(_list(self.data.get("writers"))):
            self.drafter.part("writer", ("writers", index), writer)
        return self.problems.all()

    def check_only_hooks(self) -> list[Problem]:
        self.check_shape()
        relevant = ("custom_hooks", "default_hooks", "imports", "points")
        self.problems.found = [one for one in self.problems.found if one.keys and one.keys[0] in relevant]
        self.check_imports()
        self.check_hooks()
        return self.problems.all()

    def check_shape(self) -> None:
        try:
            Config.model_validate_json(json.dumps(self.data), strict=True)
        except ValidationError as error:
            self.problems.found += problems_of(error, self.data, (), known_keys)

    def check_imports(self) -> None:
        for index, name in enumerate(_list(self.data.get("imports"))):
            if isinstance(name, str):
                try:
                    self.resolver.import_modules([name])
                except ConfigError as error:
                    self.problems.refuse(("imports", index), error)
                    self.problems.lacks_names = True

    def check_loader(self, keys: Keys, value: Any) -> None:
        if not isinstance(value, dict):
            return
        parts = tuple(self.drafter.loader_parts(keys, value))
        if "type" in value:
            self.drafter.part("dataloader", keys, value, other_keys=parts, provides=parts)

    def check_train(self) -> None:
        section = self.data.get("train")
        if not isinstance(section, dict):
            return
        lengths = ("max_epochs", "max_iters")
        given = [key for key in lengths if section.get(key) is not None]
        unknown = islice((key for key in section if key not in TrainSection.model_fields), MOST_NAMES)
        misspelled = not given and any(nearest(key, lengths) for key in unknown)
        if len(given) != 1 and not misspelled:
            what = "both" if given else "neither"
            self.note(("train",), f"expected either max_epochs or max_iters, found {what}")
        self.check_loader(("train", "dataloader"), section.get("dataloader"))
        self.check_step(("train", "step"), section.get("step"))
        self.drafter.resolve("function", ("train", "weigh"), section.get("weigh"))

    def check_step(self, keys: Keys, value: Any) -> None:
        step = self.drafter.resolve("step", keys, value)
        optim = ["optim"] if step is not None and "optim" in signature_of(step).parameters else []
        if step is not None and not accepts(step, 2, optim):
            name = getattr(step, "__name__", repr(step))
            self.note(keys, f"a step is called with (model, batch), which {name} does not accept")

    def check_evaluation(self, keys: Keys, section: dict[str, Any]) -> None:
        self.check_loader((*keys, "dataloader"), section.get("dataloader"))
        for name in ("step", "loss"):
            self.check_step((*keys, name), section.get(name))
        self.drafter.resolve("function", (*keys, "weigh"), section.get("weigh"))
        metrics = section.get("metrics")
        for name, metric in metrics.items() if isinstance(metrics, dict) else ():
            self.drafter.metric((*keys, "metrics", name), metric)

    def check_optims(self) -> None:
        found = list(iter_sections(self.data, "optim"))
        for keys, section in found:
            if len(found) > 1 and section.get("params") is None and "optimizer" in section:
                self.note(keys, "with several optimizers, each one needs 'params', the parameters that it updates")
            if section.get("clip_norm") is not None and section.get("clip_value") is not None:
                self.note(keys, "expected clip_norm or clip_value, not both")
            self.check_optimizer(keys, section)
            warmups = 0
            for index, scheduler in enumerate(_list(section.get("schedulers"))):
                place = (*keys, "schedulers", index)
                self.check_scheduler(place, scheduler, outer=True)
                if isinstance(scheduler, dict) and scheduler.get("monitor") and scheduler.get("when", "val") != "val":
                    self.note(
                        (*place, "monitor"),
                        f"a scheduler that monitors a metric needs 'when: val', not {show(scheduler['when'])}",
                    )
                warmups += isinstance(scheduler, dict) and scheduler.get("warmup") is not None
                if warmups > 1 and scheduler.get("warmup") is not None:
                    self.note((*place, "warmup"), "an earlier scheduler has a warmup, which applies to all of them")

    def check_optimizer(self, keys: Keys, section: dict[str, Any]) -> None:
        value = section.get("optimizer")
        if not isinstance(value, dict):
            return
        place = (*keys, "optimizer")
        factory = self.drafter.resolve("optimizer", place, value)
        if factory is None:
            return
        automatic = not isinstance(value.get("fused"), bool)
        filled, other_keys = filled_parameter(factory, "params"), ("type", *(["fused"] if automatic else []))
        around = Around("optimizer")
        self.drafter.parameters(around, factory, place, value, filled=filled, other_keys=other_keys)
        for index, group in enumerate(_list(section.get("param_groups"))):
            if isinstance(group, dict):
                inside = (*keys, "param_groups", index)
                self.drafter.parameters(
                    around, factory, inside, group, filled=filled, other_keys=("match",), partial=True
                )
        for name in ("optimizer", "param_groups"):
            self.check_finite(factory, (*keys, name), section.get(name))

    def check_finite(self, factory: Callable[..., Any], keys: Keys, values: Any) -> None:
        """Report NaN and Inf among the parameters of an optimizer or scheduler of torch."""
        known = {problem.keys for problem in self.problems.found}
        for place, value in flatten(values, keys) if factory.__module__.startswith("torch.optim") else ():
            if isinstance(value, float) and not math.isfinite(value) and place not in known:
                self.note(place, f"expected a finite number, found {show(value)}")

    def check_scheduler(self, keys: Keys, value: Any, outer: bool = False) -> None:
        if not isinstance(value, dict):
            return
        inner = value.get("schedulers")
        nested = isinstance(inner, list) and all(isinstance(item, dict) for item in inner)
        factory = self.drafter.resolve("scheduler", keys, value)
        if factory is not None:
            filled = filled_parameter(factory, "optimizer")
            known = signature_of(factory, filled).parameters
            other_keys = ("when", "monitor") if outer else ()
            if "warmup" not in known:
                other_keys = (*other_keys, "warmup")
            self.check_warmup(keys, value, outer, "warmup" in known)
            automatic = tuple(name for name, given in value.items() if given == AUTO and name in known)
            listed = ("schedulers",) if nested and "schedulers" in known else ()
            other_keys = ("type", *other_keys, *automatic, *listed)
            self.drafter.parameters(Around("scheduler"), factory, keys, value, filled=filled, other_keys=other_keys)
            self.check_finite(factory, keys, {name: item for name, item in value.items() if name != "schedulers"})
        for index, item in enumerate(inner if nested and inner else ()):
            self.check_scheduler((*keys, "schedulers", index), item)

    def check_warmup(self, keys: Keys, value: dict[str, Any], outer: bool, own: bool) -> None:
        """Check the warmup of a scheduler. `own` is True if that is a parameter of the scheduler itself."""
        warmup = value.get("warmup")
        if warmup is None or (own and value.get("type") not in SCHEDULERS.builtin):
            return
        if not (outer or own):
            self.note((*keys, "warmup"), "a scheduler inside another one cannot have a warmup; give it to the outer")
            return
        try:
            check_share("warmup", warmup)
        except ConfigError as error:
            self.note((*keys, "warmup"), str(error))

    def check_hooks(self) -> None:
        for index, hook in enumerate(_list(self.data.get("custom_hooks"))):
            self.check_hook(("custom_hooks", index), hook)
        defaults = self.data.get("default_hooks")
        for key, hook in defaults.items() if isinstance(defaults, dict) else ():
            if key in DEFAULT_HOOKS and hook is not None:
                self.check_hook(("default_hooks", key), hook, DEFAULT_HOOKS[key])

    def check_hook(self, keys: Keys, value: Any, default: str | None = None) -> None:
        values = value if isinstance(value, dict) else {}
        named = value if isinstance(value, str) or "type" in values or default is None else default
        factory = self.drafter.resolve("hook", keys, named)
        if factory is not None:
            self.drafter.parameters(Around("hook"), factory, keys, values, other_keys=("type", *HOOK_KEYS))
            self.problems.found += hook_key_problems(factory, values, keys)


def flatten(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield every value of a config that is not a mapping or a list, with its keys."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flatten(inner, (*keys, key))
    else:
        yield keys, value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
