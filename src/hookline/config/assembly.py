"""The model, the loops and the optims of a checked config, put together into a Runner."""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hookline.config.optims import OptimBuilder
from hookline.config.validation import sections
from hookline.data.loader import ResumableLoader
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.engine.runner import Runner

if TYPE_CHECKING:
    from hookline.common.marks import Keys
    from hookline.config.factory import Maker

# What goes to the Runner as it stands in the config.
_AS_GIVEN = ("experiment_name", "seed", "device", "strategy", "precision", "load_from", "resume", "points")


def native_path(text: str) -> str:
    """A path of a config, which is UTF-8, as this process spells it: another way only in a locale without UTF-8."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


class Assembly:
    """Builds the parts that a checked config names."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.data = maker.loaded.data

    def runner(self, default_hooks: dict[str, Any], custom_hooks: list[Any], **changes: Any) -> Runner:
        """Build the model first, then loops and optims, and hand all of it to a Runner."""
        model = self.model()
        train = self.train()
        val, test = self.evaluations("val"), self.evaluations("test")
        optims = OptimBuilder(self.maker, model, train, self.data.get("device", "auto"))
        given = {name: self.data[name] for name in _AS_GIVEN if name in self.data}
        for name in ("load_from", "resume"):
            if isinstance(given.get(name), str):
                given[name] = native_path(given[name])
        if "writers" in self.data:
            given["writers"] = [
                self.maker.part("writer", ("writers", index), value) for index, value in enumerate(self.data["writers"])
            ]
        if self.data.get("work_dir") is not None:
            given["work_dir"] = native_path(self.data["work_dir"])
        elif self.maker.loaded.file is not None:
            given["work_dir"] = f"runs/{self.maker.loaded.file.stem}"
        return Runner(
            model,
            train=train,
            val=val,
            test=test,
            optim=optims.all(self.data),
            default_hooks=default_hooks,
            custom_hooks=custom_hooks,
            config=self.data,
            **{**given, **changes},
        )

    def model(self) -> nn.Module:
        """The model, made from the seed of the run."""
        seed = self.data.get("seed", 0)
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        model = self.maker.part("model", ("model",), self.data["model"])
        if not isinstance(model, nn.Module):
            raise self.maker.refusal(("model",), f"expected a torch.nn.Module, and this makes a {type(model).__name__}")
        return model

    def train(self) -> TrainLoop | None:
        """The training loop."""
        section = self.data.get("train")
        if section is None:
            return None
        given = {name: value for name, value in section.items() if name not in ("dataloader", "step")}
        loader = self.loader(("train", "dataloader"), section["dataloader"])
        return TrainLoop(loader, self.maker.function("step", section.get("step")), **given)

    def evaluations(self, name: str) -> EvalLoop | dict[str, EvalLoop] | None:
        """The loop of `val` or `test`, or the several by name."""
        loops: dict[str, EvalLoop] = {}
        for keys, section in sections(self.data, name):
            loop = EvalLoop(
                self.loader((*keys, "dataloader"), section["dataloader"]),
                self.maker.function("step", section.get("step")),
                metrics=self.metrics(keys, section.get("metrics")),
                loss=self.maker.function("step", section.get("loss")),
                limit_batches=section.get("limit_batches"),
            )
            if keys == (name,):
                return loop
            loops[str(keys[-1])] = loop
        return loops or None

    def metrics(self, keys: Keys, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """A class is made with its parameters; a function is the metric itself."""
        if given is None:
            return None
        metrics: dict[str, Any] = {}
        for name, value in given.items():
            values = value if isinstance(value, Mapping) else {"type": value}
            factory = self.maker.resolver.resolve("metric", values["type"])
            if inspect.isclass(factory):
                metrics[name] = self.maker.part("metric", (*keys, "metrics", name), value)
            else:
                options = {key: item for key, item in values.items() if key != "type"}
                metrics[name] = functools.partial(factory, **options) if options else factory
        return metrics

    def loader(self, keys: Keys, value: Mapping[str, Any]) -> Any:
        """The resumable loader over a dataset, or what `type` names."""
        built: dict[str, Any] = {}
        if isinstance(value.get("dataset"), Mapping) and "type" in value["dataset"]:
            built["dataset"] = self.maker.part("dataset", (*keys, "dataset"), value["dataset"])
        if isinstance(value.get("collate_fn"), str):
            built["collate_fn"] = self.maker.function("collate_fn", value["collate_fn"])
        if "type" in value:
            return self.maker.part("dataloader", keys, value, **built)
        given = {name: item for name, item in value.items() if name not in built}
        return self.maker.call(keys, ResumableLoader, **given, **built, seed=self.data.get("seed", 0))
