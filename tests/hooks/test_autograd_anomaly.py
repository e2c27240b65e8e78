"""AutogradAnomalyHook: the forward line of a failing gradient, and unchanged modes and warnings."""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Runner
from hookline.cli import main
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, NumericsError, exit_code_of
from hookline.hooks import AutogradAnomalyHook
from hookline.hooks.autograd_anomaly import describe
from hookline.plan.sources import short_path
from hookline.testing import toy_data, toy_model, toy_runner

HERE = short_path(__file__)


@pytest.fixture(autouse=True)
def _all_is_as_before() -> Iterator[None]:
    show = warnings.showwarning
    yield
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (False, True)
    assert [each for each in warnings.filters if each[1] is not None and "Error detected" in str(each[1])] == []
    assert warnings.showwarning is show


def line_of(function: Callable[..., Any], text: str) -> int:
    """Return the number of the line of a function that contains this text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def root_of_nothing(model: nn.Module, batch: Any) -> Tensor:
    zero = (model(batch[0]) * 0).sum()
    loss: Tensor = cross_entropy(model, batch) + zero.sqrt() * 0
    return loss


def notes_of(error: BaseException) -> list[str]:
    """Return all notes except the one that the loop adds."""
    return [note for note in getattr(error, "__notes__", []) if not note.startswith("in the step, epoch=")]


def failing(runner: Runner) -> RuntimeError:
    with pytest.raises(RuntimeError) as failed:
        runner.train()
    return failed.value


def test_a_nan_in_a_gradient_ends_the_run_and_names_the_line_of_the_step() -> None:
    runner = toy_runner(step=root_of_nothing, custom_hooks=[AutogradAnomalyHook()])
    before = [parameter.clone() for parameter in runner.model.parameters()]
    error = failing(runner)
    assert str(error) == "Function 'SqrtBackward0' returned nan values in its 0th output."
    line = line_of(root_of_nothing, "zero.sqrt()")
    assert notes_of(error) == [
        f"AutogradAnomalyHook: SqrtBackward0 failed; its forward pass is {HERE}:{line}, in root_of_nothing: "
        "loss: Tensor = cross_entropy(model, batch) + zero.sqrt() * 0"
    ]
    assert exit_code_of(error) == 4
    assert notes_of(error)[0] in (runner.work_dir / "run.log").read_text()
    for ours, theirs in zip(runner.model.parameters(), before, strict=True):
        assert ours.equal(theirs)
    files = [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]
    assert "autograd_anomaly.py" not in files  # the traceback is unchanged


class Net(nn.Module):
    """A model that fails two calls below the step."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = toy_model()

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.inner(inputs)
        return found + self.penalty(found)

    def penalty(self, found: Tensor) -> Tensor:
        return found.mul(0).sum(dim=1, keepdim=True).pow(0.5) * 0


def test_the_innermost_line_of_ones_own_is_named_and_those_that_called_it() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        scores = model(batch[0])
        return nn.functional.cross_entropy(scores, batch[1])

    error = failing(toy_runner(model=Net(), step=step, custom_hooks=[AutogradAnomalyHook()]))
    first, second, third = line_of(Net.penalty, "return"), line_of(Net.forward, "return"), line_of(step, "scores =")
    assert notes_of(error) == [
        f"AutogradAnomalyHook: PowBackward0 failed; its forward pass is {HERE}:{first}, in penalty: "
        "return found.mul(0).sum(dim=1, keepdim=True).pow(0.5) * 0\n"
        f"  called from {HERE}:{second}, in forward: return found + self.penalty(found)\n"
        f"  called from {HERE}:{third}, in step: scores = model(batch[0])"
    ]


def test_where_all_of_the_forward_pass_is_bundled_the_line_of_the_bundled_step_is_named() -> None:
    class Root(nn.Module):
        forward = staticmethod(torch.sqrt)

    linear = nn.Linear(4, 2)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    model = nn.Sequential(linear, Root())
    error = failing(toy_runner(model=model, custom_hooks=[AutogradAnomalyHook()]))
    line = line_of(cross_entropy, "outputs =")
    assert notes_of(error) == [
        f"AutogradAnomalyHook: AddmmBackward0 failed; its forward pass is hookline/engine/steps.py:{line}, in "
        "cross_entropy: outputs = model(inputs)"
    ]


def test_other_backward_failures_are_explained_too_and_keep_their_exit_code() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        scores = model(batch[0]).exp()
        scores.add_(1)
        loss: Tensor = scores.sum()
        return loss

    error = failing(toy_runner(step=step, custom_hooks=[AutogradAnomalyHook(check_nan=False)]))
    assert str(error).startswith("one of the variables needed for gradient computation has been modified by an inplace")
    line = line_of(step, "exp()")
    assert notes_of(error) == [
        f"AutogradAnomalyHook: ExpBackward0 failed; its forward pass is {HERE}:{line}, in step: "
        "scores = model(batch[0]).exp()"
    ]
    assert exit_code_of(error) == 1


def test_a_gradient_of_a_gradient_is_traced_back_to_both_lines() -> None:
    def step(model: Any, batch: Any) -> Any:
        inputs = (batch[0] * 0).requires_grad_()
        power = inputs.abs().pow(1.5).sum()
        (slope,) = torch.autograd.grad(power, inputs, create_graph=True)
        return cross_entropy(model, batch) + (slope * model[0].weight.sum()).sum()

    error = failing(toy_runner(step=step, custom_hooks=[AutogradAnomalyHook()]))
    notes = notes_of(error)
    assert len(notes) == 2
    assert f"{HERE}:{line_of(step, 'create_graph')}, in step: " in notes[0]
    assert f"{HERE}:{line_of(step, 'pow(1.5)')}, in step: " in notes[1]
    assert exit_code_of(error) == 4


def test_without_check_nan_a_nan_is_not_stopped() -> None:
    runner = toy_runner(max_epochs=1, step=root_of_nothing, custom_hooks=[AutogradAnomalyHook(check_nan=False)])
    with pytest.raises(NumericsError):  # in the second step, the weights and the loss are NaN
        runner.train()
    assert runner.iter == 3


# -------------------------------------------------------------------------------------------- when it is on or off


@pytest.mark.parametrize(
    ("parameters", "on"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"begin": 2}, [3, 4, 5, 6]),
        ({"end": 2}, [1, 2]),
        ({"begin": 1, "end": 4}, [2, 3, 4]),
        ({"begin": 5}, [6]),
        ({"begin": 6}, []),
    ],
)
@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 6}])
def test_it_is_on_in_exactly_these_iterations(
    parameters: dict[str, Any], on: list[int], length: dict[str, Any]
) -> None:
    runner = toy_runner(batches=3, custom_hooks=[AutogradAnomalyHook(**parameters)], **length)
    seen: dict[str, list[int]] = {}

    def watch(point: str) -> None:
        @runner.on(point)
        def look(runner: Runner) -> None:
            if torch.is_anomaly_enabled():
                seen.setdefault(point, []).append(runner.iter + 1)

    points = ("before_train_iter", "before_backward", "after_optimizer_step", "after_train_iter")
    for point in (*points, "before_val_iter", "before_save_checkpoint", "after_train_epoch", "after_train"):
        watch(point)
    runner.train()
    assert seen == (dict.fromkeys(points, on) if on else {})
    assert bool(runner.plan.around_train_iter) == (on[-1:] == [6])  # removed as soon as the range is over


def test_the_mode_that_was_there_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[bool, bool]] = []
    runner = toy_runner(max_epochs=1, batches=3, custom_hooks=[AutogradAnomalyHook(1, 2)], val=None)

    @runner.on("before_backward")
    def look(runner: Runner) -> None:
        modes.append((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))

    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        runner.train()
        modes.append((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))
    assert modes == [(True, False), (True, True), (True, False), (True, False)]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RuntimeError("mine")])
def test_errors_of_user_code_are_not_changed(error: BaseException) -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        raise error

    with pytest.raises(type(error)) as failed:
        toy_runner(step=step, custom_hooks=[AutogradAnomalyHook()]).train()
    assert failed.value is error
    assert notes_of(error) == []


def test_training_is_the_same_to_the_bit_also_twice_and_without_default_hooks() -> None:
    names = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
    without = toy_runner(max_epochs=2)
    without.train()
    for defaults in (None, dict.fromkeys(names)):
        having = toy_runner(max_epochs=1, custom_hooks=[AutogradAnomalyHook(1, 7)], default_hooks=defaults)
        having.train()
        having.train_loop.max_epochs = 2
        having.train()
        for ours, theirs in zip(having.model.parameters(), without.model.parameters(), strict=True):
            assert ours.equal(theirs)
        assert having.val() == without.val()


def test_a_resumed_run_equals_an_uninterrupted_one_and_its_range_counts_from_the_beginning(tmp_path: Path) -> None:
    def trained(folder: str, epochs: int, **parts: Any) -> Runner:
        hooks = [AutogradAnomalyHook(begin=5)]
        runner = toy_runner(max_epochs=epochs, custom_hooks=hooks, work_dir=tmp_path / folder, **parts)
        runner.on("before_backward")(lambda runner: on.append(torch.is_anomaly_enabled()))
        runner.train()
        return runner

    on: list[bool] = []
    whole = trained("whole", 2)
    assert on == [False] * 5 + [True] * 3
    on.clear()
    trained("broken", 1)
    resumed = trained("broken", 2, resume=True)
    assert on == [False] * 5 + [True] * 3
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert ours.equal(theirs)
    assert resumed.hub.get_scalar("train/loss").last() == whole.hub.get_scalar("train/loss").last()


def test_registered_while_training_it_takes_part_from_the_next_iteration_on() -> None:
    runner = toy_runner(max_epochs=1, step=root_of_nothing)
    runner.train_loop.step = lambda model, batch: (
        root_of_nothing(model, batch) if runner.iter == 2 else cross_entropy(model, batch)
    )

    @runner.on("after_train_iter")
    def add(runner: Runner) -> None:
        if runner.iter == 0:
            runner.register_hook(AutogradAnomalyHook())

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        error = failing(runner)
    assert exit_code_of(error) == 4
    assert notes_of(error) == ["AutogradAnomalyHook: torch's warning above names the line"]
    assert [str(warning.message)[:32] for warning in shown] == ["Error detected in SqrtBackward0."]


# ------------------------------------------------------------------------------------------------------ warnings


def test_other_warnings_are_shown_as_ever() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        warnings.warn("look out", UserWarning, stacklevel=1)
        return cross_entropy(model, batch)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        toy_runner(max_epochs=1, step=step, custom_hooks=[AutogradAnomalyHook()]).train()
    assert [str(warning.message) for warning in shown] == ["look out"]  # once, as Python shows it
    with pytest.raises(UserWarning, match="^look out\n"):
        toy_runner(max_epochs=1, step=step, custom_hooks=[AutogradAnomalyHook()]).train()


@pytest.mark.parametrize("action", ["ignore", "default", "error"])
def test_torchs_own_warning_is_kept_for_the_error_whatever_the_filters(
    action: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        error = failing(toy_runner(step=root_of_nothing, custom_hooks=[AutogradAnomalyHook()]))
    assert len(notes_of(error)) == 1
    assert shown == []
    assert "Error detected" not in capfd.readouterr().err


def test_the_warning_of_a_failure_that_the_step_deals_with_is_shown() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        if runner.iter == 1:
            with pytest.raises(RuntimeError):
                torch.autograd.grad(root_of_nothing(model, batch), list(model.parameters()))
        return cross_entropy(model, batch)

    runner = toy_runner(max_epochs=1, step=step, custom_hooks=[AutogradAnomalyHook()])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        runner.train()
    assert runner.iter == 4
    assert [str(warning.message)[:32] for warning in shown] == ["Error detected in SqrtBackward0."]


def test_an_operation_before_the_range_has_no_line() -> None:
    report = "Error detected in PowBackward0. No forward pass information available. Enable detect anomaly during ..."
    assert (
        describe(report)
        == "PowBackward0 failed; its line is unknown, because it was computed while anomaly detection was off"
    )


# ------------------------------------------------------------------------------------------------- constructing


def test_the_command_line_shows_the_line_and_ends_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("rooted_step.py").write_text(
        "from hookline.engine.steps import cross_entropy\n\n\ndef step(model, batch):\n"
        "    loss = cross_entropy(model, batch)\n    return loss + (loss * 0).sqrt() * 0\n"
    )
    words = [
        "train",
        "train.limit_batches=2",
        "train.step=rooted_step:step",
        "custom_hooks=[{type: AutogradAnomalyHook}]",
    ]
    monkeypatch.setattr(sys, "argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert capsys.readouterr().err.endswith(
        "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n"
        "in the step, epoch=0 iter=0 rank=0\n"
        "AutogradAnomalyHook: SqrtBackward0 failed; its forward pass is rooted_step.py:6, in step: "
        "return loss + (loss * 0).sqrt() * 0\n"
    )


def test_a_config_names_it_and_val_alone_does_nothing_with_it(tmp_path: Path) -> None:
    config = {
        "model": {"type": "Linear", "in_features": 4, "out_features": 2},
        "custom_hooks": [{"type": "AutogradAnomalyHook", "begin": 3, "end": 9, "check_nan": False}],
        "work_dir": str(tmp_path),
    }
    hook = next(hook for hook in Runner.from_config(config).hooks if isinstance(hook, AutogradAnomalyHook))
    assert (hook.begin, hook.end, hook.check_nan) == (3, 9, False)
    runner = toy_runner(custom_hooks=[AutogradAnomalyHook()])
    runner.on("before_val_iter")(lambda runner: seen.append(torch.is_anomaly_enabled()))
    seen: list[bool] = []
    runner.val()
    assert seen == [False] * len(toy_data(2))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"begin": -1}, "begin must be an int of at least 0, not -1"),
        ({"end": 0}, "end must be an int of at least 1, not 0"),
        ({"end": 2.5}, "end must be an int of at least 1, not 2.5"),
        ({"begin": 5, "end": 5}, "end must be greater than begin (5), not 5"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AutogradAnomalyHook(**parameters)
    assert str(refused.value) == f"AutogradAnomalyHook: {message}"


@pytest.mark.parametrize(("begin", "said"), [(7, True), (8, True), (5, False)])
def test_a_begin_that_is_never_reached_is_a_warning(begin: int, said: bool) -> None:
    runner = toy_runner(max_epochs=1, batches=7, custom_hooks=[AutogradAnomalyHook(begin=begin)])
    runner.train()
    message = (
        f"warning: AutogradAnomalyHook: begin={begin} needs {begin + 1} iterations, but this run has 7, so no "
        "iteration is checked; set begin to at most 6, or train longer"
    )
    assert (message in (runner.work_dir / "run.log").read_text()) == said
