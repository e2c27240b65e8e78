"""CheckInvalidLossHook: which iteration is named, which batches are skipped, and the state after the run."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Hook, Optim, Runner
from hookline.cli import main, numerics
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, NumericsError, exit_code_of
from hookline.hooks import CheckInvalidLossHook, EMAHook
from hookline.testing import MemoryWriter, Recorder, toy_data, toy_model, toy_runner

NAN, INF = math.nan, math.inf
DEFAULTS = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
CHECK = "Check the learning rate, the data and the precision"


class Spoil(Hook):
    """Replaces the loss of some iterations, counted from 1."""

    def __init__(self, *iterations: int, by: float = NAN) -> None:
        self.iterations = iterations
        self.by = by

    def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        if runner.iter + 1 in self.iterations:
            outputs["loss"] = outputs["loss"] * self.by


def weights_of(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_same(ours: nn.Module, theirs: list[Tensor]) -> None:
    for a, b in zip(ours.parameters(), theirs, strict=True):
        assert a.equal(b)


def by_hand(windows: list[list[int]]) -> list[Tensor]:
    """Return the weights after training on batches with these numbers, with one update per window."""
    model, data = toy_model(), toy_data(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for window in windows:
        for number in window:
            (cross_entropy(model, data[number]) / len(window)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return weights_of(model)


def log_of(runner: Runner) -> str:
    return (runner.work_dir / "run.log").read_text()


# -------------------------------------------------------------------------------------------------------- raise


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("defaults", [None, dict.fromkeys(DEFAULTS)])
def test_raise_ends_the_run_before_the_backward_pass(bad: float, defaults: dict[str, None] | None) -> None:
    recorder = Recorder("before_backward", "after_backward")
    hooks = [Spoil(4, by=bad), CheckInvalidLossHook(), recorder]
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, default_hooks=defaults)
    with pytest.raises(NumericsError) as failed:
        runner.train()
    assert str(failed.value) == (
        f"CheckInvalidLossHook: the loss of iteration 4 is {bad}; the optimizer step was not taken, so the weights are "
        f"unchanged. {CHECK}, or skip such batches with policy: skip"
    )
    assert exit_code_of(failed.value) == 4
    assert recorder.names == [*["before_backward", "after_backward"] * 3, "before_backward"]
    assert_same(runner.model, by_hand([[0], [1], [2]]))


def test_the_state_before_a_bad_step_is_saved_on_exception() -> None:
    hooks = [Spoil(4), CheckInvalidLossHook()]
    runner = toy_runner(
        max_epochs=1, batches=8, custom_hooks=hooks, default_hooks={"checkpoint": {"save_on_exception": True}}
    )
    with pytest.raises(NumericsError):
        runner.train()
    saved = torch.load(runner.work_dir / "iter_3.pth", weights_only=True)
    for ours, theirs in zip(saved["state_dict"].values(), by_hand([[0], [1], [2]]), strict=True):
        assert ours.equal(theirs)


@pytest.mark.parametrize("policy", ["raise", "skip", "stop"])
@pytest.mark.parametrize(("bad", "found_at"), [((2,), 3), ((2, 3), 3), ((4, 6), 6), ((7,), 8)])
def test_between_two_checks_the_first_bad_iteration_is_named(policy: Any, bad: tuple[int, ...], found_at: int) -> None:
    hooks = [Spoil(*bad), CheckInvalidLossHook(interval=3, policy=policy)]
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, default_hooks=dict.fromkeys(DEFAULTS), val=None)
    with pytest.raises(NumericsError) as failed:
        runner.train()
    at_the_end = found_at == 8  # the loop's own check, after all iterations
    found = (
        f"the loss has become nan at iteration {bad[0]} (epoch 1, batch {bad[0]} of 8), so training cannot "
        "continue; check the learning rate, the data and the precision, or skip such batches: CheckInvalidLossHook "
        "with policy: skip and interval: 1"
        if at_the_end
        else f"CheckInvalidLossHook: the loss of iteration {bad[0]} is nan, and training used it before this check; "
        "set interval: 1 to find it in time"
    )
    assert str(failed.value) == found
    assert runner.iter == (8 if at_the_end else found_at - 1)


def test_a_save_checks_what_is_unread(tmp_path: Path) -> None:
    hooks = [Spoil(2), CheckInvalidLossHook(interval=100)]
    defaults = {"runtime_info": None, "checkpoint": {"interval": 3, "by_epoch": False}}
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, default_hooks=defaults, work_dir=tmp_path)
    with pytest.raises(NumericsError, match="^the loss has become nan at iteration 2 "):
        runner.train()
    assert runner.iter == 3
    assert list(tmp_path.glob("*.pth")) == []


class Counting(torch.Tensor):
    """A tensor that records what is done with it."""

    done: list[str]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name != "__get__":
            cls.done.append(name)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_nothing_is_read_between_two_checks_and_all_at_once_then() -> None:
    Counting.done = []
    hook = CheckInvalidLossHook(interval=3)
    runner = toy_runner()
    runner.position.iter = 0
    losses = [torch.tensor(float(number)).as_subclass(Counting) for number in range(5)]
    for number, loss in enumerate(losses[:2]):
        runner.position.iter = number
        hook.after_backward(runner, {"loss": loss})
    assert Counting.done == ["detach", "detach"]
    runner.position.iter = 2
    hook.before_backward(runner, {"loss": losses[2]})
    assert [name for name in Counting.done if name in ("item", "tolist", "__float__")] == ["item"] * 3
    assert hook._unread == []


def test_it_looks_after_hooks_that_replace_the_loss_and_before_the_logger() -> None:
    runner = toy_runner(custom_hooks=[CheckInvalidLossHook(), Spoil()])
    assert [call.who for call in runner.plan.calls_at("before_backward")] == ["Spoil", "CheckInvalidLossHook"]
    names = [entry.name for entry in runner.plan]
    assert names.index("CheckInvalidLossHook") < names.index("LoggerHook")


# --------------------------------------------------------------------------------------------------------- skip


@pytest.mark.parametrize("length", [{"max_epochs": 1}, {"max_iters": 8}])
@pytest.mark.parametrize("defaults", [None, dict.fromkeys(DEFAULTS)])
def test_skip_leaves_out_just_the_bad_batches(length: dict[str, Any], defaults: dict[str, None] | None) -> None:
    writer = MemoryWriter()
    hooks = [Spoil(1, 4, 5, by=INF), CheckInvalidLossHook(policy="skip")]
    runner = toy_runner(batches=8, custom_hooks=hooks, default_hooks=defaults, writers=[writer], **length)
    runner.train()
    assert_same(runner.model, by_hand([[1], [2], [5], [6], [7]]))
    assert (runner.iter, runner.updates, runner.exit_code) == (8, 5, 0)
    assert runner.hub.get_scalar("train/skipped").last() == [1, 2, 3]
    lines = [line.split("  ", 1)[1] for line in log_of(runner).splitlines() if "CheckInvalidLossHook: the" in line]
    assert lines == [
        "CheckInvalidLossHook: the loss of iteration 1 is inf; skipped its batch (1 so far)",
        "CheckInvalidLossHook: the loss of iteration 4 is inf; skipped its batch (2 so far)",
        "CheckInvalidLossHook: the loss of iteration 5 is inf; skipped its batch (3 so far)",
    ]
    if defaults is None:
        assert all(math.isfinite(loss) for loss in runner.hub.get_scalar("train/loss").last())
        assert [record["train/skipped"] for record in writer.records if "train/loss" in record] == [3]


@pytest.mark.parametrize(
    ("bad", "windows"),
    [
        ((2,), [[0, 2, 3], [4, 5, 6], [7]]),  # the window takes one more batch
        ((1,), [[1, 2, 3], [4, 5, 6], [7]]),
        ((3,), [[0, 1, 3], [4, 5, 6], [7]]),  # the last of a window
        ((8,), [[0, 1, 2], [3, 4, 5], [6]]),  # the last of an epoch: its window stays partial
        ((7, 8), [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_in_a_window_just_the_micro_batch_is_left_out(bad: tuple[int, ...], windows: list[list[int]]) -> None:
    hooks = [Spoil(*bad), CheckInvalidLossHook(policy="skip")]
    runner = toy_runner(max_epochs=1, batches=8, accumulate=3, custom_hooks=hooks)
    runner.train()
    assert runner.updates == len(windows)
    for ours, theirs in zip(runner.model.parameters(), by_hand(windows), strict=True):
        torch.testing.assert_close(ours.detach(), theirs)


@pytest.mark.parametrize("interval", [1, 4])
def test_with_fp16_skipped_batches_leave_the_scale_alone(interval: int) -> None:
    hooks = [Spoil(4), CheckInvalidLossHook(interval, policy="skip")]
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, precision="fp16", val=None)
    runner.train()
    assert runner.optims.sole.scaler is not None
    assert runner.optims.sole.scaler.get_scale() == 2.0**16
    assert (runner.updates, runner.hub.get_scalar("train/skipped").last()) == (7, [1])


@pytest.mark.parametrize("policy", ["skip", "stop"])
def test_with_fp16_the_scaler_has_left_out_what_came_between_two_checks(policy: Any) -> None:
    hooks = [Spoil(2), CheckInvalidLossHook(interval=4, policy=policy)]
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, precision="fp16", val=None)
    runner.train()
    assert runner.optims.sole.scaler is not None
    assert runner.optims.sole.scaler.get_scale() == 2.0**15
    assert (runner.iter, runner.exit_code) == (8, 0)
    assert all(parameter.isfinite().all() for parameter in runner.model.parameters())


def test_with_fp16_raise_still_names_it() -> None:
    hooks = [Spoil(2), CheckInvalidLossHook(interval=4)]
    with pytest.raises(NumericsError, match="^CheckInvalidLossHook: the loss of iteration 2 is nan, and training used"):
        toy_runner(max_epochs=1, batches=8, custom_hooks=hooks, precision="fp16", val=None).train()


def test_an_average_takes_in_no_skipped_batch() -> None:
    averaged = EMAHook(momentum=0.1)
    hooks = [Spoil(2, 3), CheckInvalidLossHook(policy="skip"), averaged]
    runner = toy_runner(max_epochs=1, batches=5, custom_hooks=hooks)
    runner.train()
    assert averaged.average.steps == 3
    assert all(value.isfinite().all() for value in averaged.averaged_state_dict().values())


def test_a_step_that_updates_itself_is_checked_at_each_update_and_counted_once() -> None:
    trained: list[tuple[int, float]] = []

    def step(model: nn.Module, batch: Any, optim: Optim) -> None:
        for factor in (1.0, NAN if runner.iter == 1 else 2.0, NAN if runner.iter == 1 else 3.0):
            before = optim.updates
            optim.update(cross_entropy(model, batch) * factor)
            if optim.updates > before:
                trained.append((runner.iter, factor))

    runner = toy_runner(max_epochs=1, batches=3, step=step, custom_hooks=[CheckInvalidLossHook(policy="skip")])
    runner.train()
    assert trained == [(0, 1.0), (0, 2.0), (0, 3.0), (1, 1.0), (2, 1.0), (2, 2.0), (2, 3.0)]
    assert runner.hub.get_scalar("train/skipped").last() == [1]


def test_of_several_optims_those_that_come_later_in_the_iteration_are_left_out_too() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2), "c": nn.Linear(4, 2)})
    optims = {name: Optim(torch.optim.SGD(model[name].parameters(), lr=0.1)) for name in model}

    def step(model: Any, batch: Any, optim: Any) -> None:
        for name in model:
            loss = cross_entropy(model[name], batch)
            optim[name].update(loss * NAN if name == "b" and runner.iter < 2 else loss)

    hook = CheckInvalidLossHook(policy="skip")
    runner = toy_runner(model=model, max_epochs=1, batches=4, step=step, optim=optims, custom_hooks=[hook], val=None)
    runner.train()
    assert {name: optim.updates for name, optim in optims.items()} == {"a": 4, "b": 2, "c": 2}
    assert (hook.skipped, hook.in_a_row) == (2, 2)


@pytest.mark.parametrize(
    ("bad", "max_skips", "ends"),
    [
        ((2, 3, 4), 3, None),
        ((2, 3, 4, 5), 3, 5),
        ((1, 2, 4, 5, 7, 8), 2, None),  # never more than two in a row
        ((1, 2, 4, 5, 6), 2, 6),
        ((1, 2), 1, 2),
    ],
)
def test_it_gives_up_after_max_skips_in_a_row(bad: tuple[int, ...], max_skips: int, ends: int | None) -> None:
    hooks = [Spoil(*bad), CheckInvalidLossHook(policy="skip", max_skips=max_skips)]
    runner = toy_runner(max_epochs=1, batches=8, custom_hooks=hooks)
    if ends is None:
        runner.train()
        return
    with pytest.raises(NumericsError) as failed:
        runner.train()
    assert str(failed.value) == (
        f"CheckInvalidLossHook: the loss of iteration {ends} is nan, after {max_skips} "
        f"skipped batch{'es' if max_skips > 1 else ''} in a row (max_skips). {CHECK}"
    )
    assert runner.iter == ends - 1


def test_every_batch_that_another_hook_leaves_out_is_its_own_affair() -> None:
    class Other(Hook):
        def before_backward(self, runner: Runner) -> None:
            if runner.iter + 1 == 2:
                runner.skip_step("known to be bad")

    hook = CheckInvalidLossHook()
    runner = toy_runner(max_epochs=1, custom_hooks=[Spoil(2), Other(), hook])
    runner.train()
    assert (runner.updates, hook.skipped) == (3, 0)


# --------------------------------------------------------------------------------------------------------- stop


@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 16}])
def test_stop_ends_training_in_order_with_a_finite_last_checkpoint(length: dict[str, Any]) -> None:
    recorder = Recorder("after_train", "after_run", "before_val")
    hooks = [Spoil(*range(4, 99)), CheckInvalidLossHook(policy="stop"), recorder]
    runner = toy_runner(batches=8, custom_hooks=hooks, **length)
    runner.train()
    assert (runner.iter, runner.updates, runner.exit_code) == (4, 3, 4)
    assert runner.stopped.reason == "the loss of iteration 4 is nan"
    assert "stopped by CheckInvalidLossHook: the loss of iteration 4 is nan\n" in log_of(runner)
    assert recorder.names == ["after_train", "after_run"]
    saved = torch.load(runner.work_dir / "iter_4.pth", weights_only=True)
    for ours, theirs in zip(saved["state_dict"].values(), by_hand([[0], [1], [2]]), strict=True):
        assert ours.equal(theirs)


@pytest.mark.parametrize(("bad", "windows"), [(5, [[0, 1, 2], [3]]), (6, [[0, 1, 2], [3, 4]]), (4, [[0, 1, 2]])])
def test_a_stop_ends_the_window_with_what_is_in_it(bad: int, windows: list[list[int]]) -> None:
    hooks = [Spoil(*range(bad, 99)), CheckInvalidLossHook(policy="stop")]
    runner = toy_runner(max_epochs=1, batches=8, accumulate=3, custom_hooks=hooks)
    runner.train()
    assert (runner.iter, runner.updates) == (bad, len(windows))
    for ours, theirs in zip(runner.model.parameters(), by_hand(windows), strict=True):
        torch.testing.assert_close(ours.detach(), theirs)


def test_a_run_that_was_stopped_stays_so_with_the_same_exit_code(tmp_path: Path) -> None:
    def runner_of(**parts: Any) -> Runner:
        hooks = [Spoil(2), CheckInvalidLossHook(policy="stop")]
        return toy_runner(max_epochs=1, custom_hooks=hooks, work_dir=tmp_path, **parts)

    first = runner_of()
    first.train()
    first.train()
    assert (first.iter, first.exit_code) == (2, 4)
    second = runner_of(resume=True)
    second.train()
    assert (second.iter, second.exit_code) == (2, 4)


@pytest.mark.parametrize(("policy", "code"), [("raise", 4), ("stop", 4), ("skip", 0)])
def test_the_command_line_ends_with_it(
    policy: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("spoilt_step.py").write_text(
        "from hookline.engine.steps import cross_entropy\n\ncalls = []\n\n"
        "def step(model, batch):\n    calls.append(0)\n"
        "    return cross_entropy(model, batch) * (float('nan') if len(calls) == 3 else 1)\n"
    )
    words = [
        *["train.max_epochs=1", "train.limit_batches=5", "val.limit_batches=1", "train.step=spoilt_step:step"],
        f"custom_hooks=[{{type: CheckInvalidLossHook, policy: {policy}}}]",
    ]
    monkeypatch.setattr(sys, "argv", ["hookline", "train", *words])
    monkeypatch.setattr(numerics, "find_origin", lambda *_: None)  # it starts a process
    with pytest.raises(SystemExit) as ended:
        main()
    sys.modules.pop("spoilt_step", None)
    assert (ended.value.code or 0) == code
    out, err = capsys.readouterr()
    assert ("last checkpoint" in out) == (policy != "raise")
    assert ("hookline: CheckInvalidLossHook: the loss of iteration 3 is nan" in err) == (policy == "raise")
    assert ("stopped by CheckInvalidLossHook: the loss of iteration 3 is nan" in out) == (policy == "stop")
    assert ("CheckInvalidLossHook: the loss of iteration 3 is nan; skipped its batch (1 so far)" in out) == (
        policy == "skip"
    )
    if policy == "stop":
        monkeypatch.setattr(sys, "argv", ["hookline", "train", "--dry-run", *words, "train.step=spoilt_at_once:step"])
        Path("spoilt_at_once.py").write_text(
            "from hookline.engine.steps import cross_entropy\n\n"
            "def step(model, batch):\n    return cross_entropy(model, batch) * float('nan')\n"
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 4
        assert capsys.readouterr().out == ("dry run: stopped by CheckInvalidLossHook: the loss of iteration 1 is nan\n")


# ------------------------------------------------------------------------------------------- restarts, constructing


def trained(folder: Path, epochs: int, hook: CheckInvalidLossHook, bad: tuple[int, ...], **parts: Any) -> Runner:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    hooks = [Spoil(*bad), hook]
    runner = toy_runner(model=model, optim=optim, max_epochs=epochs, custom_hooks=hooks, work_dir=folder, **parts)
    runner.train()
    return runner


def test_skip_counters_survive_a_resume(tmp_path: Path) -> None:
    bad = (2, 4, 5)
    hooks = [CheckInvalidLossHook(policy="skip", max_skips=2) for _ in range(3)]
    whole = trained(tmp_path / "whole", 2, hooks[0], bad)
    trained(tmp_path / "broken", 1, hooks[1], bad)
    resumed = trained(tmp_path / "broken", 2, hooks[2], bad, resume=True)
    assert_same(resumed.model, weights_of(whole.model))
    assert hooks[2].state_dict() == hooks[0].state_dict() == {"skipped": 3, "in_a_row": 2, "skipped_at": 5}
    for name in ("train/skipped", "train/loss"):
        assert resumed.hub.get_scalar(name).last() == whole.hub.get_scalar(name).last()


def test_skips_in_a_row_are_counted_across_a_resume(tmp_path: Path) -> None:
    trained(tmp_path, 2, CheckInvalidLossHook(policy="skip", max_skips=1), (8,))
    with pytest.raises(NumericsError, match="the loss of iteration 9 is nan, after 1 skipped batch in a row"):
        trained(tmp_path, 3, CheckInvalidLossHook(policy="skip", max_skips=1), (9,), resume=True)


def test_with_finite_losses_nothing_changes() -> None:
    for settings in ({}, {"interval": 3}, {"policy": "skip"}, {"policy": "stop"}):
        having, without = toy_runner(custom_hooks=[CheckInvalidLossHook(**settings)]), toy_runner()
        having.train()
        without.train()
        assert_same(having.model, weights_of(without.model))
        assert having.val() == without.val()


def test_train_twice_and_after_a_failure_nothing_is_left_to_read() -> None:
    hook = CheckInvalidLossHook(interval=3)
    runner = toy_runner(max_epochs=1, custom_hooks=[hook], val=None, default_hooks=dict.fromkeys(DEFAULTS))
    fail = runner.on("after_backward")(lambda runner: 1 // (1 - runner.iter))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert [loss.iteration for loss in hook._unread] == [1]
    runner.remove_hook(fail)
    hook._unread[0].value.fill_(NAN)  # from an earlier run
    runner.train_loop.max_epochs = 2
    runner.train()
    assert hook._unread == []


def test_when_every_loss_is_checked_there_is_nothing_to_do_elsewhere() -> None:
    def points(interval: int) -> list[str]:
        runner = toy_runner(max_epochs=1, batches=1, custom_hooks=[CheckInvalidLossHook(interval)])
        runner.train()
        known = ("before_train", "before_backward", "after_backward", "before_save_checkpoint", "after_train")
        return [name for name in known if "CheckInvalidLossHook" in {call.who for call in runner.plan.calls_at(name)}]

    assert points(1) == ["before_train", "before_backward"]
    assert points(2) == ["before_train", "before_backward", "after_backward", "before_save_checkpoint", "after_train"]


def test_a_config_names_it(tmp_path: Path) -> None:
    config = {
        "model": {"type": "Linear", "in_features": 4, "out_features": 2},
        "custom_hooks": [{"type": "CheckInvalidLossHook", "interval": 5, "policy": "stop", "max_skips": 7}],
        "work_dir": str(tmp_path),
    }
    hook = next(hook for hook in Runner.from_config(config).hooks if isinstance(hook, CheckInvalidLossHook))
    assert (hook.interval, hook.policy, hook.max_skips) == (5, "stop", 7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interval": 0}, "interval must be an int of at least 1, not 0"),
        ({"interval": True}, "interval must be an int of at least 1, not True"),
        ({"policy": "skipp"}, "policy cannot be 'skipp'; did you mean 'skip'?"),
        ({"policy": None}, "policy cannot be None; available: raise, skip, stop"),
        ({"max_skips": 0}, "max_skips must be an int of at least 1, not 0"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CheckInvalidLossHook(**parameters)
    assert str(refused.value) == f"CheckInvalidLossHook: {message}"


@pytest.mark.parametrize("policy", ["raise", "skip", "stop"])
def test_weights_that_are_nan_already_are_said_and_not_skipped_over(policy: Any) -> None:
    runner = toy_runner(custom_hooks=[CheckInvalidLossHook(policy=policy)])

    @runner.on("after_optimizer_step")
    def spoil(runner: Runner) -> None:
        if runner.iter == 1:
            with torch.no_grad():
                runner.model[0].bias[0] = math.nan  # type: ignore[index]  # a Sequential

    with pytest.raises(NumericsError) as failed:
        runner.train()
    assert str(failed.value) == (
        "CheckInvalidLossHook: the loss of iteration 3 is nan, because the model's 0.bias became NaN in an earlier "
        "step, although the loss of that step was finite; autograd's anomaly detection shows the line that such a "
        "gradient comes from"
    )


def test_the_second_of_two_is_known_by_its_own_name_when_the_run_is_resumed(tmp_path: Path) -> None:
    def run(**parts: Any) -> Runner:
        hooks = [Spoil(3), CheckInvalidLossHook(policy="skip", interval=1000), CheckInvalidLossHook(policy="stop")]
        runner = toy_runner(work_dir=tmp_path, custom_hooks=hooks, **parts)
        runner.train()
        return runner

    assert run().exit_code == 4
    assert run(resume=True).exit_code == 4
