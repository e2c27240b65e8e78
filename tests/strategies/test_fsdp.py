"""The options of FSDP, and what it refuses before training, in a group of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.common.sharding import local_part
from hookline.engine.metrics import accuracy
from hookline.engine.steps import predict
from hookline.errors import ConfigError, DistributedError, NumericsError
from hookline.hooks import EMAHook, EvaluateHook
from hookline.strategies import pick
from hookline.testing import toy_data, toy_model, toy_runner
from tests.distributed.alone import group_of_one


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    with group_of_one():
        yield


class Block(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.two(self.one(x))
        return found


def model() -> nn.Sequential:
    """Return a model with two blocks."""
    return nn.Sequential(Block(), Block(), nn.ReLU(), nn.Linear(4, 2))


def train(trained: nn.Module | None = None, optimizer: Any = None, **options: Any) -> nn.Module:
    """Train a model for two iterations."""
    trained = model() if trained is None else trained
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9) if optimizer is None else optimizer
    runner = toy_runner(model=trained, optim=Optim(optimizer), max_iters=2, strategy={"type": "fsdp", **options})
    return runner.train()


def units(trained: nn.Module) -> list[str]:
    """Return the names of the units."""
    return [name for name, module in trained.named_modules() if isinstance(module, FSDPModule)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [""]),
        ({"wrap": ["Block"]}, ["", "0", "1"]),
        ({"wrap": ["Linear", "Block"]}, ["", "0", "0.one", "0.two", "1", "1.one", "1.two", "3"]),
        ({"min_params": 40}, ["", "0", "1"]),
        ({"min_params": 20}, ["", "0.one", "0.two", "1.one", "1.two"]),
    ],
)
def test_units_are_chosen_by_class_or_by_size(options: dict[str, Any], expected: list[str]) -> None:
    assert units(train(**options)) == expected


def test_a_million_parameters_are_a_unit_by_default() -> None:
    large = nn.Sequential(nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 1000), nn.Linear(1000, 1000), nn.Linear(1000, 2)))
    assert units(train(large)) == ["", "1.1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrap": ["Blok"]}, "wrap: unknown module class 'Blok'; did you mean 'Block'?"),
        ({"wrap": ["ReLU"]}, "wrap: the modules of the class 'ReLU' have no parameters"),
        ({"wrap": ["Sequential"]}, "wrap: 'Sequential' is the whole model, which is a unit anyway"),
        ({"wrap": "Block"}, "wrap must be a list of class names, such as [Block], not 'Block'"),
        ({"wrap": ["Block"], "min_params": 3}, "use wrap or min_params, not both"),
        ({"min_params": 0}, "min_params must be an int of at least 1, not 0"),
        (
            {"min_params": 1000},
            "min_params is 1,000, but no module inside the model can be a unit of that size (the largest is '1' with "
            "40), so it does nothing; lower it, or remove it",
        ),
        ({"param_dtype": "bf"}, "param_dtype cannot be 'bf'; did you mean 'bf16'?"),
        (
            {"param_dtype": "fp16"},
            "param_dtype cannot be fp16, because small gradients would become 0; use bf16, or precision: fp16, which "
            "scales the loss",
        ),
        ({"param_dtype": "fp32"}, "param_dtype does nothing, because it is already fp32; remove it"),
        (
            {"param_dtype": "bf16", "reduce_dtype": "bf16"},
            "reduce_dtype does nothing, because it is already bf16; remove it",
        ),
        ({"reshard_after_forward": "yes"}, "reshard_after_forward must be true or false, not 'yes'"),
        (
            {"reshard_after_forward": False},
            "reshard_after_forward does nothing, because the whole model is one unit, which is kept until its backward "
            "pass anyway; remove it, or set wrap",
        ),
    ],
)
def test_an_option_that_cannot_be_right_or_does_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        train(**options)
    assert str(refused.value) in (f"the strategy 'fsdp': {message}", f"the strategy 'fsdp' {message}")


def test_without_a_group_of_processes_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE")
    pick("fsdp")  # a launcher checks it before there are processes
    with pytest.raises(ConfigError) as refused:
        train()
    assert str(refused.value) == (
        "the strategy 'fsdp' needs a group of processes, but WORLD_SIZE is not set; start with hookline train --nproc "
        "N, or with torchrun"
    )


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_step_that_torch_does_not_have_for_shards_is_replaced(kind: Any, tmp_path: Path) -> None:
    def runner(strategy: Any, **options: Any) -> Runner:
        torch.manual_seed(0)
        trained = model()
        optim = Optim(kind(trained.parameters(), lr=0.1, fused=True))
        return toy_runner(model=trained, optim=optim, max_iters=2, strategy=strategy, work_dir=tmp_path, **options)

    one, many = runner("single"), runner("fsdp")
    expected = [each.detach().clone() for each in one.train().parameters()]
    trained = many.train()
    for found, wanted in zip(trained.parameters(), expected, strict=True):
        torch.testing.assert_close(local_part(found), wanted)
    groups = many.optims.sole.optimizer.param_groups
    assert [(group["fused"], group["foreach"]) for group in groups] == [(False, True)]


def test_a_fused_adam_stays_fused() -> None:
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), fused=True)
    train(trained, optimizer)
    assert optimizer.param_groups[0]["fused"] is True
    assert {int(state["step"]) for state in optimizer.state.values()} == {2}  # the trial has left no trace


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.Rprop])
def test_an_optimizer_without_any_step_for_shards_is_refused_before_training(kind: Any) -> None:
    trained = model()
    before = [each.detach().clone() for each in trained.parameters()]
    with pytest.raises(ConfigError, match=rf"the strategy 'fsdp': {kind.__name__} cannot update sharded parameters"):
        train(trained, kind(trained.parameters()))
    assert all(map(torch.equal, before, map(local_part, trained.parameters())))


def tied() -> Any:
    found: Any = model()
    found[3] = nn.Linear(4, 4)
    found[3].weight = found[0].one.weight
    return found


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return model()


def with_number() -> nn.Module:
    found = model()
    found.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    return found


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (
            tied,
            {"wrap": ["Block"]},
            "the strategy 'fsdp': wrap: 0 (Block) cannot be a unit, because its parameter 3.weight is also used "
            "outside the unit; tied parameters must be in one unit",
        ),
        (
            on_meta,
            {},
            "the strategy 'fsdp': 0.one.weight is on the device 'meta', so it has no data; create it on the CPU",
        ),
        (
            with_number,
            {},
            "the strategy 'fsdp' cannot shard scale, which is a single number; give it the shape (1,)",
        ),
        (
            lambda: nn.DataParallel(model()),
            {},
            "the strategy 'fsdp' shards the model itself, so it must not be a DataParallel",
        ),
    ],
)
def test_a_model_that_cannot_be_sharded_is_refused(build: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        train(build(), **options)
    assert str(refused.value) == message


def test_tied_parameters_in_one_unit_stay_tied() -> None:
    trained = train(tied())
    assert trained[3].weight is trained[0].one.weight  # type: ignore[index]  # a Sequential


def test_an_optimizer_with_parameters_outside_of_the_model_is_refused() -> None:
    trained = model()
    optimizer = torch.optim.SGD([*trained.parameters(), nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(ConfigError) as refused:
        train(trained, optimizer)
    assert str(refused.value) == (
        "the strategy 'fsdp': an optimizer updates 1 parameters that are not in the model, so they would differ "
        "between processes; put them into the model"
    )


def test_an_optimizer_keeps_its_groups_its_scheduler_and_its_state() -> None:
    trained, twin = toy_model(), toy_model()
    results = []
    for each, strategy in ((trained, "fsdp"), (twin, "ddp")):
        weights, biases = [[p for n, p in each.named_parameters() if n.endswith(end)] for end in ("weight", "bias")]
        groups: Any = [{"params": weights, "name": "w"}, {"params": biases, "lr": 0.5}]
        optimizer = torch.optim.Adam(groups, lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        each(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        groups = optimizer.param_groups
        runner = toy_runner(model=each, optim=Optim(optimizer, [scheduler]), strategy=strategy)
        runner.train()
        assert optimizer.param_groups is groups
        assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in each.parameters()}
        assert (groups[0]["name"], groups[0]["lr"], groups[1]["lr"]) == ("w", 0.025, 0.125)
        assert {float(state["step"]) for state in optimizer.state.values()} == {9.0}
        found = [p.full_tensor() if isinstance(p, DTensor) else p for p in each.parameters()]
        results.append([value.tolist() for value in found])
    assert results[0] == results[1]


def test_a_frozen_model_and_one_without_parameters_can_be_evaluated(tmp_path: Path) -> None:
    val = EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy})
    for evaluated in (toy_model().requires_grad_(False), nn.Flatten()):
        runner = Runner(evaluated, val=val, work_dir=tmp_path, device="cpu", quiet=True, strategy="fsdp")
        assert 0 <= runner.val()["accuracy"] <= 1


def test_a_model_that_the_user_has_sharded_is_not_sharded_again() -> None:
    strategy = pick("fsdp")
    strategy.start(toy_runner()._host.requests, torch.device("cpu"))
    for options, message in (
        ({}, ""),
        (
            {"wrap": ["Block"]},
            "the strategy 'fsdp': wrap does nothing, because the model is already sharded; remove it",
        ),
    ):
        sharded = model()
        fully_shard(sharded[0])
        fully_shard(sharded)
        if message:
            with pytest.raises(ConfigError) as refused:
                train(sharded, **options)
            assert str(refused.value) == message
        else:
            assert units(train(sharded)) == ["", "0"]


def test_a_run_may_train_twice_and_validate_with_the_options_that_sharded_its_model() -> None:
    runner = toy_runner(model=model(), max_epochs=1, strategy={"type": "fsdp", "wrap": ["Block"]})
    runner.train()
    runner.train_loop.max_epochs = 2
    runner.train()
    assert (runner.epoch, units(runner.model)) == (2, ["", "0", "1"])
    assert 0 <= runner.val()["accuracy"] <= 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_dtypes_of_computation_and_reduction_can_be_chosen(precision: str) -> None:
    seen: list[torch.dtype] = []
    trained = model()
    trained[3].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    runner = toy_runner(
        model=trained,
        max_iters=2,
        val=None,
        precision=precision,
        strategy={"type": "fsdp", "param_dtype": "bf16", "reduce_dtype": "fp32"},
    )
    runner.train()
    assert set(seen) == {torch.bfloat16}
    assert {parameter.dtype for parameter in trained.parameters()} == {torch.float32}


def test_a_state_in_memory_for_failures_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(strategy="fsdp", default_hooks={"checkpoint": {"save_on_exception": True}}).train()
    assert str(refused.value) == (
        "CheckpointHook: save_on_exception cannot be used with the strategy 'fsdp': after a failure, the processes "
        "cannot write a sharded checkpoint together; remove it, and save more often"
    )


class Calls(Hook):
    """Calls the model in the main process only."""

    ranks = "main"

    def after_train_iter(self, runner: Runner) -> None:
        """Call the model."""
        runner.model(torch.zeros(1, 4))


def test_a_hook_of_the_main_process_that_calls_the_model_is_an_error_and_does_not_hang() -> None:
    with pytest.raises(DistributedError) as refused:
        toy_runner(strategy="fsdp", custom_hooks=[Calls()]).train()
    assert str(refused.value) == (
        "hook Calls runs only in the main process (ranks = 'main'), so it cannot call a model that is sharded over all "
        "of them; set ranks = 'all'"
    )


def test_a_hook_that_evaluates_sees_whole_parameters_and_their_average() -> None:
    average = EMAHook(momentum=0.5)
    shapes: list[list[Any]] = []

    def measure(model: nn.Module) -> float:
        with average.average.swapped(model):
            averaged = [parameter.detach().clone() for parameter in model.parameters()]
        shapes.append([type(parameter) for parameter in model.parameters()])
        return sum(float((one - two).abs().sum()) for one, two in zip(averaged, model.parameters(), strict=True))

    found = []
    for strategy in ("fsdp", "ddp"):
        average = EMAHook(momentum=0.5)
        runner = toy_runner(strategy=strategy, custom_hooks=[average, EvaluateHook(measure)])
        runner.train()
        found.append(runner.hub.scalars["eval/measure"].last(2))
    assert found[0] == found[1]
    assert found[0][0] > 0
    assert shapes == [[nn.Parameter] * 4] * 4


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    def poison(runner: Runner) -> None:
        if runner.iter == 7:
            local_part(next(runner.model.parameters())).view(-1)[:1].fill_(float("nan"))

    runner = toy_runner(work_dir=tmp_path, strategy="fsdp", val=None)
    runner.on("after_train_iter", priority="LOWEST")(poison)
    with pytest.raises(NumericsError, match=r"^0\.weight of the model became NaN or Inf by iteration 8"):
        runner.train()
    assert sorted(path.name for path in tmp_path.iterdir() if ".dcp" in path.name) == ["epoch_1.dcp"]
