"""`runner.val()` and `runner.test()` in a hook: an evaluation inside the run, which continues as before."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline import EvalLoop, Hook, Runner
from hookline.engine.steps import predict
from hookline.errors import HookError
from hookline.hooks import EMAHook, EmptyCacheHook, ProgressHook
from hookline.testing import toy_data, toy_model, toy_runner

POINTS = [
    *("before_train", "before_train_epoch", "before_train_iter", "after_train_iter", "after_train_epoch"),
    *("before_val", "after_val_epoch", "after_val", "after_train"),
]


class Evaluates(Hook):
    """Validates and tests at one point, unless it already does."""

    def __init__(self, point: str) -> None:
        self.point, self.evaluating = point, False
        self.found: list[Any] = []
        self.seen: list[bool] = []

    def at(self, runner: Runner, point: str) -> None:
        if point != self.point or self.evaluating:
            return
        self.evaluating = True
        before = self._facts(runner)
        self.found.append((runner.val(), runner.test()))
        self.seen.append(before == self._facts(runner))
        self.evaluating = False

    def _facts(self, runner: Runner) -> Any:
        modes = [module.training for module in runner.model.modules()]
        position = runner.position.state_dict() | {"validations": 0}
        return modes, torch.is_grad_enabled(), id(runner.data_batch), position, runner.val_loop.dataloader is None


for _point in POINTS:
    setattr(Evaluates, _point, lambda self, runner, _point=_point: self.at(runner, _point))


def model_with_dropout() -> nn.Sequential:
    first, second, third = toy_model().children()
    return nn.Sequential(first, second, nn.Dropout(0.2), third)


def weights(runner: Runner) -> list[float]:
    return [float(value) for parameter in runner.model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.parametrize("point", POINTS)
def test_the_run_continues_as_without_the_evaluation(point: str) -> None:
    plain = toy_runner(model=model_with_dropout(), custom_hooks=[EMAHook(momentum=0.1)])
    plain.train()
    hook = Evaluates(point)
    more: list[Hook] = [EMAHook(momentum=0.1), ProgressHook(), EmptyCacheHook(), hook]
    runner = toy_runner(model=model_with_dropout(), custom_hooks=more)
    runner.train()
    assert weights(runner) == weights(plain)
    assert hook.seen == [True] * len(hook.found)
    assert all(set(val) | set(test) == {"accuracy"} for val, test in hook.found)
    times = {"before_train": 1, "after_train": 1, "before_train_iter": 8, "after_train_iter": 8}.get(point, 2)
    assert (len(hook.found), runner.validations) == (times, 2 + times)


def test_it_evaluates_the_average_at_every_point() -> None:
    class Compares(Hook):
        def __init__(self) -> None:
            self.found: list[Any] = []
            self.evaluating = False

        def after_train_epoch(self, runner: Runner) -> None:
            self.compare(runner)

        def after_val(self, runner: Runner) -> None:
            if not self.evaluating:
                self.compare(runner)

        def before_test(self, runner: Runner) -> None:
            self.in_test = weights(runner)

        def compare(self, runner: Runner) -> None:
            self.evaluating = True
            raw = weights(runner)
            runner.val()
            runner.test()
            average = list(ema.averaged_state_dict().values())
            self.found.append(self.in_test == [float(value) for part in average for value in part.flatten()])
            assert weights(runner) == raw
            self.evaluating = False

    ema, hook = EMAHook(momentum=0.1, eval_both=True), Compares()
    toy_runner(custom_hooks=[ema, hook]).train()
    assert hook.found == [True] * 4


def test_its_metrics_are_recorded_and_its_best_checkpoint_is_saved(tmp_path: Path) -> None:
    hook = Evaluates("after_train_epoch")
    saving = {"checkpoint": {"save_best": "accuracy"}}
    runner = toy_runner(custom_hooks=[hook], work_dir=tmp_path, default_hooks=saving)
    runner.train()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [each["step"] for each in records if "val/accuracy" in each]
    assert steps == [4, 4, 8, 8]
    (best,) = tmp_path.glob("best_*")
    values = [val["accuracy"] for val, _ in hook.found]
    assert best.name == f"best_accuracy_iter_{4 * (1 + values.index(max(values)))}.pth"
    assert runner.hub.get_info("best_ckpt") == best.name


def test_a_best_value_inside_an_accumulation_window_is_not_saved(tmp_path: Path) -> None:
    class Once(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 0:
                runner.val()

    saving = {"checkpoint": {"save_best": "accuracy"}}
    toy_runner(max_epochs=1, accumulate=2, custom_hooks=[Once()], work_dir=tmp_path, default_hooks=saving).train()
    assert [path.name for path in tmp_path.glob("best_*")] == ["best_accuracy_epoch_1.pth"]
    assert (tmp_path / "run.log").read_text().count(
        "a new best value inside an accumulation window cannot be saved"
    ) == 1


@pytest.mark.parametrize("point", ["after_train_iter", "after_train_epoch", "after_val"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, point: str) -> None:
    def run(name: str, epochs: int, **more: Any) -> Runner:
        hooks = [EMAHook(momentum=0.1), Evaluates(point)]
        runner = toy_runner(
            model=model_with_dropout(), max_epochs=epochs, custom_hooks=hooks, work_dir=tmp_path / name, **more
        )
        runner.train()
        return runner

    straight = run("straight", 3)
    run("resumed", 1)
    resumed = run("resumed", 3, resume=True)
    assert weights(resumed) == weights(straight)
    assert resumed.position.state_dict() == straight.position.state_dict()
    assert resumed.hub.history("val/accuracy").values == straight.hub.history("val/accuracy").values


def test_a_failed_evaluation_that_a_hook_survives_leaves_the_weight_of_the_batch() -> None:
    class Survives(Hook):
        def __init__(self) -> None:
            self.seen: list[bool] = []
            self.evaluating = False

        def before_train_iter(self, runner: Runner) -> None:
            weight, self.evaluating = runner._host.current.weight, True
            with pytest.raises(ValueError, match="planned"):
                runner.val()
            self.evaluating = False
            self.seen.append(runner._host.current.weight is weight)

        def before_val_iter(self) -> None:
            if self.evaluating:
                raise ValueError("planned")

    hook = Survives()
    toy_runner(max_epochs=1, custom_hooks=[hook]).train()
    assert hook.seen == [True] * 4


class Endless(Hook):
    def after_val(self, runner: Runner) -> None:
        runner.val()


class Spoils(Hook):
    def after_val_iter(self, runner: Runner) -> None:
        runner.val()


class SpoilsForward(Hook):
    def around_forward(self, runner: Runner) -> Iterator[None]:
        if not runner.model.training:
            runner.val()
        yield


class SpoilsShared(Hook):
    def after_test_iter(self, runner: Runner) -> None:
        runner.val()


class Elsewhere(Hook):
    def after_train_iter(self, runner: Runner) -> None:
        errors: list[BaseException] = []

        def evaluate() -> None:
            try:
                runner.val()
            except HookError as error:
                errors.append(error)

        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()
        raise errors[0]


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (Endless, r"^runner.val\(\) was called inside 8 evaluations of hooks: a hook evaluates at a point of the"),
        (Spoils, r"^runner.val\(\) was called at after_val_iter, where it would discard the results of the batches so"),
        (
            SpoilsForward,
            r"^runner.val\(\) was called at around_forward, where it would discard the results of the batc",
        ),
        (Elsewhere, r"^runner.val\(\) was called in another thread than the loop, which uses the model; call runner."),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(hook: type[Hook], message: str) -> None:
    runner = toy_runner(max_epochs=1, custom_hooks=[hook()])
    with pytest.raises(HookError, match=message):
        runner.train()
    assert runner.model.training


class Count:
    """A metric that counts batches."""

    def reset(self) -> None:
        self.batches = 0

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.batches += 1

    def compute(self) -> int:
        return self.batches


@pytest.mark.parametrize("shared", [True, False])
def test_an_object_that_two_loops_share_is_not_reset_in_the_middle(shared: bool) -> None:
    one = Count()
    val, test = (EvalLoop(toy_data(2), predict, metrics=each) for each in (one, one if shared else Count()))
    runner = toy_runner(val=val, test=test, custom_hooks=[SpoilsShared()])
    if shared:
        with pytest.raises(HookError, match=r"^runner.val\(\) was called at after_test_iter, where it would discard"):
            runner.test()
    else:
        assert runner.test() == {"Count": 2}
