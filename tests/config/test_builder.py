"""Configs become runners with everything that the YAML says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from hookline.common import rng
from hookline.config import build_runner, from_dict, load
from hookline.config.builder import build_hooks
from hookline.config.optims import OptimBuilder
from hookline.data.loader import ResumableLoader
from hookline.engine.loop_specs import EvalLoop
from hookline.errors import ConfigError
from hookline.optim.clipping import Clip
from hookline.optim.optim import Optim

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

Write = Callable[[str, str], Path]

BASE: dict[str, Any] = {
    "imports": ["mynet"],
    "model": {"type": "mynet:Net"},
    "train": {
        "dataloader": {"dataset": {"type": "mynet:Data", "n": 10}, "batch_size": 4},
        "step": "mynet:loss_of",
        "max_epochs": 3,
    },
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
    "work_dir": "out",
}


def build(*overrides: str, **kwargs: Any) -> Runner:
    return build_runner(from_dict(BASE, overrides), **kwargs)


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        build(*overrides)
    return str(caught.value)


def optim_of(*overrides: str) -> Optim:
    optim = build(*overrides).optim
    assert isinstance(optim, Optim)
    return optim


def test_a_runner_has_what_the_config_says(mynet: Write) -> None:
    mynet(
        "digits.yaml",
        """
        imports: [mynet]
        seed: 3
        model: {type: "mynet:Net", hidden: 5, scale: [1, 2]}
        train:
          dataloader: {dataset: {type: "mynet:Data", n: 10}, batch_size: 4, shuffle: true, drop_last: true}
          step: mynet:loss_of
          max_iters: 6
          val_interval: 2
        val:
          dataloader: {dataset: {type: "mynet:Data"}, batch_size: 8, collate_fn: "mynet:stack"}
          step: mynet:predict
          metrics: {errors: "mynet:error_rate", acc: {type: MulticlassAccuracy, num_classes: 3}}
          loss: mynet:loss_of
          limit_batches: 2
        optim: {optimizer: {type: AdamW, lr: 1e-2}, accumulate: 2, clip_norm: 1}
        custom_hooks: [{type: ToyHook, momentum: 1, priority: LOW}]
        default_hooks: {timer: null}
        points: {after_render: [image]}
        writers: [memory]
        """,
    )
    runner = build_runner(load("digits.yaml"))
    net: Any = runner.model
    assert net.scale == (1.0, 2.0)
    assert net.inner.out_features == 5
    loop, loader = runner.train_loop, runner.train_loop.dataloader
    assert isinstance(loader, ResumableLoader)
    assert (len(loader), loader.seed, loop.max_iters, loop.max_epochs, loop.val_interval) == (2, 3, 6, None, 2)
    assert isinstance(runner.val_loop, EvalLoop)
    assert runner.val_loop.length == 2
    assert (runner.seed, str(runner.work_dir), runner.experiment_name) == (3, "runs/digits", "digits")
    assert runner.config == load("digits.yaml").data
    optim = runner.optim
    assert isinstance(optim, Optim)
    assert (type(optim.optimizer), optim.accumulate, optim.clip) == (torch.optim.AdamW, 2, Clip(norm=1))
    names = [type(hook).__name__ for hook in runner.hooks]
    assert "ToyHook" in names
    assert "IterTimerHook" not in names
    runner.train()
    assert set(runner.val()) == {"errors", "acc", "loss"}


def test_a_function_of_the_config_weighs_batches(mynet: Write) -> None:
    data = "dataloader: {dataset: {type: 'mynet:Data'}, batch_size: 8}"
    runner = build("train.weigh=mynet:size", f"val={{{data}, loss: 'mynet:loss_of', weigh: 'mynet:size'}}")
    loops: tuple[Any, ...] = runner.train_loop, runner.val_loop
    assert [loop.weigher.function.__name__ for loop in loops] == ["size", "size"]
    runner.train()
    assert "mynet:sizes" in refused("train.weigh=mynet:sizes")


def test_the_seed_decides_the_weights(mynet: Write) -> None:
    def weight(*overrides: str) -> torch.Tensor:
        return build(*overrides).model.get_parameter("inner.weight")

    first = weight()
    torch.rand(5)
    assert torch.equal(weight(), first)
    assert not torch.equal(weight("seed=1"), first)


def test_evaluation_loops_by_name_and_custom_loaders(mynet: Write) -> None:
    runner = build(
        "val.a.dataloader={type: 'mynet:endless', batch_size: 5}",
        "val.a.limit_batches=1",
        "test.b.dataloader={type: DataLoader, dataset: {type: 'mynet:Data'}, batch_size: 2, collate_fn: 'mynet:stack'}",
    )
    assert list(runner.val_loops) == ["a"]
    assert next(iter(runner.val_loops["a"].dataloader))[0].shape == (5, 4)
    loader: Any = runner.test_loops["b"].dataloader
    assert (type(loader), loader.batch_size, loader.collate_fn.__name__) == (torch.utils.data.DataLoader, 2, "stack")


# -- optimizers


@pytest.mark.parametrize(
    ("overrides", "fused"),
    [
        ([], True),
        (["optim.optimizer.fused=false"], False),
        (["optim.optimizer.fused=true"], True),
        (["optim.optimizer.fused=null"], None),
        (["optim.optimizer.foreach=true"], None),
        (["optim.optimizer.differentiable=true"], None),
        (["model={type: EmbeddingBag, num_embeddings: 3, embedding_dim: 2, sparse: true}"], None),
    ],
)
def test_optimizers_are_fused_where_torch_supports_it(mynet: Write, overrides: list[str], fused: bool | None) -> None:
    assert optim_of(*overrides).optimizer.defaults["fused"] is fused


NAN = "expected a finite number, found .nan"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.optimizer.lr=.nan", f"optim.optimizer.lr: {NAN}"),
        ("optim.optimizer.lr=-.inf", "optim.optimizer.lr: expected a finite number, found -.inf"),
        ("optim.optimizer.lr=1e999", "optim.optimizer.lr: expected a finite number, found .inf"),
        ("optim.optimizer={type: Adam, betas: [.nan, 0.9]}", f"optim.optimizer.betas[0]: {NAN}"),
        ("optim.param_groups=[{match: '*.bias', lr: .nan}]", f"optim.param_groups[0].lr: {NAN}"),
        ("optim.schedulers=[{type: ExponentialLR, gamma: .nan}]", f"optim.schedulers[0].gamma: {NAN}"),
        (
            "optim.schedulers=[{type: CosineAnnealingLR, T_max: .nan}]",
            "optim.schedulers[0].T_max: expected an int, found .nan",
        ),
        (
            "optim.schedulers=[{type: ChainedScheduler, schedulers: [{type: StepLR, step_size: 1, gamma: .inf}]}]",
            "optim.schedulers[0].schedulers[0].gamma: expected a finite number, found .inf",
        ),
    ],
)
def test_a_number_of_an_optimizer_or_scheduler_that_is_not_finite_is_refused(
    mynet: Write, override: str, message: str
) -> None:
    assert refused(override).splitlines()[1:] == [f"  override {override!r}  {message}"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optim.param_groups=[{match: '*.bias', lr: -1}]",
            "SGD: lr of parameter group 1 must be a number of at least 0, not -1",
        ),
        (
            "optim.schedulers=[{type: StepLR, step_size: 0}]",
            "StepLR: step_size must be a number above 0, not 0",
        ),
        (
            "optim.schedulers=[{type: ExponentialLR, gamma: -0.5}]",
            "ExponentialLR: gamma must be a number of at least 0, not -0.5",
        ),
        ("optim.clip_norm=.inf", "clip_norm must be a number above 0, not inf"),
    ],
)
def test_a_number_that_torch_would_accept_is_refused_with_its_section(
    mynet: Write, override: str, message: str
) -> None:
    assert refused(override) == f"config optim: {message}"


@pytest.mark.parametrize(
    ("given", "foreach"),
    [
        ("{type: RMSprop, lr: 0.01}", True),
        ("{type: NAdam}", True),
        ("{type: Rprop}", True),
        ("{type: RMSprop, foreach: false}", False),
        ("{type: AdamW, foreach: false}", False),
        ("{type: AdamW}", None),
    ],
)
def test_an_optimizer_without_a_fused_step_updates_all_tensors_at_once(
    mynet: Write, given: str, foreach: bool | None
) -> None:
    assert optim_of(f"optim.optimizer={given}").optimizer.defaults["foreach"] is foreach


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop"]
)
def test_the_fast_step_of_an_optimizer_computes_the_same_weights(mynet: Write, name: str) -> None:
    kind: Any = type(optim_of(f"optim.optimizer={{type: {name}, lr: 0.01}}").optimizer)
    fast = optim_of(f"optim.optimizer={{type: {name}, lr: 0.01}}").optimizer.defaults
    option = {"fused": True} if fast.get("fused") else {"foreach": True}
    assert fast.get("fused") or fast["foreach"]
    trained = []
    for options in ({}, option):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = kind(model.parameters(), lr=0.01, **options)
        inputs = torch.randn(32, 8)
        for _ in range(20):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        trained.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-4, atol=1e-6)


def test_an_optimizer_is_not_fused_for_a_device_without_fused_steps() -> None:
    model = torch.nn.Linear(2, 2)
    parameters, no_maker = dict(model.named_parameters()), cast("Any", None)
    found = {
        device: OptimBuilder(no_maker, model, None, device)._fast_options(torch.optim.AdamW, {}, parameters)
        for device in ("cpu", "auto", "vulkan")
    }
    assert found == {"cpu": {"fused": True}, "auto": {"fused": True}, "vulkan": {}}


def test_an_optimizer_without_fused_does_not_get_it(mynet: Write) -> None:
    assert "fused" not in optim_of("optim.optimizer={type: Rprop}").optimizer.defaults
    assert refused("optim.optimizer={type: Rprop, fused: true}").splitlines()[1].partition(";")[0] == (
        "  override 'optim.optimizer={type: Rprop, fused: true}'  optim.optimizer.fused: Rprop has no parameter 'fused'"
    )


def test_the_first_matching_parameter_group_wins(mynet: Write) -> None:
    optim = optim_of("optim.param_groups=[{match: 'outer.*', lr: 1}, {match: '*.bias', weight_decay: 0.5}]")
    groups = [([tuple(p.shape) for p in g["params"]], g["lr"], g["weight_decay"]) for g in optim.optimizer.param_groups]
    assert groups == [([(8, 4)], 0.1, 0), ([(3, 8), (3,)], 1, 0), ([(8,)], 0.1, 0.5)]


def test_a_parameter_group_takes_a_list_of_patterns(mynet: Write) -> None:
    optim = optim_of("optim.param_groups=[{match: ['outer.*', '*.bias'], lr: 1}]")
    groups = [([tuple(p.shape) for p in g["params"]], g["lr"]) for g in optim.optimizer.param_groups]
    assert groups == [([(8, 4)], 0.1), ([(8,), (3, 8), (3,)], 1)]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optim.param_groups=[{match: ['*.weight', '*.bais', 'zzz']}]",
            "optim.param_groups[0].match[1]: '*.bais' matches no parameter of the model; "
            "the closest name is 'outer.bias'",
        ),
        (
            "optim.param_groups=[{match: 'outer.*'}, {match: ['*.weight', outer.bias]}]",
            "optim.param_groups[1].match[1]: 'outer.bias' matches only parameters that earlier groups already take",
        ),
        (
            "optim.params=['inner.*', 'otter.*']",
            "optim.params[1]: 'otter.*' matches no parameter of the model; the closest name is 'outer.bias'",
        ),
        (
            "optim.param_groups=[{match: '*.bais'}]",
            "optim.param_groups[0].match: '*.bais' matches no parameter of the model; the closest name is 'outer.bias'",
        ),
        (
            "optim.param_groups=[{match: '*'}, {match: '*.bias'}]",
            "optim.param_groups[1].match: '*.bias' matches only parameters that earlier groups already take",
        ),
        (
            "optim.params='zzz'",
            "optim.params: 'zzz' matches no parameter of the model; "
            "available: inner.weight, inner.bias, outer.weight, outer.bias",
        ),
        (
            "optim={a: {optimizer: {type: SGD}, params: 'inner.*'}, b: {optimizer: {type: SGD}, params: '*.bias'}}",
            "optim.b.params: the parameter 'inner.bias' is already updated by 'a'",
        ),
        (
            "optim.optimizer.lr=-1",
            "optim.optimizer: SGD(...) failed: ValueError: Invalid learning rate: -1.0 "
            "(override 'optim.optimizer.lr=-1')",
        ),
        ("model.hidden=0", "model: Net(...) failed: ValueError: hidden must be positive (override 'model.hidden=0')"),
        (
            "model={type: 'mynet:Data'}",
            "model: expected a torch.nn.Module, but this creates a Data",
        ),
        (
            "optim.optimizer={type: 'mynet:Data'}",
            "optim.optimizer: expected a torch optimizer, but this creates a Data",
        ),
        (
            "train.dataloader.dataset={type: 'mynet:endless'}",
            "train.dataloader: a ResumableLoader needs a dataset with a length and items by index, but generator "
            "does not have them; use a torch DataLoader for it instead",
        ),
    ],
)
def test_a_part_that_cannot_be_built_is_reported_with_its_position(mynet: Write, override: str, message: str) -> None:
    whole = message.startswith(("optim.optimizer: SGD", "model: Net", "train.dataloader"))
    place = "config" if whole else f"override {override!r}"
    assert refused(override) == f"{place} {message}"


def test_the_cause_of_a_failure_stays_attached(mynet: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        build("model.hidden=0")
    assert isinstance(caught.value.__cause__, ValueError)


def test_several_optimizers_by_name(mynet: Write) -> None:
    optims = build(
        "optim={in: {optimizer: {type: SGD}, params: 'inner.*'},"
        " out: {optimizer: {type: Adam}, params: [outer.weight]}}"
    ).optim
    assert isinstance(optims, dict)
    assert {name: (type(one.optimizer), len(one.parameters())) for name, one in optims.items()} == {
        "in": (torch.optim.SGD, 2),
        "out": (torch.optim.Adam, 1),
    }


# -- schedulers


@pytest.mark.parametrize(
    ("overrides", "length"),
    [
        ([], 3),
        (["optim.schedulers.0.when=epoch"], 3),
        (["optim.schedulers.0.when=iter"], 9),
        (["optim.schedulers.0.when=step", "optim.accumulate=2"], 6),
        (["train.limit_batches=2", "optim.schedulers.0.when=iter"], 6),
        (["train.max_epochs=null", "train.max_iters=7"], 7),
        (["train.max_epochs=null", "train.max_iters=7", "optim.schedulers.0.when=epoch"], 3),
        (["train.max_epochs=null", "train.max_iters=7", "optim.schedulers.0.when=step", "optim.accumulate=2"], 4),
    ],
)
def test_auto_is_the_length_of_training(mynet: Write, overrides: list[str], length: int) -> None:
    optim = optim_of("optim.schedulers=[{type: CosineAnnealingLR, T_max: auto}]", *overrides)
    scheduler: Any = optim.schedulers[0].scheduler
    assert scheduler.T_max == length


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [
                "train.dataloader={type: 'mynet:endless'}",
                "optim.schedulers=[{type: StepLR, step_size: auto, when: iter}]",
            ],
            "'auto' needs the length of the loader, which has none; set a number",
        ),
        (
            ["optim.schedulers=[{type: StepLR, step_size: auto, when: val}]"],
            "'auto' is not available for a scheduler that steps at 'val'; set a number",
        ),
        (
            ["train=null", "optim.schedulers=[{type: StepLR, step_size: auto}]"],
            "'auto' is the length of training, but there is no 'train' section",
        ),
    ],
)
def test_auto_needs_a_length(mynet: Write, overrides: list[str], message: str) -> None:
    assert refused(*overrides) == f"override {overrides[-1]!r} optim.schedulers[0].step_size: {message}"


def test_schedulers_of_schedulers_and_when_they_step(mynet: Write) -> None:
    optim = optim_of(
        "optim.schedulers=["
        "{type: SequentialLR, schedulers: [{type: ConstantLR, factor: 0.5}, {type: StepLR, step_size: auto}],"
        " milestones: [1], when: iter},"
        "{type: ChainedScheduler, schedulers: [{type: ExponentialLR, gamma: 1}]},"
        "{type: ReduceLROnPlateau, monitor: loss}]"
    )
    assert [(type(one.scheduler), one.when, one.monitor) for one in optim.schedulers] == [
        (lr_scheduler.SequentialLR, "iter", None),
        (lr_scheduler.ChainedScheduler, None, None),
        (lr_scheduler.ReduceLROnPlateau, "val", "loss"),
    ]
    sequence: Any = optim.schedulers[0].scheduler
    assert [type(inner) for inner in sequence._schedulers] == [lr_scheduler.ConstantLR, lr_scheduler.StepLR]
    assert sequence._schedulers[1].step_size == 9


# -- hooks


def test_hooks_alone_need_neither_model_nor_data(mynet: Write) -> None:
    config = {
        "imports": ["mynet"],
        "model": {"type": "nowhere:Net"},
        "custom_hooks": [{"type": "ToyHook", "momentum": 1, "paths": ["a"], "priority": "LOW"}, "mynet:ActorHook"],
        "default_hooks": {"timer": None, "logger": {"type": "ActorHook"}},
    }
    defaults, custom = build_hooks(from_dict(config))
    module = sys.modules["mynet"]
    assert defaults["timer"] is None
    (logger, toy, actor) = [defaults["logger"], *custom]
    assert logger is not None
    assert (type(logger.pop("type")()), logger) == (module.ActorHook, {})
    assert (toy.pop("type")().momentum, toy) == (1.0, {"priority": "LOW"})
    assert type(actor["type"]()) is module.ActorHook
    with pytest.raises(ConfigError, match=r"^config: 1 error\n  config  custom_hooks\[0\]: the key 'type' is missing$"):
        build_hooks(from_dict({"custom_hooks": [{}]}))


def test_hooks_alone_do_not_import_torch(write: Write) -> None:
    write("light.py", "from hookline.runner.hook import Hook\nclass Mine(Hook): ...\n")
    code = (
        "import sys; from hookline.config.builder import build_hooks; from hookline.config import from_dict; "
        "build_hooks(from_dict({'custom_hooks': ['light:Mine']})); print('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(build_hooks.__code__.co_filename).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout == "False\n"


def test_hostile_targets_are_refused_before_anything_is_built(mynet: Write) -> None:
    message = refused("train.dataloader={type: 'os:system', command: 'touch hacked'}", "model.type=torch.hub:load")
    assert message.splitlines()[0] == "config: 2 errors"
    assert not Path("hacked").exists()


def test_allow_is_passed_on(mynet: Write) -> None:
    runner = build("train.step=torch.nn.functional:mse_loss", allow=["torch.nn.functional"])
    assert runner.train_loop.step is torch.nn.functional.mse_loss


def test_a_parameter_for_a_function_or_a_class_gets_the_named_object(mynet: Write) -> None:
    hook = "custom_hooks=[{{type: CallingHook, function: '{}', kind: {}}}]".format

    def made(function: str, kind: str) -> Any:
        return next(entry.hook for entry in build(hook(function, kind)).plan if entry.name == "CallingHook")

    plain = made("mynet:loss_of", "fast")
    assert (plain.function.__module__, plain.function.__name__, plain.kind) == ("mynet", "loss_of", "fast")
    assert made("mynet:loss_of", "'mynet:Net'").kind.__name__ == "Net"
    assert "custom_hooks[0].function: 'mynet:system' is refused: it is posix.system" in refused(
        hook("mynet:system", "fast")
    )


def test_building_and_previewing_leave_the_random_generators_of_the_caller_alone(mynet: Write) -> None:
    rng.seed_everything(5)
    before = rng.state()["torch"]
    build("resume=true").preview_resume()
    assert torch.equal(rng.state()["torch"], before)


def test_null_means_no_schedulers(mynet: Write) -> None:
    assert optim_of("optim.schedulers=null").schedulers == []
