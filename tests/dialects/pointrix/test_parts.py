"""The parts of a trainer: sections that build them, ignored sections, and missing parts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects.pointrix.dataset import DATA_SET_REGISTRY
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.engine.default_datapipeline import BaseDataPipeline
from hookline.dialects.pointrix.hook import CheckPointHook, Hook, LogHook
from hookline.dialects.pointrix.logger import JsonlWriter, Logger
from hookline.dialects.pointrix.model import MODEL_REGISTRY
from hookline.dialects.pointrix.optimizer import BaseOptimizer, ExponLRScheduler, OptimizerList, parse_optimizer
from hookline.dialects.pointrix.renderer import RENDERER_REGISTRY
from hookline.errors import ConfigError, HooklineError, NumericsError
from hookline.screen.terminal import Terminal
from tests.dialects.pointrix.scene import SIDE, Blur, Fall, Scene, SceneTrainer, Views, config


class Pictures:
    """A data set of twelve training images and two validation images."""

    radius = 2.0

    def __init__(self, cfg: Any, split: str) -> None:
        self.seed, self.size = cfg["seed"], {"train": 12, "val": 2}[split]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed + index)
        return {"index": index, "image": torch.rand(SIDE * SIDE, 3, generator=generator)}


class PictureScene(Scene):
    """The scene, for batches that are lists of pictures."""

    def __init__(self, cfg: dict[str, Any], datapipeline: Any, device: str) -> None:
        super().__init__(cfg["points"])
        self.made_with = (datapipeline, device)

    def get_loss_dict(self, results: Any, batch: Any) -> Any:
        return super().get_loss_dict(results, torch.stack([each["image"] for each in batch]))

    def get_metric_dict(self, results: Any, batch: Any) -> Any:
        return super().get_metric_dict(results, batch[0]["image"])


class PlainBlur(Blur):
    def __init__(self, cfg: dict[str, Any], white_bg: bool) -> None:
        super().__init__()
        self.made_with = (cfg, white_bg)


SECTIONS: dict[str, Any] = {
    "datapipeline": {"data_set": "Pictures", "batch_size": 4, "white_bg": True, "dataset": {"seed": 5}},
    "model": {"name": "PictureScene", "points": 7},
    "renderer": {"name": "PlainBlur", "blur": 2},
    "writer": {"writer_type": "JsonlWriter"},
    "scheduler": {
        "name": "ExponLRScheduler",
        "params": {"point_cloud.position": {"init": 0.1, "final": 0.001, "max_steps": 6}},
    },
    "optimizer": {
        "main": {
            "type": "BaseOptimizer",
            "name": "Adam",
            "args": {"eps": 1e-15},
            "params": {"point_cloud.position": {"lr": 0.1}, "point_cloud.color": {"lr": 0.02}},
        }
    },
}


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logger, "terminal", Terminal(quiet=True))
    for registry, item in (
        (DATA_SET_REGISTRY, Pictures),
        (MODEL_REGISTRY, PictureScene),
        (RENDERER_REGISTRY, PlainBlur),
    ):
        monkeypatch.setattr(registry, "_registered", {item.__name__: item})


def test_every_section_builds_its_part(tmp_path: Path) -> None:
    trainer = DefaultTrainer(config(max_steps=6, **SECTIONS), tmp_path, "cpu")
    assert isinstance(trainer.datapipeline, BaseDataPipeline)
    assert (trainer.datapipeline.training_dataset_size, trainer.datapipeline.validation_dataset_size) == (12, 2)
    assert trainer.model.made_with == (trainer.datapipeline, "cpu")
    assert len(trainer.model.point_cloud) == 7
    assert trainer.renderer.made_with == ({"blur": 2}, True)
    assert isinstance(trainer.writer, JsonlWriter)
    assert isinstance(trainer.schedulers, ExponLRScheduler)
    assert isinstance(trainer.optimizer, OptimizerList)
    assert [group["name"] for group in trainer.optimizer.param_groups] == ["point_cloud.position", "point_cloud.color"]
    trainer.train_loop()
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    assert rates == pytest.approx([2 * 0.001, 0.02])  # a scene of radius 2
    assert trainer.optimizer_dict["white_bg"] is True


def test_a_run_built_from_sections_resumes_exactly(tmp_path: Path) -> None:
    last = []
    for folder, stops in (("whole", [7]), ("broken", [2, 7])):
        for stop in stops:
            trainer = DefaultTrainer(config(max_steps=stop, resume=True, **SECTIONS), tmp_path / folder, "cpu")
            trainer.register_hook(CheckPointHook())
            trainer.train_loop()
        last.append(trainer.model.state_dict())
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])


def test_the_batch_depends_only_on_the_step() -> None:
    cfg = {"data_set": "Pictures", "batch_size": 5, "dataset": {"seed": 0}}

    def indices(pipeline: BaseDataPipeline, *steps: int) -> list[list[int]]:
        return [[each["index"] for each in pipeline.next_train(step)] for step in steps]

    whole = indices(BaseDataPipeline(cfg), *range(1, 8))
    assert [len(batch) for batch in whole] == [5, 5, 2, 5, 5, 2, 5]
    for epoch in (whole[:3], whole[3:6]):
        assert sorted(index for batch in epoch for index in batch) == list(range(12))
    assert whole[:3] != whole[3:6]
    assert indices(BaseDataPipeline(cfg), 5, 6, 7) == whole[4:]
    assert indices(BaseDataPipeline(cfg), 2, 2, 1) == [whole[1], whole[1], whole[0]]
    assert indices(BaseDataPipeline(cfg, seed=1), 1) != whole[:1]


def test_an_empty_section_builds_nothing(tmp_path: Path) -> None:
    trainer = DefaultTrainer({}, tmp_path, "cpu")
    parts = ("datapipeline", "model", "renderer", "writer", "logger", "schedulers", "optimizer")
    assert {name: getattr(trainer, name) for name in parts} == dict.fromkeys(parts)
    assert trainer.hooks == ()


def test_without_training_neither_optimizer_nor_scheduler_is_built(tmp_path: Path) -> None:
    trainer = DefaultTrainer(config(training=False, **SECTIONS), tmp_path, "cpu")
    assert (trainer.optimizer, trainer.schedulers) == (None, None)
    trainer.test()
    assert trainer.metric_dict["psnr"].isfinite()


@pytest.mark.parametrize("part", ["datapipeline", "model", "optimizer"])
def test_training_without_a_needed_part_is_refused(tmp_path: Path, part: str) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    setattr(trainer, part, None)
    with pytest.raises(ConfigError) as caught:
        trainer.train_loop()
    assert str(caught.value) == (
        f"trainer.{part} is not set, and training needs it: add a section '{part}' to the config, or set "
        f"trainer.{part} after super().__init__"
    )


def test_renderer_schedulers_and_optional_methods_of_a_model_may_be_missing(tmp_path: Path) -> None:
    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(()))

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.slope * batch

        def get_loss_dict(self, found: torch.Tensor, batch: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (found - 2 * batch).square().mean()}

    class LineTrainer(DefaultTrainer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.model, self.datapipeline = Line(), Views()
            self.optimizer = BaseOptimizer(None, torch.optim.SGD(self.model.parameters(), lr=0.5))

    trainer = LineTrainer(config(max_steps=50, val_interval=0), tmp_path, "cpu")
    trainer.train_loop()
    assert trainer.model.slope.item() == pytest.approx(2.0)
    assert trainer.optimizer_dict == {}


def test_an_optimizer_needs_update_model_and_a_validation_needs_data(tmp_path: Path) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    wrapped, trainer.optimizer = trainer.optimizer, trainer.optimizer.optimizer
    with pytest.raises(ConfigError, match=r"^the optimizer \(Adam\) has no update_model; wrap it: BaseOptimizer\(None"):
        trainer.train_loop()
    trainer.optimizer = wrapped
    del trainer.datapipeline.validation_dataset
    with pytest.raises(
        ConfigError,
        match=r"^datapipeline has no validation_dataset; to train without validation, set val_interval: 0",
    ):
        trainer.train_loop()


class StepsOnly:
    """A custom optimizer that makes steps and has no state."""

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def update_model(self, **kwargs: Any) -> None:
        self.optimizer.step()


class Saves(StepsOnly):
    def state_dict(self) -> dict[str, Any]:
        return {}


NEEDS = (
    ", which checkpoints need; write state_dict(self), which returns its state, and "
    "load_state_dict(self, state), which restores it, or inherit from BaseOptimizer of "
    "pointrix.optimizer, which has both"
)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("kind", "missing"), [(StepsOnly, "no state_dict and no load_state_dict"), (Saves, "no load_state_dict")]
)
def test_an_optimizer_that_cannot_be_saved_is_refused_before_training(
    tmp_path: Path, kind: Any, missing: str, several: bool
) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    optimizer = kind(None, trainer.optimizer.optimizer)
    trainer.optimizer = OptimizerList({"main": optimizer}) if several else optimizer
    with pytest.raises(ConfigError) as refused:
        trainer.train_loop()
    assert str(refused.value) == f"the optimizer ({kind.__name__}) has {missing}{NEEDS}"
    assert trainer.datapipeline.asked == []


@pytest.mark.parametrize("given", [None, 5])
def test_an_exp_dir_that_is_not_a_path_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        SceneTrainer(config(), given)
    assert str(refused.value) == (
        f"exp_dir must be the path of the folder of the run, not {given}; load_config builds one from output_path "
        "and name: cfg.exp_dir"
    )


def test_the_model_is_in_evaluation_mode_without_gradients_while_it_is_validated(tmp_path: Path) -> None:
    modes = []

    class Watches(SceneTrainer):
        def render(self, batch: Any) -> Any:
            modes.append((self.model.training, torch.is_grad_enabled()))
            return super().render(batch)

    trainer = Watches(config(max_steps=1), tmp_path)
    trainer.train_loop()
    assert modes == [(True, True), (False, False), (False, False)]
    assert trainer.model.training


def test_unsupported_sections_are_ignored_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hookline"):
        SceneTrainer(config(gui={"port": 80}, exporter={"a": {}}), tmp_path)
    assert caplog.messages == [
        "the section 'exporter' of the trainer's config is ignored: it is not supported here",
        "the section 'gui' of the trainer's config is ignored: it is not supported here",
    ]
    with pytest.raises(
        ConfigError,
        match="^controllers are not supported: leave the section 'controller' empty, and add and remove points in a ho",
    ):
        SceneTrainer(config(controller={"name": "DensificationController"}), tmp_path)


@pytest.mark.parametrize(
    ("section", "given", "message"),
    [
        ("model", {"name": "Scen"}, "unknown model 'Scen'; available: PictureScene"),
        ("model", {"points": 2}, "the section of a model needs its class as 'name'; this one has ['points']"),
        ("renderer", {"name": "PlainBlurr"}, "unknown renderer 'PlainBlurr'; did you mean 'PlainBlur'?"),
        ("scheduler", {"params": {}}, "the section of a scheduler needs its class as 'name'; this one has ['params']"),
        (
            "scheduler",
            {"name": "ExponLRScheduler", "params": {"p": {"init": 1.0, "final": 1.0}}},
            "scheduler: params of 'p' have no 'max_steps'; available: init, final",
        ),
        (
            "optimizer",
            {"a": {"name": "Adma"}},
            "optimizer 'a': 'name' must be a torch optimizer, such as Adam, not 'Adma'",
        ),
        ("optimizer", {"a": {"nam": "Adam"}}, "optimizer 'a' has no key 'nam'; did you mean 'name'?"),
        (
            "optimizer",
            {"a": {"name": "Adam", "params": {"point_cloud.positon": {}}}},
            "optimizer 'a': params names 'point_cloud.positon', which the model does not have; "
            "did you mean 'point_cloud.position'?",
        ),
        (
            "optimizer",
            {"a": {"name": "Adam", "params": {"made_with": {}}}},
            "optimizer 'a': 'made_with' must be a parameter or a module of the model, not a tuple",
        ),
        (
            "optimizer",
            {"a": {"name": "Adam", "args": {"lrr": 1}}},
            "optimizer 'a' has no parameter 'lrr'; did you mean 'lr'?",
        ),
    ],
)
def test_an_invalid_section_is_refused(tmp_path: Path, section: str, given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DefaultTrainer({**SECTIONS, section: given}, tmp_path, "cpu")
    assert str(caught.value) == message


def test_an_optimizer_section_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="^the config has a section 'optimizer' but no section 'model'; if you set the model"
    ):
        DefaultTrainer({"optimizer": SECTIONS["optimizer"]}, tmp_path, "cpu")


def test_several_optimizers_step_as_one_and_a_module_may_be_a_group() -> None:
    model = Scene(3)
    optimizers = parse_optimizer(
        {"a": {"name": "SGD", "params": {"point_cloud": {"lr": 0.5}}}, "b": {"name": "Adam", "args": {"lr": 0.1}}},
        model,
    )
    assert (len(optimizers), "a" in optimizers, "c" in optimizers) == (2, True, False)
    assert [len(group["params"]) for group in optimizers.param_groups] == [2, 2]
    assert optimizers.optimizer_dict["a"].get_lr() == {"lr": [0.5]}
    before = model.point_cloud.position.detach().clone()
    model.point_cloud.position.grad = torch.ones(3, 2)
    optimizers.update_model(loss=1.0)
    assert torch.allclose(model.point_cloud.position, before - 0.5)  # the first has cleared the gradients
    state = optimizers.state_dict()
    optimizers.load_state_dict(state)
    with pytest.raises(ConfigError, match=r"^unknown optimizer 'c'; available: a, b$"):
        optimizers.load_state_dict({"c": {}})


def test_a_null_optimizer_is_left_out() -> None:
    one = {"name": "SGD", "args": {"lr": 0.1}}
    assert list(parse_optimizer({"main": one, "other": None}, Scene()).optimizer_dict) == ["main"]


def test_schedulers_get_the_step_and_the_optimizer() -> None:
    class Groups:
        param_groups = ({"name": "a", "lr": 1.0}, {"lr": 1.0})

    Fall().step(4, Groups)
    assert Groups.param_groups[0]["lr"] == 0.025
    scheduler = ExponLRScheduler({"params": {"a": {"init": 1.0, "final": 0.25, "max_steps": 2}}}, lr_scale=2.0)
    scheduler.step(1, Groups)
    assert [group["lr"] for group in Groups.param_groups] == pytest.approx([1.0, 0.025])


@pytest.mark.parametrize(("cfg", "given", "device"), [({}, "cpu", "cpu"), ({"device": "cpu"}, None, "cpu")])
def test_the_device_is_taken_from_the_argument_or_the_config(
    tmp_path: Path, cfg: dict[str, Any], given: str | None, device: str
) -> None:
    assert DefaultTrainer(cfg, tmp_path, given).device == device


def test_a_missing_device_is_refused_and_the_default_is_an_available_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert DefaultTrainer({}, tmp_path).device == "cpu"
    with pytest.raises(ConfigError) as refused:
        DefaultTrainer({"device": "cuda"}, tmp_path)
    assert str(refused.value) == "the device 'cuda' is not available with this torch on this machine; available: cpu"


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ({"L1_loss": 1.0, "ssim_loss": 2.0}, "'L1_loss', 'ssim_loss', and no 'loss'"),
        ({}, "an empty mapping, and no 'loss'"),
        ({"loss": torch.zeros(3, requires_grad=True)}, "a tensor of shape (3,) as 'loss'"),
        ({"loss": 0.5}, "a float as 'loss'"),
        (None, "None"),
        (torch.zeros(()), "a tensor of shape ()"),
    ],
)
def test_a_model_must_return_its_loss_as_loss(tmp_path: Path, losses: Any, found: str) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    trainer.model.get_loss_dict = lambda rendered, batch: losses
    with pytest.raises(ConfigError) as caught:
        trainer.train_loop()
    assert str(caught.value) == (
        f"Scene.get_loss_dict returned {found}; it must return a mapping with the sum of all losses as 'loss', a "
        "tensor with one element, because train_step calls its backward()"
    )
    assert isinstance(caught.value, KeyError)


def test_a_loss_without_a_gradient_is_refused(tmp_path: Path) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    trainer.model.get_loss_dict = lambda rendered, batch: {"loss": rendered["rgb"].detach().sum()}
    with pytest.raises(HooklineError, match=r"^the loss has no gradient: it was detached"):
        trainer.train_loop()


def test_the_step_computes_the_gradients_and_hooks_see_losses_without_a_graph(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Sees(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            seen.append([trainner.loss_dict[name].requires_grad for name in ("loss", "L1_loss")])
            seen.append(trainner.optimizer_dict["loss"].requires_grad)

    class Gradients(BaseOptimizer):
        def update_model(self, **kwargs: Any) -> None:
            seen.append(all(each.grad is not None for group in self.param_groups for each in group["params"]))
            super().update_model(**kwargs)

    trainer = SceneTrainer(config(max_steps=1, val_interval=0), tmp_path)
    trainer.optimizer = Gradients(None, trainer.optimizer.optimizer)
    trainer.register_hook(Sees())
    trainer.train_loop()
    assert seen == [True, [False, False], False]


def test_the_error_of_a_failed_step_or_validation_shows_where(tmp_path: Path) -> None:
    class Fails(Views):
        bad = (4, -1)

        def next_train(self, step: int) -> Any:
            if step == self.bad[0]:
                raise ValueError("no such view")
            return super().next_train(step)

        def next_val(self, index: int) -> Any:
            if index == self.bad[1]:
                raise OSError("no such picture")
            return super().next_val(index)

    trainer = SceneTrainer(config(), tmp_path)
    trainer.datapipeline = Fails()
    with pytest.raises(ValueError, match=r"^no such view") as in_step:
        trainer.train_loop()
    assert in_step.value.__notes__ == ["in the step, global_step=4"]
    trainer.datapipeline.bad = (0, 1)
    with pytest.raises(OSError, match=r"^no such picture") as in_validation:
        trainer.train_loop()
    assert in_validation.value.__notes__ == ["in item 1 of the validation, global_step=3"]


@pytest.mark.parametrize(("hooks", "step"), [([LogHook], 2), ([], 3)])
def test_a_nonfinite_loss_ends_the_run_where_it_is_logged_and_at_the_end(
    tmp_path: Path, hooks: list[type[Hook]], step: int
) -> None:
    class Diverges(SceneTrainer):
        def train_step(self, batch: Any) -> None:
            super().train_step(batch)
            if self.global_step > 1:
                self.loss_dict["loss"] = self.loss_dict["loss"] * float("inf")

    trainer = Diverges(config(max_steps=3, val_interval=0), tmp_path)
    for hook in hooks:
        trainer.register_hook(hook())
    with pytest.raises(NumericsError) as caught:
        trainer.train_loop()
    assert str(caught.value) == (
        f"the loss has become inf by step {step}, so training cannot continue; check the learning rate and the data"
    )
