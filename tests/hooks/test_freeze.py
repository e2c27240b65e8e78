"""FreezeHook: which iterations train which parameters, resuming in between, and restoring everything."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.data.loader import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError
from hookline.hooks import EMAHook, FreezeHook
from hookline.testing import toy_data, toy_model, toy_runner
from tests.hooks.weights import State, assert_same, copied


def net() -> Any:
    """Return a net with named parts, a batch norm in the first, and the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        return nn.Sequential(OrderedDict(backbone=backbone, head=nn.Linear(8, 2)))


def sgd(model: nn.Module) -> torch.optim.SGD:
    """Return an optimizer with momentum and decay, which move parameters even if their gradient is zero."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def runner_with(hooks: Iterable[Any], accumulate: int = 1, **parts: Any) -> Runner:
    model = parts.pop("model", None) or net()
    optim = parts.pop("optim", None) or Optim(sgd(model), accumulate=accumulate)
    return toy_runner(model=model, optim=optim, custom_hooks=list(hooks), **parts)


def by_hand(frozen: Iterable[bool], parts: Iterable[str] = ("backbone",), batches: int = 4, window: int = 1) -> State:
    """Train the net by hand, with parts of it frozen in some iterations."""
    model, data = net(), toy_data(batches)
    optimizer = sgd(model)
    for number, still in enumerate(frozen):
        for part in parts:
            getattr(model, part).requires_grad_(not still)
            getattr(model, part).train(not still)
        (cross_entropy(model, data[number % batches]) / window).backward()  # type: ignore[no-untyped-call]
        if (number + 1) % window == 0:
            optimizer.step()
            optimizer.zero_grad()
    return copied(model)


def watch(runner: Runner, *names: str) -> list[tuple[bool, ...]]:
    """Return a list of which parameters require gradients and which norms train, per iteration."""
    seen: list[tuple[bool, ...]] = []

    @runner.on("before_backward")
    def look(runner: Runner) -> None:
        model: Any = runner.model
        found = []
        for name in names:
            thing = model.get_submodule(name) if name in dict(model.named_modules()) else model.get_parameter(name)
            found.append(thing.requires_grad if isinstance(thing, nn.Parameter) else thing.training)
        seen.append(tuple(found))

    return seen


def modes(model: nn.Module) -> dict[str, bool]:
    asking = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    return asking | {name: module.training for name, module in model.named_modules()}


def log_of(runner: Runner) -> list[str]:
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    return [line.split("  ", 1)[1] for line in lines if "FreezeHook" in line]


def hooks_at(runner: Runner, point: str) -> list[str]:
    return [call.who for call in runner.plan.calls_at(point)]


# -------------------------------------------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("limit", "length", "frozen"),
    [
        ({}, {"max_epochs": 2}, "11111111"),
        ({"until_epoch": 1}, {"max_epochs": 3}, "111100000000"),
        ({"until_epoch": 2}, {"max_epochs": 3}, "111111110000"),
        ({"from_epoch": 1}, {"max_epochs": 3}, "000011111111"),
        ({"until_iter": 1}, {"max_epochs": 2}, "10000000"),
        ({"until_iter": 6}, {"max_epochs": 2}, "11111100"),
        ({"from_iter": 3}, {"max_epochs": 2}, "00011111"),
        ({"until_iter": 6}, {"max_iters": 9}, "111111000"),
        ({"from_iter": 2}, {"max_iters": 9}, "001111111"),
        ({"until_epoch": 1}, {"max_iters": 9}, "111100000"),
        ({"from_epoch": 2}, {"max_iters": 9}, "000000001"),
    ],
)
def test_exactly_these_iterations_are_frozen(limit: Any, length: dict[str, int], frozen: str) -> None:
    runner = runner_with([FreezeHook("backbone.*", **limit)], **length)
    seen = watch(runner, "backbone.0.weight", "backbone.1.bias", "backbone.1", "head.weight", "backbone")
    runner.train()
    assert seen == [(now == "0", now == "0", now == "0", True, True) for now in frozen]
    assert_same(copied(runner.model), by_hand(now == "1" for now in frozen))


def test_a_frozen_parameter_has_no_gradient_no_decay_and_keeps_its_momentum() -> None:
    runner = runner_with([FreezeHook("backbone.*", from_iter=2)], max_epochs=1)
    weight = runner.model.get_parameter("backbone.0.weight")
    optimizer = runner.optims.sole.optimizer
    seen: list[tuple[Any, ...]] = []

    @runner.on("after_optimizer_step")
    def look(runner: Runner) -> None:
        seen.append((weight.grad is None, weight.detach().clone(), optimizer.state[weight]["momentum_buffer"].clone()))

    runner.train()
    assert [none for none, _, _ in seen] == [False, False, True, True]
    for none, value, momentum in seen[2:]:
        assert none
        assert value.equal(seen[1][1])
        assert momentum.equal(seen[1][2])
    assert not seen[0][1].equal(seen[1][1])


@pytest.mark.parametrize(
    ("limit", "length", "frozen"),
    [
        ({"until_iter": 1}, {"max_iters": 6}, "110000"),
        ({"until_iter": 2}, {"max_iters": 6}, "110000"),
        ({"from_iter": 3}, {"max_iters": 6}, "000011"),
        ({"until_epoch": 1}, {"max_iters": 6}, "111100"),
    ],
)
def test_a_change_waits_for_the_end_of_a_window(limit: Any, length: dict[str, int], frozen: str) -> None:
    runner = runner_with([FreezeHook("backbone.*", **limit)], accumulate=2, batches=3, **length)
    seen = watch(runner, "backbone.0.weight", "backbone.1")
    runner.train()
    assert seen == [(now == "0", now == "0") for now in frozen]
    assert_same(copied(runner.model), by_hand((now == "1" for now in frozen), batches=3, window=2))


@pytest.mark.parametrize(
    ("limit", "length", "called"),
    [
        ({}, {"max_epochs": 1}, [False, False]),
        ({"until_epoch": 1}, {"max_epochs": 2}, [True, False]),
        ({"from_iter": 1}, {"max_epochs": 2}, [False, True]),
        ({"until_epoch": 1}, {"max_iters": 9}, [False, True]),
        ({"until_iter": 1}, {"max_iters": 9}, [False, True]),
    ],
)
def test_only_what_counts_is_looked_at(limit: Any, length: dict[str, int], called: list[bool]) -> None:
    runner = runner_with([FreezeHook("backbone.*", **limit)], **length)
    runner.train()
    found = ["FreezeHook" in hooks_at(runner, point) for point in ("before_train_epoch", "before_train_iter")]
    assert found == called


# ------------------------------------------------------------------------------------------------ norms


class Norms(nn.Module):
    """Norms of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.batch = nn.BatchNorm1d(4)
        self.bare = nn.BatchNorm1d(4, affine=False)
        self.tracking = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
        self.instance = nn.InstanceNorm1d(4, affine=True)
        self.none = nn.BatchNorm1d(4, track_running_stats=False)
        self.sync = nn.SyncBatchNorm(4)
        self.drop = nn.Dropout(0.0)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.none(self.bare(self.batch(self.first(x)))))
        x = x + self.instance(self.tracking(x.T[None]))[0].T
        scores: torch.Tensor = self.last(x)
        return scores


@pytest.mark.parametrize(
    ("parameters", "still"),
    [
        ({"patterns": "first.*"}, []),
        ({"patterns": ["first.*", "batch.*"]}, ["batch"]),
        ({"patterns": "batch.weight"}, []),
        ({"patterns": ["batch.weight", "*.bias"]}, ["batch"]),
        ({"patterns": "[!l]*", "norm_stats": False}, []),
        ({"patterns": "bare"}, ["bare"]),
        ({"patterns": "bare.*"}, ["bare"]),
        ({"patterns": "[!l]*"}, ["batch", "bare", "tracking", "sync"]),
        ({"patterns": "tracking.*"}, ["tracking"]),
        ({"patterns": ["instance.*", "none.*"]}, []),
    ],
)  # fmt: skip
def test_norms_whose_parameters_are_all_frozen_keep_their_statistics(parameters: Any, still: list[str]) -> None:
    torch.manual_seed(0)
    model = Norms()
    hook = FreezeHook(until_iter=2, **parameters)
    runner = toy_runner(model=model, max_epochs=1, batches=3, custom_hooks=[hook], val=None)
    names = ["batch", "bare", "tracking", "instance", "none", "sync", "drop", "first", "last"]
    seen, before = watch(runner, *names), copied(model)
    moved: list[set[str]] = []

    @runner.on("after_train_iter")
    def compare(runner: Runner) -> None:
        changed = [name for name, value in copied(model).items() if not value.equal(before[name])]
        moved.append({name.split(".")[0] for name in changed if "running" in name})

    runner.train()
    assert seen == [tuple(name not in still for name in names)] * 2 + [(True,) * 9]
    assert moved == [{"batch", "bare", "tracking"} - {*still}] * 2 + [{"batch", "bare", "tracking"}]


def test_a_norm_is_still_when_what_the_hook_leaves_of_it_was_frozen_before() -> None:
    model = net()
    model.backbone[1].bias.requires_grad_(False)
    runner = runner_with([FreezeHook("backbone.1.weight", until_iter=2)], model=model, max_epochs=1)
    seen = watch(runner, "backbone.1.weight", "backbone.1.bias", "backbone.1")
    runner.train()
    assert seen == [(False, False, False)] * 2 + [(True, False, True)] * 2


def test_a_norm_with_one_half_frozen_by_each_of_two_hooks_keeps_training() -> None:
    hooks = [FreezeHook("backbone.1.weight"), FreezeHook("backbone.1.bias")]
    runner = runner_with(hooks, max_epochs=1)
    seen = watch(runner, "backbone.1.weight", "backbone.1.bias", "backbone.1")
    runner.train()
    assert seen == [(False, False, True)] * 4


def test_validations_in_between_change_nothing() -> None:
    parts: dict[str, Any] = {"max_iters": 8, "train": {"val_interval": 1, "val_begin": 0}}
    runner = runner_with([FreezeHook("backbone.*", until_iter=5)], **parts)
    seen = watch(runner, "backbone.0.weight", "backbone.1")
    within: list[bool] = []
    runner.on("before_val_iter")(lambda runner: within.append(any(m.training for m in runner.model.modules())))
    runner.train()
    assert seen == [(False, False)] * 5 + [(True, True)] * 3
    assert within == [False] * 18
    assert_same(copied(runner.model), by_hand([True] * 5 + [False] * 3))


# ------------------------------------------------------------------------------------------ several hooks


def test_gradual_unfreezing_and_patterns_that_overlap() -> None:
    model = nn.Sequential(OrderedDict(a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 2)))
    hooks = [
        FreezeHook("b.*", until_iter=2),
        FreezeHook(["a.*", "b.bias"], until_epoch=1),
        FreezeHook("*.bias", from_iter=6),
    ]
    runner = toy_runner(model=model, max_epochs=2, batches=4, custom_hooks=hooks)
    seen = watch(runner, "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias")
    before = modes(model)
    runner.train()
    expected = ["000011", "000011", "001011", "001011", "111111", "111111", "101010", "101010"]
    assert ["".join(str(int(each)) for each in row) for row in seen] == expected
    assert modes(model) == before
    assert not any("_hookline_frozen_by" in vars(p) for p in (*model.parameters(), *model.modules()))
    assert log_of(runner) == [
        "FreezeHook: 'b.*' is frozen until iteration 2 is finished: 20 parameters in 2 tensors",
        "FreezeHook: 'a.*', 'b.bias' are frozen until epoch 1 is finished: 24 parameters in 3 tensors",
        "after iteration 2  FreezeHook: 'b.*' is trained from now on: 16 parameters in 1 tensor; 1 more stays frozen "
        "by another hook",
        "after epoch 1  FreezeHook: 'a.*', 'b.bias' are trained from now on: 24 parameters in 3 tensors",
        "after iteration 6  FreezeHook: '*.bias' is frozen from now on: 10 parameters in 3 tensors",
    ]


def test_norms_of_hooks_that_overlap_wait_for_the_last() -> None:
    hooks = [FreezeHook("backbone.*", until_iter=1), FreezeHook("backbone.1.*", until_iter=3)]
    runner = runner_with(hooks, max_epochs=1)
    seen = watch(runner, "backbone.0.weight", "backbone.1.weight", "backbone.1")
    runner.train()
    assert seen == [(False, False, False), (True, False, False), (True, False, False), (True, True, True)]


@pytest.mark.parametrize("reverse", [False, True])
def test_parts_can_train_by_turns(reverse: bool) -> None:
    hooks = [FreezeHook("head.*", until_epoch=1), FreezeHook("backbone.*", from_epoch=1)]
    runner = runner_with(reversed(hooks) if reverse else hooks, max_epochs=2)
    seen = watch(runner, "backbone.0.weight", "head.weight")
    runner.train()
    assert seen == [(True, False)] * 4 + [(False, True)] * 4


def test_hooks_that_together_leave_nothing_end_with_what_to_look_for() -> None:
    with pytest.raises(ConfigError, match=r"^the optimizer \(SGD\) updates only parameters that are frozen "):
        runner_with([FreezeHook("head.*"), FreezeHook("backbone.*")]).train()


# ---------------------------------------------------------------------------------------- restoring


def die(runner: Runner) -> None:
    if runner.iter == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("limit", [{}, {"until_iter": 1}, {"until_epoch": 1}, {"from_iter": 1}, {"until_iter": 9}])
@pytest.mark.parametrize("evaluating", [False, True])
@pytest.mark.parametrize("ending", ["whole", "stopped", "failed"])
def test_afterwards_the_model_is_as_it_was(limit: Any, evaluating: bool, ending: str) -> None:
    model = net()
    model.head.bias.requires_grad_(False)
    model.backbone[1].weight.requires_grad_(False)
    model.train(not evaluating)
    if not evaluating:
        model.backbone[2].eval()
    before = modes(model)
    runner = runner_with([FreezeHook(["backbone.*", "head.bias"], **limit)], model=model, max_epochs=3)
    if ending == "failed":
        runner.on("before_backward")(die)
    elif ending == "stopped":
        runner.on("after_train_iter")(lambda runner: runner.stop("enough") if runner.iter == 2 else None)
    seen = watch(runner, "head.bias", "backbone.1.weight")
    if ending == "failed":
        with pytest.raises(KeyboardInterrupt):
            runner.train()
    else:
        runner.train()
    assert runner.iter == {"whole": 12, "stopped": 3, "failed": 2}[ending]
    assert modes(model) == before
    assert set(seen) == {(False, False)}
    assert not any("_hookline_frozen_by" in vars(p) for p in (*model.parameters(), *model.modules()))


def test_a_norm_that_is_in_evaluation_mode_stays_in_it() -> None:
    model = net()
    model.backbone[1].eval()
    runner = runner_with([FreezeHook("backbone.*", until_iter=2)], model=model, max_epochs=1)
    seen = watch(runner, "backbone.1.weight", "backbone.1")
    runner.train()
    assert seen == [(False, False), (False, False), (True, False), (True, False)]
    assert not model.backbone[1].training


def test_a_runner_started_twice_continues_its_counters() -> None:
    runner = runner_with([FreezeHook("backbone.*", until_iter=6)], max_epochs=1)
    seen = watch(runner, "backbone.0.weight", "backbone.1")
    runner.train()
    assert all(modes(runner.model).values())
    runner.train_loop.max_epochs = 2
    runner.train()
    assert seen == [(False, False)] * 6 + [(True, True)] * 2
    assert_same(copied(runner.model), by_hand([True] * 6 + [False] * 2))


def test_evaluation_alone_freezes_nothing() -> None:
    runner = runner_with([FreezeHook("backbone.*")])
    before = modes(runner.model)
    seen: list[bool] = []
    for point in ("before_val_iter", "before_test_iter"):
        runner.on(point)(lambda runner: seen.append(all(p.requires_grad for p in runner.model.parameters())))
    runner.val()
    runner.test()
    assert seen == [True] * 4
    assert modes(runner.model) == before
    assert log_of(runner) == []


def test_a_run_without_training_has_nothing_to_freeze(tmp_path: Path) -> None:
    loop = EvalLoop(toy_data(1), predict, metrics={"accuracy": accuracy})
    runner = Runner(
        net(), val=loop, custom_hooks=[FreezeHook("zzz", until_epoch=1)], work_dir=tmp_path, quiet=True, device="cpu"
    )
    assert list(runner.val()) == ["accuracy"]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("limit", "frozen"), [({"until_iter": 4}, "001100"), ({}, "001111")])
def test_a_hook_that_joins_in_the_middle_freezes_from_there_on_and_puts_back(
    limit: Any, frozen: str, fails: bool
) -> None:
    runner = runner_with([], max_epochs=1, batches=6)
    before = modes(runner.model)
    hook = FreezeHook("backbone.*", **limit)
    runner.on("before_train_iter")(lambda runner: runner.register_hook(hook) if runner.iter == 1 else None)
    if fails:
        runner.on("after_backward")(die)
    seen = watch(runner, "backbone.0.weight", "backbone.1")
    if fails:
        with pytest.raises(KeyboardInterrupt):
            runner.train()
    else:
        runner.train()
    assert seen == [(now == "0", now == "0") for now in frozen][: 3 if fails else 6]
    assert modes(runner.model) == before


def test_a_hook_that_joins_in_the_middle_is_checked_and_finds_what_others_froze() -> None:
    runner = runner_with([FreezeHook("backbone.*", until_iter=3)], max_epochs=1, batches=6)
    hook = FreezeHook("backbone.0.*", until_iter=5)
    runner.on("before_train_iter")(lambda runner: runner.register_hook(hook) if runner.iter == 1 else None)
    seen = watch(runner, "backbone.0.weight", "backbone.1.weight")
    runner.train()
    assert seen == [(False, False)] * 3 + [(False, True)] * 2 + [(True, True)]
    wrong = runner_with([], max_epochs=1)
    wrong.on("before_train_iter")(lambda runner: runner.register_hook(FreezeHook("backbone")))
    with pytest.raises(ConfigError, match="^FreezeHook: 'backbone' matches no parameter of the model; did you mean"):
        wrong.train()


def test_all_is_put_back_also_when_a_hook_before_it_fails_at_the_failure() -> None:
    runner = runner_with([FreezeHook("backbone.*")], max_epochs=1)
    before = modes(runner.model)
    runner.on("before_backward")(die)
    runner.on("on_exception", priority="HIGHEST")(lambda runner: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        runner.train()
    assert modes(runner.model) == before


def test_without_default_hooks_it_works_too() -> None:
    none = dict.fromkeys(["runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint"])
    runner = runner_with([FreezeHook("backbone.*", until_epoch=1)], max_epochs=2, default_hooks=none, writers=[])
    runner.train()
    assert_same(copied(runner.model), by_hand([True] * 4 + [False] * 4))


# ------------------------------------------------------------------------------------ saving and resuming


def noisy_runner(folder: Path, hooks: list[Any], accumulate: int = 1, **parts: Any) -> Runner:
    """Return a run with dropout, momentum and shuffling, which a resume can get wrong. An epoch has seven batches."""
    torch.manual_seed(3)
    layers = (nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 8), nn.BatchNorm1d(8))
    model = nn.Sequential(*layers, nn.Linear(8, 2))
    inputs = torch.randn(50, 4)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    length = parts.pop("length", {"max_epochs": 4})
    given: dict[str, Any] = {
        "train": TrainLoop(ResumableLoader(data, 8, shuffle=True), cross_entropy, **length),
        "val": EvalLoop(toy_data(2, seed=1), predict, metrics={"accuracy": accuracy}),
        "optim": Optim(torch.optim.AdamW(model.parameters(), lr=0.01), accumulate=accumulate),
        "custom_hooks": hooks,
        **parts,
    }
    return Runner(model, work_dir=folder, quiet=True, device="cpu", **given)


def gradual(unit: str) -> list[Any]:
    """Return hooks that train the head first, then the second block, then everything, and freeze biases at the end."""
    first, second, third = (1, 2, 3) if unit == "epoch" else (5, 9, 20)
    limits: list[Any] = [{f"until_{unit}": first}, {f"until_{unit}": second}, {f"from_{unit}": third}]
    hooks = [FreezeHook(pattern, **limit) for pattern, limit in zip(("3.*", "[014].*", "*.bias"), limits, strict=True)]
    return [*hooks, EMAHook(momentum=0.1)]


def save_and_die(runner: Runner, save_at: int) -> None:
    @runner.on("after_train_iter")
    def act(runner: Runner) -> None:
        if runner.iter + 1 == save_at:
            runner.request_save()
        if runner.iter + 1 == save_at + 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("save_at", [2, 5, 8, 14, 20])
@pytest.mark.parametrize(("unit", "accumulate"), [("epoch", 2), ("iter", 1), ("iter", 3)])
def test_a_run_that_died_in_the_middle_resumes_to_the_same_bits(
    tmp_path: Path, unit: str, accumulate: int, save_at: int
) -> None:
    whole = noisy_runner(tmp_path / "whole", gradual(unit), accumulate)
    states: list[tuple[int, Any]] = []
    whole.on("before_backward")(lambda runner: states.append((runner.iter, modes(runner.model))))
    whole.train()
    broken = noisy_runner(tmp_path / "broken", gradual(unit), accumulate)
    save_and_die(broken, save_at)
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed = noisy_runner(tmp_path / "broken", gradual(unit), accumulate, resume=True)
    again: list[tuple[int, Any]] = []
    resumed.on("before_backward")(lambda runner: again.append((runner.iter, modes(runner.model))))
    resumed.train()
    assert again == states[again[0][0] :]
    assert_same(copied(resumed.model), copied(whole.model))
    ours, theirs = (runner.optims.sole.optimizer.state_dict()["state"] for runner in (resumed, whole))
    assert all(value.equal(ours[i][name]) for i, state in theirs.items() for name, value in state.items())
    averages = [
        hook.averaged_state_dict() for run in (resumed, whole) for hook in run.hooks if isinstance(hook, EMAHook)
    ]
    assert_same(*averages)


@pytest.mark.parametrize("limit", [{"until_iter": 5}, {"from_iter": 5}, {"until_iter": 4}, {"until_iter": 6}])
def test_a_window_that_was_saved_open_ends_as_it_began(tmp_path: Path, limit: Any) -> None:
    def runner(name: str, **parts: Any) -> Runner:
        hooks = [FreezeHook("[01].*", **limit)]
        return noisy_runner(tmp_path / name, hooks, 4, length={"max_iters": 12}, **parts)

    whole, broken = runner("whole"), runner("broken")
    whole.train()

    @broken.on("before_train_iter")
    def save_now(runner: Runner) -> None:
        if runner.iter == 6:
            assert runner.accumulating
            runner.request_save()
            runner.saving.save()  # as when workers are killed by a signal
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed = runner("broken", resume=True)
    resumed.train()
    assert_same(copied(resumed.model), copied(whole.model))


def test_a_resumed_run_says_what_is_frozen_and_takes_a_new_limit(tmp_path: Path) -> None:
    runner_with([FreezeHook("backbone.*", until_epoch=3)], max_epochs=1, work_dir=tmp_path).train()
    hook = FreezeHook("backbone.*", until_epoch=2)
    runner = runner_with([hook], max_epochs=3, work_dir=tmp_path, resume=True)
    runner.train()
    assert_same(copied(runner.model), by_hand([True] * 8 + [False] * 4))
    amount = "56 parameters in 4 tensors, the statistics of 1 norm"
    assert log_of(runner) == [
        "warning: FreezeHook: until_epoch=3 needs 4 epochs, but this run has 1, so 'backbone.*' is never trained; "
        "train longer, or remove the hook",
        f"FreezeHook: 'backbone.*' is frozen until epoch 3 is finished: {amount}",
        f"after epoch 1  FreezeHook: 'backbone.*' is frozen until epoch 2 is finished: {amount}",
        f"after epoch 2  FreezeHook: 'backbone.*' is trained from now on: {amount}",
    ]


def test_an_average_of_frozen_weights_is_those_weights() -> None:
    average = EMAHook(momentum=0.1)
    runner = runner_with([average, FreezeHook("backbone.*", until_epoch=1)], max_epochs=2)
    first = runner.model.get_parameter("backbone.0.weight").detach().clone()
    held: list[torch.Tensor] = []
    values: list[torch.Tensor] = []

    @runner.on("after_train_iter")
    def look(runner: Runner) -> None:
        held.append(average.averaged_state_dict()["backbone.0.weight"].clone())
        values.append(runner.model.get_parameter("backbone.0.weight").detach().clone())

    runner.train()
    assert all(each.equal(first) for each in held[:4])
    expected = first
    for each, value in zip(held[4:], values[4:], strict=True):
        expected = torch.lerp(expected, value, 0.1)
        assert each.equal(expected)
    assert_same(copied(runner.model), by_hand([True] * 4 + [False] * 4))


# ------------------------------------------------------------------------------------- tied, several optims


def test_a_tied_parameter_is_one_under_any_of_its_names() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Linear(4, 2)})
    model["b"].weight = model["a"].weight

    def step(model: Any, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model["c"](model["b"](model["a"](batch[0]))), batch[1])

    for patterns in (["b.*"], ["a.weight", "b.*"]):
        hook = FreezeHook(patterns, until_iter=2)
        runner = toy_runner(model=model, step=step, max_epochs=1, custom_hooks=[hook], val=None)
        seen = watch(runner, "a.weight", "a.bias", "b.bias")
        runner.train()
        assert seen == [(False, True, False)] * 2 + [(True, True, True)] * 2
        assert log_of(runner)[0].endswith(" frozen until iteration 2 is finished: 20 parameters in 2 tensors")


def test_with_several_optims_each_leaves_alone_what_is_frozen() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
    optims = {name: torch.optim.SGD(model[name].parameters(), lr=0.1, weight_decay=0.1) for name in model}

    def step(model: Any, batch: Any, optim: Any) -> None:
        for name in model:
            optim[name].update(nn.functional.cross_entropy(model[name](batch[0]), batch[1]))

    hooks = [FreezeHook("*.bias", until_iter=2), FreezeHook("a.weight", from_iter=3)]
    runner = toy_runner(model=model, step=step, optim=optims, max_epochs=1, batches=5, custom_hooks=hooks, val=None)
    history: list[State] = []
    runner.on("before_train_iter")(lambda runner: history.append(copied(runner.model)))
    runner.train()
    history.append(copied(model))
    changed = {name: [not one[name].equal(two[name]) for one, two in pairwise(history)] for name in history[0]}
    assert changed == {
        "a.weight": [True, True, True, False, False],
        "a.bias": [False, False, True, True, True],
        "b.weight": [True] * 5,
        "b.bias": [False, False, True, True, True],
    }


def test_a_change_waits_for_the_window_of_the_optim_that_has_the_parameter() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
    optims = {name: Optim(torch.optim.SGD(model[name].parameters(), lr=0.1), accumulate=2) for name in model}

    def step(model: Any, batch: Any, optim: Any) -> None:
        for name in model:
            optim[name].update(nn.functional.cross_entropy(model[name](batch[0]), batch[1]))

    hooks = [FreezeHook("a.bias", from_iter=1)]
    runner = toy_runner(model=model, step=step, optim=optims, max_epochs=1, batches=4, custom_hooks=hooks, val=None)
    history: list[torch.Tensor] = []
    runner.on("before_train_iter")(lambda runner: history.append(copied(runner.model)["a.bias"]))
    runner.train()
    history.append(copied(model)["a.bias"])
    assert [not one.equal(two) for one, two in pairwise(history)] == [False, True, False, False]


def test_all_that_one_of_several_optims_trains_cannot_be_frozen() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
    optims = {name: torch.optim.SGD(model[name].parameters(), lr=0.1) for name in model}
    runner = toy_runner(
        model=model, step=lambda model, batch, optim: None, optim=optims, custom_hooks=[FreezeHook("a.*")], val=None
    )
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        "FreezeHook: every parameter that is trained by the optim 'a' is matched by 'a.*', so the loss would have "
        "no gradient while they are frozen; use patterns that do not match the parameters to train"
    )


# ------------------------------------------------------------------------------------------------ checking


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"patterns": ""}, "patterns must be a name pattern or a list of them, not ''"),
        ({"patterns": []}, "patterns must be a name pattern or a list of them, not []"),
        ({"patterns": ["a", 3]}, "patterns must be a name pattern or a list of them, not ['a', 3]"),
        ({"patterns": 3}, "patterns must be a name pattern or a list of them, not 3"),
        ({"until_epoch": 0}, "until_epoch must be an int of at least 1, not 0"),
        ({"until_iter": 2.0}, "until_iter must be an int of at least 1, not 2.0"),
        ({"from_epoch": True}, "from_epoch must be an int of at least 1, not True"),
        ({"from_iter": -1}, "from_iter must be an int of at least 1, not -1"),
        (
            {"until_epoch": 1, "from_iter": 1},
            "set at most one of until_epoch, until_iter, from_epoch, from_iter, not until_epoch and from_iter",
        ),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        FreezeHook(**{"patterns": "a.*", **parameters})
    assert str(refused.value) == f"FreezeHook: {message}"


def never_trained(model: Any) -> Optim:
    return Optim(torch.optim.SGD(model.head.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"patterns": "backbone"}, "'backbone' matches no parameter of the model; did you mean 'backbone.*'?"),
        (
            {"patterns": ["head.*", "backbon.0.*"]},
            "'backbon.0.*' matches no parameter of the model; the closest name is 'backbone.0.bias'",
        ),
        (
            {"patterns": "zzz"},
            "'zzz' matches no parameter of the model; available: backbone.0.weight, backbone.0.bias, "
            "backbone.1.weight, backbone.1.bias, head.weight, head.bias",
        ),
        (
            {"patterns": ["backbone.*", "head.*"], "until_epoch": 1},
            "every parameter that is trained is matched by 'backbone.*', 'head.*', so the loss would have no gradient "
            "while they are frozen; use patterns that do not match the parameters to train",
        ),
    ],
)
def test_parameters_that_do_not_fit_the_model_are_refused_before_the_first_step(parameters: Any, message: str) -> None:
    runner = runner_with([FreezeHook(**parameters)])
    steps = watch(runner, "head.bias")
    before = modes(runner.model)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == f"FreezeHook: {message}"
    assert steps == []
    assert modes(runner.model) == before


def test_everything_may_be_frozen_where_something_outside_of_the_model_trains() -> None:
    outside = nn.Parameter(torch.ones(()))

    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        return cross_entropy(model, batch) * outside

    model = toy_model()
    optim = Optim(torch.optim.SGD([*model.parameters(), outside], lr=0.1))
    runner = toy_runner(model=model, step=step, optim=optim, max_epochs=1, custom_hooks=[FreezeHook("*")])
    before = copied(model)
    runner.train()
    assert_same(copied(model), before)
    assert outside.item() != 1


@pytest.mark.parametrize("limit", [{"until_epoch": 1}, {"from_iter": 1}])
def test_parameters_that_no_optimizer_has_are_refused_unless_they_never_train(limit: Any) -> None:
    model = net()
    with pytest.raises(ConfigError) as refused:
        runner_with([FreezeHook("backbone.*", **limit)], model=model, optim=never_trained(model)).train()
    assert str(refused.value) == (
        "FreezeHook: backbone.0.weight and 3 more would never train, because no optimizer has them; give all "
        "parameters to the optimizer: it skips those that are frozen"
    )
    runner_with([FreezeHook("backbone.*")], model=model, optim=never_trained(model)).train()


def test_parameters_that_were_frozen_before_are_refused_where_they_are_to_train() -> None:
    model = net()
    model.backbone.requires_grad_(False)
    with pytest.raises(ConfigError) as refused:
        runner_with([FreezeHook("backbone.*", until_epoch=1)], model=model).train()
    assert str(refused.value) == (
        "FreezeHook: everything matched by 'backbone.*' has requires_grad=False already and stays frozen, so "
        "until_epoch has no effect; leave requires_grad at True and let this hook freeze them"
    )
    runner = runner_with([FreezeHook("backbone.*")], model=model)
    seen = watch(runner, "backbone.1")
    runner.train()
    assert set(seen) == {(False,)}
    assert model.backbone[1].training
    assert log_of(runner) == [
        "FreezeHook: 'backbone.*' is frozen for the whole run: 0 parameters in 0 tensors, the statistics of 1 norm"
    ]


@pytest.mark.parametrize(
    ("limit", "length", "warning"),
    [
        (
            {"until_epoch": 2},
            {"max_epochs": 2},
            "until_epoch=2 needs 3 epochs, but this run has 2, so 'head.*' is never trained; set until_epoch to at "
            "most 1, or train longer",
        ),
        (
            {"until_iter": 9},
            {"max_epochs": 2},
            "until_iter=9 needs 10 iterations, but this run has 8, so 'head.*' is never trained; set until_iter to at "
            "most 7, or train longer",
        ),
        (
            {"from_epoch": 3},
            {"max_iters": 9},
            "from_epoch=3 needs 4 epochs, but this run has 3, so nothing is ever frozen; set from_epoch to at most 2, "
            "or train longer",
        ),
        (
            {"from_iter": 9},
            {"max_iters": 9},
            "from_iter=9 needs 10 iterations, but this run has 9, so nothing is ever frozen; set from_iter to at most "
            "8, or train longer",
        ),
        ({"until_epoch": 1}, {"max_epochs": 2}, ""),
        ({"from_epoch": 2}, {"max_iters": 9}, ""),
    ],
)
def test_a_limit_that_training_does_not_reach_is_warned_about(limit: Any, length: Any, warning: str) -> None:
    runner = runner_with([FreezeHook("head.*", **limit)], **length)
    runner.train()
    warned = [line for line in log_of(runner) if "warning" in line]
    assert warned == ([f"warning: FreezeHook: {warning}"] if warning else [])


# -------------------------------------------------------------------------------------------- constructing


CONFIG: dict[str, Any] = {
    "model": {"type": "DigitsNet"},
    "train": {"dataloader": {"dataset": {"type": "Digits"}, "batch_size": 8}, "max_epochs": 2, "limit_batches": 2},
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
}


@pytest.mark.parametrize("patterns", ["*.bias", ["*.bias"]])
def test_a_config_names_it_and_its_parameters(tmp_path: Path, patterns: Any) -> None:
    given = {"type": "FreezeHook", "patterns": patterns, "until_iter": 3, "norm_stats": False, "priority": "LOW"}
    config = {**CONFIG, "custom_hooks": [given], "work_dir": str(tmp_path)}
    config["train"] = {**CONFIG["train"], "step": "cross_entropy"}
    runner = Runner.from_config(config)
    (entry,) = [entry for entry in runner.plan if isinstance(entry.hook, FreezeHook)]
    assert (entry.name, entry.priority) == ("FreezeHook", 70)
    assert (entry.hook.patterns, entry.hook.limited_by, entry.hook.limit) == (["*.bias"], "until_iter", 3)
    assert not entry.hook.norm_stats
    biases = [name for name, _ in runner.model.named_parameters() if name.endswith("bias")]
    seen = watch(runner, *biases)
    runner.terminal.quiet = True
    runner.train()
    assert seen == [(False,) * len(biases)] * 3 + [(True,) * len(biases)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"patterns": "*", "until_epochs": 1},
            "FreezeHook has no parameter 'until_epochs'; did you mean 'until_epoch'?",
        ),
        ({"until_epoch": 1}, "FreezeHook needs the parameter 'patterns'"),
        ({"patterns": [1]}, "custom_hooks[0].patterns"),
        ({"patterns": "*", "until_epoch": "3"}, "custom_hooks[0].until_epoch"),
    ],
)
def test_a_wrong_config_is_refused(given: dict[str, Any], message: str) -> None:
    config = {**CONFIG, "custom_hooks": [{"type": "FreezeHook", **given}]}
    config["train"] = {**CONFIG["train"], "step": "cross_entropy"}
    with pytest.raises(ConfigError) as refused:
        Runner.from_config(config)
    assert message in str(refused.value)


def test_making_the_hook_does_not_import_torch() -> None:
    code = "import sys; from hookline.hooks import FreezeHook; FreezeHook('a.*'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
