"""EMAHook: exact averages, where they are used, what is saved, and no effect on training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.common.averaging import WeightAverage
from hookline.data.loader import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, StorageError
from hookline.hooks import EMAHook
from hookline.testing import toy_data, toy_model, toy_runner
from tests.hooks.weights import State, assert_same, copied


def recorded(runner: Runner) -> list[State]:
    """Return a list that the runner fills with the raw weights after each iteration."""
    history: list[State] = []
    runner.on("after_train_iter")(lambda runner: history.append(copied(runner.model)))
    return history


def weights_at(runner: Runner, *points: str) -> list[tuple[str, State]]:
    """Return a list that the runner fills with the model's weights at these points."""
    seen: list[tuple[str, State]] = []

    def watch(point: str) -> None:
        runner.on(point)(lambda runner: seen.append((point, copied(runner.model))))

    for point in points:
        watch(point)
    return seen


def lerped(history: list[State], momentum: float) -> State:
    """Compute an exponential moving average, one tensor at a time."""
    found = {name: value.clone() for name, value in history[0].items()}
    for weights in history[1:]:
        found = {name: torch.lerp(found[name], value, momentum) for name, value in weights.items()}
    return found


def noisy_runner(folder: Path, hooks: list[Any], **parts: Any) -> Runner:
    """Return a run with dropout, momentum, shuffling and more, which a hook can disturb."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
    inputs = torch.randn(50, 4)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    given: dict[str, Any] = {
        "train": TrainLoop(ResumableLoader(data, 8, shuffle=True), cross_entropy, max_epochs=4),
        "val": EvalLoop(DataLoader(data, 16, shuffle=True), predict, metrics={"accuracy": accuracy}),
        "optim": Optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), accumulate=2),
        "custom_hooks": hooks,
        **parts,
    }
    return Runner(model, work_dir=folder, quiet=True, device="cpu", **given)


# ---------------------------------------------------------------------------------------------------- averaging


def test_the_average_takes_in_every_optimizer_step_and_the_model_keeps_the_raw_weights() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=2, batches=4, custom_hooks=[hook])
    history = recorded(runner)
    model = runner.train()
    assert len(history) == hook.average.steps == 8
    assert_same(hook.averaged_state_dict(), lerped(history, 0.1))
    assert_same(copied(model), history[-1])


def test_an_accumulation_window_is_one_step() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, batches=5, accumulate=2, custom_hooks=[hook])
    history = recorded(runner)
    runner.train()
    assert hook.average.steps == 3
    assert_same(hook.averaged_state_dict(), lerped([history[1], history[3], history[4]], 0.1))


@pytest.mark.parametrize(
    ("parameters", "taken"),
    [
        ({"begin_iter": 3}, [2, 3, 4, 5, 6, 7]),
        ({"begin_epoch": 2}, [4, 5, 6, 7]),
        ({"interval": 3}, [0, 3, 6]),
        ({"interval": 3, "begin_iter": 2}, [1, 4, 7]),
        ({"begin_iter": 8}, [7]),
    ],
)
def test_interval_and_beginning_decide_which_steps_are_taken(parameters: Any, taken: list[int]) -> None:
    hook = EMAHook(momentum=0.1, **parameters)
    runner = toy_runner(max_epochs=2, batches=4, custom_hooks=[hook])
    history = recorded(runner)
    runner.train()
    assert_same(hook.averaged_state_dict(), lerped([history[i] for i in taken], 0.1))


def test_before_the_beginning_the_average_is_the_weights_themselves() -> None:
    hook = EMAHook(momentum=0.1, begin_iter=4)
    runner = toy_runner(max_epochs=1, batches=4, custom_hooks=[hook])
    seen: list[bool] = []

    @runner.on("after_train_iter")
    def look(runner: Runner) -> None:
        same = [value.equal(hook.averaged_state_dict()[name]) for name, value in runner.model.state_dict().items()]
        seen.append(all(same))

    runner.train()
    assert seen == [True] * 4
    assert hook.average.steps == 1


def test_a_step_that_was_skipped_is_none() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, batches=5, custom_hooks=[hook])
    runner.on("before_optimizer_step")(lambda runner: runner.skip_step("odd") if runner.iter in (0, 2) else None)
    history = recorded(runner)
    runner.train()
    assert hook.average.steps == 3
    assert_same(hook.averaged_state_dict(), lerped([history[1], history[3], history[4]], 0.1))


def test_a_step_that_the_scaler_skipped_is_none() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, batches=4, precision="fp16", custom_hooks=[hook], val=None)

    @runner.on("before_backward")
    def explode(runner: Runner, outputs: dict[str, Any]) -> None:
        if runner.iter == 1:
            outputs["loss"] = outputs["loss"] * float("inf")

    history = recorded(runner)
    runner.train()
    assert hook.average.steps == 3
    assert_same(hook.averaged_state_dict(), lerped([history[0], history[2], history[3]], 0.1))


def two_optims(hook: EMAHook, step: Any) -> Runner:
    model = toy_model()
    optims = {str(i): Optim(torch.optim.SGD(model[i].parameters(), lr=0.1), accumulate=1 + i) for i in (0, 2)}
    return toy_runner(model=model, max_epochs=1, batches=4, step=step, optim=optims, custom_hooks=[hook], val=None)


def test_with_several_optims_the_weights_are_taken_once_an_iteration_when_all_are_done() -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["0"].update(cross_entropy(model, batch))
        optim["0"].update(cross_entropy(model, batch))
        optim["2"].update(cross_entropy(model, batch))

    hook = EMAHook(momentum=0.1)
    runner = two_optims(hook, step)
    history = recorded(runner)
    runner.train()
    assert hook.average.steps == 4
    assert_same(hook.averaged_state_dict(), lerped(history, 0.1))


def test_with_several_optims_an_iteration_in_which_none_steps_is_none() -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["2"].update(cross_entropy(model, batch))  # its window has three batches

    hook = EMAHook(momentum=0.1)
    runner = two_optims(hook, step)
    runner.on("before_train_iter")(lambda runner: runner.skip_step("the last") if runner.iter == 3 else None)
    runner.train()
    assert hook.average.steps == 1


def test_a_class_of_one_s_own_gets_the_parameters_that_it_takes() -> None:
    class Mine(WeightAverage):
        def __init__(self, gamma: float) -> None:
            super().__init__()
            self.gamma = gamma

        def weight(self) -> float:
            return 1 / self.gamma

    hook = EMAHook(Mine, gamma=4)
    runner = toy_runner(max_epochs=1, custom_hooks=[hook])
    history = recorded(runner)
    runner.train()
    assert_same(hook.averaged_state_dict(), lerped(history, 0.25))


def test_buffers_are_the_current_ones_unless_they_are_averaged_too(tmp_path: Path) -> None:
    hooks = [EMAHook(momentum=0.1), EMAHook(momentum=0.1, update_buffers=True)]
    runner = noisy_runner(tmp_path, hooks, optim=None)
    runner._host.use_optims(Optim(torch.optim.SGD(runner.model.parameters(), lr=0.1)))
    history = recorded(runner)
    runner.train()
    plain, both = hooks[0].averaged_state_dict(), hooks[1].averaged_state_dict()
    floats = [{name: value for name, value in each.items() if value.is_floating_point()} for each in history]
    expected = lerped(floats, 0.1)
    for name, value in expected.items():
        assert both[name].equal(value), name
        assert plain[name].equal(history[-1][name] if "running" in name else value), name
    assert both["1.num_batches_tracked"].item() == plain["1.num_batches_tracked"].item() == 28


# --------------------------------------------------------------------------------------------------- evaluation


def test_validation_and_test_use_the_average_and_training_the_raw_weights() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=2, batches=3, custom_hooks=[hook])
    history = recorded(runner)
    points = ("before_val", "after_val_iter", "before_train_epoch", "before_save_checkpoint", "before_test")
    seen = weights_at(runner, *points)
    runner.train()
    assert [point for point, _ in seen[:5]] == [
        "before_train_epoch", "before_save_checkpoint", "before_val", "after_val_iter", "after_val_iter"
    ]  # fmt: skip
    assert_same(seen[1][1], history[2])
    for _, weights in seen[2:5]:
        assert_same(weights, lerped(history[:3], 0.1))
    assert_same(seen[5][1], history[2])
    assert seen[5][0] == "before_train_epoch"
    runner.test()
    assert_same(seen[-1][1], lerped(history, 0.1))
    assert "EMAHook: test uses the averaged weights of 6 steps" in (runner.work_dir / "run.log").read_text()
    assert_same(copied(runner.model), history[-1])


@pytest.mark.parametrize("point", ["before_val", "after_val_iter", "after_val_epoch", "after_val"])
def test_a_validation_that_fails_gives_the_raw_weights_back(point: str) -> None:
    runner = toy_runner(max_epochs=2, batches=3, custom_hooks=[EMAHook(momentum=0.1, eval_both=True)])
    history, failing = recorded(runner), [True]

    @runner.on(point)
    def fail(runner: Runner) -> None:
        if failing:
            raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        runner.train()
    assert_same(copied(runner.model), history[-1])
    assert list(runner.val_loops) == [""]
    failing.clear()
    runner.train()  # a second start continues
    assert len(history) == 6
    assert_same(copied(runner.model), history[-1])


def loss_on(state: State, loop: EvalLoop) -> float:
    model = toy_model()
    model.load_state_dict(state)
    losses = [cross_entropy(model, batch).item() for batch in loop.dataloader]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("several", [False, True])
def test_both_are_measured_when_asked_for(several: bool) -> None:
    one, two = (
        EvalLoop(toy_data(2, seed=i), predict, metrics={"accuracy": accuracy}, loss=cross_entropy) for i in (1, 2)
    )
    hook = EMAHook(momentum=0.1, eval_both=True)
    val: Any = {"one": one, "two": two} if several else one
    runner = toy_runner(max_epochs=2, custom_hooks=[hook], val=val)
    history = recorded(runner)
    runner.train()
    metrics = runner.val()
    loops = {"one/": one, "two/": two} if several else {"": one}
    assert list(metrics) == [
        f"{raw}{name}{key}" for raw in ("", "raw/") for name in loops for key in ("accuracy", "loss")
    ]
    for name, loop in loops.items():
        assert metrics[f"{name}loss"] == pytest.approx(loss_on(hook.averaged_state_dict(), loop), rel=1e-6)
        assert metrics[f"raw/{name}loss"] == pytest.approx(loss_on(history[-1], loop), rel=1e-6)
        assert metrics[f"{name}loss"] != metrics[f"raw/{name}loss"]
        assert runner.hub.get_scalar(f"val/raw/{name}loss").current() == metrics[f"raw/{name}loss"]
    assert sorted(runner.val_loops) == (["one", "two"] if several else [""])
    assert list(runner.test()) == ["accuracy", "raw/accuracy"]


def test_options_that_would_mix_up_the_raw_metrics_are_refused() -> None:
    loop = EvalLoop(toy_data(1), predict, metrics={"accuracy": accuracy})
    with pytest.raises(ConfigError, match="^EMAHook: eval_both needs the name 'raw', but a dataset has it; rename"):
        toy_runner(custom_hooks=[EMAHook(eval_both=True)], val={"raw": loop}).train()
    with pytest.raises(ConfigError, match="^EMAHook: only the last of several EMAHooks is evaluated, so set eval"):
        toy_runner(custom_hooks=[EMAHook(eval_both=True), EMAHook()]).train()


def test_of_two_hooks_each_averages_and_the_last_is_measured(tmp_path: Path) -> None:
    slow, fast = EMAHook(momentum=0.1), EMAHook(momentum=0.9, eval_both=True)
    runner = toy_runner(max_epochs=2, custom_hooks=[slow, fast], work_dir=tmp_path)
    history, seen = recorded(runner), weights_at(runner, "before_val")
    runner.train()
    assert_same(slow.averaged_state_dict(), lerped(history, 0.1))
    assert_same(fast.averaged_state_dict(), lerped(history, 0.9))
    assert_same(seen[-1][1], lerped(history, 0.9))
    assert_same(copied(runner.model), history[-1])
    states = torch.load(tmp_path / "epoch_2.pth", weights_only=True)["hooks"]
    assert_same(states["EMAHook"]["averaged"], slow.averaged_state_dict())
    assert_same(states["EMAHook#2"]["averaged"], fast.averaged_state_dict())


def test_without_validation_it_only_averages() -> None:
    hook = EMAHook(momentum=0.1, eval_both=True)
    runner = toy_runner(max_iters=5, val=None, test=None, custom_hooks=[hook])
    history = recorded(runner)
    runner.train()
    assert_same(hook.averaged_state_dict(), lerped(history, 0.1))


# -------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("parameters", [{}, {"update_buffers": True}, {"eval_both": True}])
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path, parameters: dict[str, Any]) -> None:
    without = noisy_runner(tmp_path / "without", [])
    having = noisy_runner(tmp_path / "with", [EMAHook(momentum=0.1, **parameters)])
    assert_same(copied(having.train()), copied(without.train()))
    for name in ("train/loss", "train/lr"):
        assert having.hub.get_scalar(name).last() == without.hub.get_scalar(name).last()
    saved = [
        torch.load(tmp_path / name / "epoch_4.pth", weights_only=True)["rng"]["torch"] for name in ("with", "without")
    ]
    assert saved[0].equal(saved[1])


def hooks() -> list[EMAHook]:
    kind: Any = {"ema_type": "MomentumAnnealingEMA", "gamma": 5, "update_buffers": True, "eval_both": True}
    return [EMAHook("StochasticWeightAverage", begin_epoch=2, interval=2), EMAHook(momentum=0.05, **kind)]


@pytest.mark.parametrize("save_at", [3, 9, 13, 20])
def test_a_run_that_died_in_the_middle_of_an_epoch_resumes_to_the_same_bits(tmp_path: Path, save_at: int) -> None:
    whole = noisy_runner(tmp_path / "whole", hooks())
    whole.train()
    broken = noisy_runner(tmp_path / "broken", hooks())

    @broken.on("after_train_iter")
    def save_and_die(runner: Runner) -> None:
        if runner.iter == save_at:
            runner.request_save()
        if runner.iter == save_at + 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed = noisy_runner(tmp_path / "broken", hooks(), resume=True)
    resumed.train()
    assert_same(copied(resumed.model), copied(whole.model))
    for ours, theirs in zip(resumed.hooks, whole.hooks, strict=True):
        if isinstance(theirs, EMAHook):
            assert isinstance(ours, EMAHook)
            assert ours.average.steps == theirs.average.steps > 0
            assert_same(ours.averaged_state_dict(), theirs.averaged_state_dict())
    for name in ("val/accuracy", "val/raw/accuracy"):
        assert resumed.hub.get_scalar(name).last() == whole.hub.get_scalar(name).last()


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, State, State]:
    """Return a checkpoint, its raw weights and its averaged weights."""
    hook = EMAHook(momentum=0.1)
    model = toy_runner(max_epochs=2, custom_hooks=[hook], work_dir=tmp_path / "trained").train()
    return tmp_path / "trained" / "epoch_2.pth", copied(model), hook.averaged_state_dict()


def test_a_checkpoint_holds_both_as_plain_data(trained: tuple[Path, State, State]) -> None:
    path, raw, averaged = trained
    checkpoint = torch.load(path, weights_only=True)
    assert_same(checkpoint["state_dict"], raw)
    assert list(checkpoint["hooks"]["EMAHook"]) == ["averaged", "steps"]
    assert checkpoint["hooks"]["EMAHook"]["steps"] == 8
    assert_same(checkpoint["hooks"]["EMAHook"]["averaged"], averaged)


@pytest.mark.parametrize("metric", ["loss", "raw/loss"])
def test_the_best_checkpoint_gives_the_metrics_that_made_it_the_best(tmp_path: Path, metric: str) -> None:
    val = EvalLoop(toy_data(2, seed=1), loss=cross_entropy)
    saving = {"checkpoint": {"save_best": metric, "async_save": True}}
    parts: dict[str, Any] = {"val": val, "default_hooks": saving}
    runner = toy_runner(
        max_epochs=3, custom_hooks=[EMAHook(momentum=0.1, eval_both=True)], work_dir=tmp_path / "a", **parts
    )
    runner.train()
    (best,) = (tmp_path / "a").glob("best_*.pth")
    again = toy_runner(custom_hooks=[EMAHook(eval_both=True)], work_dir=tmp_path / "b", val=val, load_from=best)
    assert again.val()[metric] == runner.hub.get_info("best_score")


def test_a_state_that_was_kept_for_a_failure_holds_the_average_of_its_time(tmp_path: Path) -> None:
    hook = EMAHook(momentum=0.1)
    saving = {"checkpoint": {"save_on_exception": 2}}
    runner = toy_runner(max_epochs=1, batches=9, custom_hooks=[hook], default_hooks=saving, work_dir=tmp_path)
    history = recorded(runner)
    runner.on("before_backward")(lambda runner: 1 // (7 - runner.iter))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    saved = torch.load(tmp_path / "iter_6.pth", weights_only=True)
    assert_same(saved["state_dict"], history[5])
    assert_same(saved["hooks"]["EMAHook"]["averaged"], lerped(history[:6], 0.1))


def test_without_the_hook_a_resumed_run_continues_with_the_raw_weights(trained: tuple[Path, State, State]) -> None:
    path, raw, _ = trained
    runner = toy_runner(max_epochs=2, resume=path)
    assert_same(copied(runner.train()), raw)
    log = (runner.work_dir / "run.log").read_text()
    assert "hook EMAHook: only in the checkpoint, so it is dropped, with its state" in log


@pytest.mark.parametrize("verb", ["val", "test"])
def test_a_loaded_checkpoint_is_evaluated_with_its_average(trained: tuple[Path, State, State], verb: str) -> None:
    path, raw, averaged = trained
    runner = toy_runner(load_from=path, custom_hooks=[EMAHook()])
    seen = weights_at(runner, f"before_{verb}")
    for _ in range(2):
        getattr(runner, verb)()
    assert_same(seen[0][1], averaged)
    assert_same(seen[1][1], averaged)
    assert_same(copied(runner.model), raw)
    assert f"EMAHook: {verb} uses the averaged weights of 8 steps" in (runner.work_dir / "run.log").read_text()


def test_a_checkpoint_without_an_average_is_evaluated_with_its_raw_weights(tmp_path: Path) -> None:
    raw = copied(toy_runner(max_epochs=1, work_dir=tmp_path).train())
    torch.save(raw, tmp_path / "weights.pth")
    for name in ("epoch_1.pth", "weights.pth"):
        runner = toy_runner(load_from=tmp_path / name, custom_hooks=[EMAHook()])
        seen = weights_at(runner, "before_test")
        runner.test()
        assert_same(seen[0][1], raw)
        log = (runner.work_dir / "run.log").read_text()
        assert "EMAHook: test uses the raw weights, because there is no average" in log


@pytest.mark.parametrize("tested", [False, True])
def test_training_from_loaded_weights_averages_from_them_on(trained: tuple[Path, State, State], tested: bool) -> None:
    path, raw, _ = trained
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, load_from=path, custom_hooks=[hook])
    if tested:
        runner.test()
    history, first = recorded(runner), []
    runner.on("before_train")(lambda runner: first.append(hook.averaged_state_dict()))
    runner.train()
    assert_same(first[0], raw)
    assert_same(hook.averaged_state_dict(), lerped(history, 0.1))


def test_an_average_that_does_not_fit_is_refused_or_taken_as_far_as_it_does(
    trained: tuple[Path, State, State], tmp_path: Path
) -> None:
    path, raw, averaged = trained
    checkpoint = torch.load(path, weights_only=True)
    state = checkpoint["hooks"]["EMAHook"]["averaged"]
    state["extra"] = state.pop("2.bias")
    state["2.weight"] = torch.zeros(3, 8)
    store.write(checkpoint, tmp_path / "odd.pth", Note(step=8, validations=2, complete=True))
    misfits = ["  missing: 2.bias (2,)", "  surplus: extra", "  2.weight: the model has (2, 8), saved (3, 8)"]
    starts: list[dict[str, Any]] = [{"resume": tmp_path / "odd.pth"}, {"load_from": tmp_path / "odd.pth"}]
    for start in starts:
        strict = toy_runner(custom_hooks=[EMAHook()], **start)
        with pytest.raises(StorageError) as refused:
            strict.train() if "resume" in start else strict.test()
        assert str(refused.value).splitlines() == [
            "EMAHook: the averaged weights do not fit the model:",
            *misfits,
            "  set strict_load: false to load only what fits",
        ]
        hook = EMAHook(strict_load=False)
        runner = toy_runner(custom_hooks=[hook], **start)
        runner.train() if "resume" in start else runner.test()
        assert_same(hook.averaged_state_dict(), averaged | {name: raw[name] for name in ("2.weight", "2.bias")})
        said = "EMAHook: the saved average does not fit the model; mismatches start from the model's weights:"
        assert "\n".join([said, *misfits]) in (runner.work_dir / "run.log").read_text()


def test_a_run_started_twice_continues_its_average() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, custom_hooks=[hook])
    history = recorded(runner)
    runner.train()
    runner.train_loop.max_epochs = 2
    runner.train()
    assert len(history) == 8
    assert_same(hook.averaged_state_dict(), lerped(history, 0.1))


def test_a_hook_that_joins_in_the_middle_averages_from_there_on() -> None:
    hook = EMAHook(momentum=0.1)
    runner = toy_runner(max_epochs=1, batches=5)
    history = recorded(runner)
    runner.on("before_train_iter")(lambda runner: runner.register_hook(hook) if runner.iter == 2 else None)
    runner.train()
    assert_same(hook.averaged_state_dict(), lerped(history[2:], 0.1))


# ------------------------------------------------------------------------------------------------- constructing


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"ema_type": "ExponentialMovingAvg"},
            "unknown average 'ExponentialMovingAvg'; did you mean 'Exponential",
        ),
        (
            {"ema_type": Hook},
            "ema_type must be a name or a subclass of WeightAverage, not <class 'hookline.runner.hook.Hook'>",
        ),
        ({"momentum": 0}, "momentum must be above 0 and at most 1, not 0"),
        ({"ema_type": "MomentumAnnealingEMA", "gamma": -1}, "gamma must be above 0, not -1"),
        ({"interval": 0}, "interval must be an int of at least 1, not 0"),
        ({"begin_iter": -1}, "begin_iter must be an int of at least 0, not -1"),
        ({"begin_epoch": 1.0}, "begin_epoch must be an int of at least 0, not 1.0"),
        ({"begin_iter": 1, "begin_epoch": 1}, "set begin_iter or begin_epoch, not both"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EMAHook(**parameters)
    assert str(refused.value).startswith(f"EMAHook: {message}")


@pytest.mark.parametrize(
    ("parameters", "length", "message"),
    [
        (
            {"begin_iter": 9},
            {"max_epochs": 2},
            "begin_iter=9 needs 9 iterations, but this run has 8, so nothing is averaged; set begin_iter to at most 8, "
            "or train longer",
        ),
        (
            {"begin_epoch": 3},
            {"max_epochs": 2},
            "begin_epoch=3 needs 3 epochs, but this run has 2, so nothing is averaged; set begin_epoch to at most 2, "
            "or train longer",
        ),
        (
            {"begin_iter": 7},
            {"max_iters": 6},
            "begin_iter=7 needs 7 iterations, but this run has 6, so nothing is averaged; set begin_iter to at most 6, "
            "or train longer",
        ),
        (
            {"begin_epoch": 3},
            {"max_iters": 6},
            "begin_epoch=3 needs 3 epochs, but this run has 2, so nothing is averaged; set begin_epoch to at most 2, "
            "or train longer",
        ),
    ],
)
def test_a_begin_after_the_end_is_a_warning_and_a_shortened_run_continues(
    parameters: Any, length: Any, message: str
) -> None:
    runner = toy_runner(batches=4, custom_hooks=[hook := EMAHook(**parameters)], **length)
    runner.train()
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    assert lines[0].endswith(f"  warning: EMAHook: {message}")
    assert hook.average.steps == 0


def test_a_config_names_it_and_its_parameters() -> None:
    given = {"type": "EMAHook", "ema_type": "StochasticWeightAverage", "interval": 2, "priority": "LOW"}
    runner = toy_runner(custom_hooks=[given])
    (entry,) = [entry for entry in runner.plan if isinstance(entry.hook, EMAHook)]
    assert (entry.name, entry.priority) == ("EMAHook", 70)
    assert type(entry.hook.average).__name__ == "StochasticWeightAverage"
    assert entry.hook.average.interval == 2


def test_a_wrong_kind_in_a_config_is_refused_with_what_is_right() -> None:
    from hookline.config import build_runner, from_dict

    config = from_dict({"model": {"type": "DigitsNet"}, "custom_hooks": [{"type": "EMAHook", "ema_type": "Swa"}]})
    with pytest.raises(
        ConfigError, match="'ExponentialMovingAverage', 'StochasticWeightAverage' or 'MomentumAnnealing"
    ):
        build_runner(config)


def test_making_the_hook_does_not_import_torch() -> None:
    code = "import sys; from hookline.hooks import EMAHook; EMAHook(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_measuring_both_draws_nothing_that_training_would_miss() -> None:
    def run(**parameters: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

        def noisy(model: nn.Module, batch: Any) -> Any:
            return model(batch[0] + torch.rand(4)), batch[1]

        val = EvalLoop(toy_data(2, seed=1), noisy, metrics={"accuracy": accuracy})
        runner = toy_runner(model=model, val=val, max_epochs=3, custom_hooks=[EMAHook(**parameters)])
        runner.train()
        return runner.model.state_dict()

    one, both = run(), run(eval_both=True)
    assert all(value.equal(both[name]) for name, value in one.items())
