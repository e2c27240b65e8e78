"""Builds the model, the loops and the optims of a checked config, and puts them together into a Runner."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hookline.common import rng
from hookline.common.environment import recorded, revealed
from hookline.config.optims import OptimBuilder
from hookline.config.validation import iter_sections
from hookline.data.loader import ResumableLoader
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.runner.runner import Runner
from hookline.strategies import pick

if TYPE_CHECKING:
    from hookline.common.marks import Keys
    from hookline.config.factory import Maker

# Keys that are passed to the Runner unchanged.
_PASSED_ON = (
    *("experiment_name", "seed", "device", "strategy", "precision", "load_from", "resume", "keep"),
    *("trial_batch", "points", "budget"),
    *("compile", "channels_last", "threads", "prefetch"),
)


def native_path(text: str) -> str:
    """Return a path from a config in the encoding of this process. A config is UTF-8, but the locale may not be."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


class Assembly:
    """Builds the parts that a checked config names."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.data = revealed(maker.loaded.data)

    def build_runner(self, default_hooks: dict[str, Any], custom_hooks: list[Any], **changes: Any) -> Runner:
        """Build the model first, then the loops and the optims, and pass all of them to a Runner."""
        with rng.preserved():
            return self._build_runner(default_hooks, custom_hooks, changes)

    def _build_runner(
        self, default_hooks: dict[str, Any], custom_hooks: list[Any], changes: Mapping[str, Any]
    ) -> Runner:
        model = self.build_model()
        train = self.build_train_loop()
        val, test = self.build_eval_loops("val"), self.build_eval_loops("test")
        given = {name: self.data[name] for name in _PASSED_ON if name in self.data}
        for name in ("load_from", "resume"):
            if isinstance(given.get(name), str):
                given[name] = native_path(given[name])
        if "writers" in self.data:
            given["writers"] = [
                self.maker.build_part("writer", ("writers", index), value)
                for index, value in enumerate(self.data["writers"])
            ]
        if self.data.get("work_dir") is not None:
            given["work_dir"] = native_path(self.data["work_dir"])
        elif self.maker.loaded.file is not None:
            given["work_dir"] = f"runs/{self.maker.loaded.file.stem}"
        given |= changes
        strategy = given["strategy"] = pick(given.get("strategy", "auto"))
        if train is not None:  # `auto` lengths count the batches of one process
            train.dataloader = strategy.share(train.dataloader, pad=True)
        optims = OptimBuilder(self.maker, model, train, self.data.get("device", "auto"))
        runner = Runner(
            model,
            train=train,
            val=val,
            test=test,
            optim=optims.build_all(self.data),
            default_hooks=default_hooks,
            custom_hooks=custom_hooks,
            config=recorded(self.maker.loaded.data),
            **given,
        )
        runner._host.config_file = self.maker.loaded.file
        return runner

    def build_model(self) -> nn.Module:
        """Build the model, with random numbers seeded by the seed of the run."""
        seed = self.data.get("seed", 0)
        rng.seed_everything(seed)
        model = self.maker.build_part("model", ("model",), self.data["model"])
        if not isinstance(model, nn.Module):
            raise self.maker.refusal(
                ("model",), f"expected a torch.nn.Module, but this creates a {type(model).__name__}"
            )
        return model

    def build_train_loop(self) -> TrainLoop | None:
        """Build the training loop, if there is one."""
        section = self.data.get("train")
        if section is None:
            return None
        options = {name: value for name, value in section.items() if name not in ("dataloader", "step", "weigh")}
        loader = self.build_loader(("train", "dataloader"), section["dataloader"])
        weigh = self.maker.resolve("function", section.get("weigh"))
        return TrainLoop(loader, self.maker.resolve("step", section.get("step")), weigh=weigh, **options)

    def build_eval_loops(self, name: str) -> EvalLoop | dict[str, EvalLoop] | None:
        """Build the loop of `val` or `test`, or several loops by name."""
        loops: dict[str, EvalLoop] = {}
        for keys, section in iter_sections(self.data, name):
            loop = EvalLoop(
                self.build_loader((*keys, "dataloader"), section["dataloader"]),
                self.maker.resolve("step", section.get("step")),
                metrics=self.build_metrics(keys, section.get("metrics")),
                loss=self.maker.resolve("step", section.get("loss")),
                limit_batches=section.get("limit_batches"),
                weigh=self.maker.resolve("function", section.get("weigh")),
            )
            if keys == (name,):
                return loop
            loops[str(keys[-1])] = loop
        return loops or None

    def build_metrics(self, keys: Keys, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Build the metrics of an evaluation, if it has any."""
        if given is None:
            return None
        return {name: self.build_metric((*keys, "metrics", name), value) for name, value in given.items()}

    def build_metric(self, keys: Keys, value: Any) -> Any:
        """Build one metric. A class is called with its parameters; a function is the metric itself."""
        return self.maker.build(self.maker.draft(lambda drafter: drafter.metric(keys, value)))

    def build_loader(self, keys: Keys, value: Mapping[str, Any]) -> Any:
        """Build the resumable loader over a dataset, or the loader that `type` names."""
        parts = self.maker.draft(lambda drafter: drafter.loader_parts(keys, value))
        built = {name: self.maker.build(blueprint) for name, blueprint in parts.items()}
        if "type" in value:
            return self.maker.build_part("dataloader", keys, value, **built)
        given = {name: item for name, item in value.items() if name not in built}
        if given.get("pin_memory", "auto") == "auto":
            given["pin_memory"] = torch.cuda.is_available() and self.data.get("device", "auto") != "cpu"
        return self.maker.call(keys, ResumableLoader, **given, **built, seed=self.data.get("seed", 0))
