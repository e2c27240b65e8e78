"""Loops of a project, with their own run, run_epoch and run_iter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.registry import LOOPS
from hookline.dialects.mmengine.runner import BaseLoop, EpochBasedTrainLoop, IterBasedTrainLoop, ValLoop
from hookline.dialects.mmengine.runner.loops import _InfiniteDataloaderIterator
from hookline.errors import ConfigError
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import runner_of


class Recording(Hook):
    """Records every point, and where the counters and the modes are."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


for _name in Hook.stages:

    def _record(self: Any, runner: Any, *args: Any, _name: str = _name, **kwargs: Any) -> None:
        if "checkpoint" not in _name:
            self.seen.append((_name, runner.epoch, runner.iter, runner.model.training))

    setattr(Recording, _name, _record)


@LOOPS.register_module(force=True)
class OwnIter(EpochBasedTrainLoop):
    def run_iter(self, idx: int, data_batch: Any) -> None:
        self.calls = [*getattr(self, "calls", ()), idx]
        super().run_iter(idx, data_batch)


@LOOPS.register_module(force=True)
class OwnEpoch(EpochBasedTrainLoop):
    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        for idx, batch in enumerate(self.dataloader):
            self.run_iter(idx, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1


@LOOPS.register_module(force=True)
class OwnRun(IterBasedTrainLoop):
    def run(self) -> Any:
        self.runner.call_hook("before_train")
        self.runner.call_hook("before_train_epoch")
        while self._iter < self._max_iters:  # type: ignore[operator]  # it is known here
            self.runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            if self._iter % self.val_interval == 0 or self._iter == self._max_iters:
                self.runner.val_loop.run()
        self.runner.call_hook("after_train_epoch")
        self.runner.call_hook("after_train")
        return self.runner.model


@LOOPS.register_module(force=True)
class Twice(ValLoop):
    """Validates twice, and only passes its metrics to the hooks."""

    def run(self) -> None:  # type: ignore[override]  # as mmdet's TeacherStudentValLoop
        self.runner.call_hook("before_val")
        self.runner.call_hook("before_val_epoch")
        self.runner.model.eval()
        metrics: dict[str, Any] = {}
        for name in ("first", "second"):
            for idx, batch in enumerate(self.dataloader):
                self.run_iter(idx, batch)
            found = self.evaluator.evaluate(len(self.evaluator.metrics[0].results))
            metrics |= {f"{name}/{key}": value for key, value in found.items()}
        self.runner.call_hook("after_val_epoch", metrics=metrics)
        self.runner.call_hook("after_val")


@LOOPS.register_module(force=True)
class FromBase(BaseLoop):
    """Inherits from BaseLoop alone, and is written as loops of projects are."""

    def __init__(self, runner: Any, dataloader: Any, max_epochs: int) -> None:
        super().__init__(runner, dataloader)
        self._max_epochs, self._max_iters = max_epochs, max_epochs * len(self.dataloader)
        self._epoch = self._iter = 0

    @property
    def max_epochs(self) -> int:
        return self._max_epochs

    @property
    def epoch(self) -> int:
        return self._epoch

    def run(self) -> Any:
        self.runner.call_hook("before_train")
        while self._epoch < self._max_epochs:
            self.run_epoch()
            self.runner.val_loop.run()
        self.runner.call_hook("after_train")
        return self.runner.model

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        for idx, batch in enumerate(self.dataloader):
            self.run_iter(idx, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1

    def run_iter(self, idx: int, batch: Any) -> None:
        self.runner.call_hook("before_train_iter", batch_idx=idx, data_batch=batch)
        model: Any = self.runner.model
        outputs = model.train_step(batch, optim_wrapper=self.runner.optim_wrapper)
        self.runner.call_hook("after_train_iter", batch_idx=idx, data_batch=batch, outputs=outputs)
        self._iter += 1


@LOOPS.register_module(force=True)
class FromBaseByIters(FromBase):
    """The same by iterations, with the iterator that every training loop has."""

    def __init__(self, runner: Any, dataloader: Any, max_iters: int, val_interval: int) -> None:
        BaseLoop.__init__(self, runner, dataloader)
        self._max_iters, self.val_interval = max_iters, val_interval
        self.stop_training = False

    max_epochs = None  # type: ignore[assignment]

    def run(self) -> Any:
        self.runner.call_hook("before_train")
        self.runner.call_hook("before_train_epoch")
        while self._iter < self._max_iters and not self.stop_training:
            self.runner.model.train()
            self.run_iter(self._iter, next(self.dataloader_iterator))  # type: ignore[attr-defined]
            if self._iter % self.val_interval == 0 or self._iter == self._max_iters:
                self.runner.val_loop.run()
        self.runner.call_hook("after_train_epoch")
        self.runner.call_hook("after_train")


@LOOPS.register_module(force=True)
class OwnNames(FromBase):
    """Counts in attributes of its own, and shows them as `epoch` and `iter`."""

    def __init__(self, runner: Any, dataloader: Any, max_epochs: int) -> None:
        BaseLoop.__init__(self, runner, dataloader)
        self._max_epochs, self.rounds, self.steps = max_epochs, 0, 0

    epoch = property(lambda self: self.rounds)
    iter = property(lambda self: self.steps)

    def run(self) -> None:
        self.runner.call_hook("before_train")
        while self.rounds < self._max_epochs:
            self.runner.call_hook("before_train_epoch")
            self.runner.model.train()
            for idx, batch in enumerate(self.dataloader):
                self.run_iter(idx, batch)
            self.runner.call_hook("after_train_epoch")
            self.rounds += 1
            self.runner.val_loop.run()
        self.runner.call_hook("after_train")

    def run_iter(self, idx: int, batch: Any) -> None:
        self.runner.call_hook("before_train_iter", batch_idx=idx, data_batch=batch)
        model: Any = self.runner.model
        outputs = model.train_step(batch, optim_wrapper=self.runner.optim_wrapper)
        self.runner.call_hook("after_train_iter", batch_idx=idx, data_batch=batch, outputs=outputs)
        self.steps += 1


@LOOPS.register_module(force=True)
class EvalFromBase(BaseLoop):
    """Evaluates every batch twice, and returns its metrics."""

    def __init__(self, runner: Any, dataloader: Any, evaluator: Any) -> None:
        super().__init__(runner, dataloader)
        self.evaluator = runner.build_evaluator(evaluator)

    def run(self) -> Any:
        stage = "val" if self.runner.running == "train" else self.runner.running
        self.runner.call_hook(f"before_{stage}")
        self.runner.call_hook(f"before_{stage}_epoch")
        self.runner.model.eval()
        with torch.no_grad():
            for batch in self.dataloader:
                outputs = getattr(self.runner.model, f"{stage}_step")(batch)
                self.evaluator.process(data_samples=outputs, data_batch=batch)
        metrics = self.evaluator.evaluate(len(self.evaluator.metrics[0].results))
        metrics = {f"own/{name}": value for name, value in metrics.items()}
        self.runner.call_hook(f"after_{stage}_epoch", metrics=metrics)
        self.runner.call_hook(f"after_{stage}")
        return metrics


EPOCHS = {"max_epochs": 2}
ITERS = {"max_iters": 6, "val_interval": 4}


def trained(folder: Path, **options: Any) -> tuple[Any, list[Any]]:
    recording = Recording()
    default = {"checkpoint": {"type": "CheckpointHook", "by_epoch": options["train_cfg"].get("max_epochs") is not None}}
    default["checkpoint"]["interval"] = 1
    runner = runner_of(folder, custom_hooks=[recording], default_hooks=default, **options)
    runner.train()
    return runner, recording.seen


def assert_same_state(one: Any, other: Any) -> None:
    for mine, theirs in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    assert (one.epoch, one.iter) == (other.epoch, other.iter)


@pytest.mark.parametrize(
    ("own", "usual"),
    [
        ({"type": "OwnIter", **EPOCHS}, {"type": "EpochBasedTrainLoop", **EPOCHS}),
        ({"type": "OwnEpoch", **EPOCHS}, {"type": "EpochBasedTrainLoop", **EPOCHS}),
        ({"type": "OwnRun", **ITERS}, {"type": "IterBasedTrainLoop", **ITERS}),
        ({"type": "FromBase", **EPOCHS}, {"type": "EpochBasedTrainLoop", **EPOCHS}),
        ({"type": "OwnNames", **EPOCHS}, {"type": "EpochBasedTrainLoop", **EPOCHS}),
        ({"type": "FromBaseByIters", **ITERS}, {"type": "IterBasedTrainLoop", **ITERS}),
    ],
)
def test_a_loop_that_does_what_the_usual_one_does_trains_the_same(
    own: dict[str, Any], usual: dict[str, Any], tmp_path: Path
) -> None:
    mine, seen = trained(tmp_path / "own", train_cfg=own)
    theirs, expected = trained(tmp_path / "usual", train_cfg=usual)
    assert seen == expected
    assert_same_state(mine, theirs)
    names = sorted(path.name for path in (tmp_path / "usual").glob("*.pth"))
    assert sorted(path.name for path in (tmp_path / "own").glob("*.pth")) == names


@pytest.mark.parametrize(
    "own",
    [
        {"type": "OwnIter", **EPOCHS},
        {"type": "OwnEpoch", **EPOCHS},
        {"type": "OwnRun", **ITERS},
        {"type": "FromBase", **EPOCHS},
        {"type": "FromBaseByIters", **ITERS},
    ],
)
def test_it_resumes_to_the_same_bits(own: dict[str, Any], tmp_path: Path) -> None:
    whole, _ = trained(tmp_path / "whole", train_cfg=own)
    first = "epoch_1.pth" if "max_epochs" in own else "iter_4.pth"
    resumed, _ = trained(
        tmp_path / "again", train_cfg=own, load_from=os.fspath(tmp_path / "whole" / first), resume=True
    )
    assert_same_state(resumed, whole)


def test_run_iter_gets_every_batch_and_counts_one(tmp_path: Path) -> None:
    runner, _ = trained(tmp_path / "run", train_cfg={"type": "OwnIter", **EPOCHS})
    assert runner.train_loop.calls == [0, 1, 2, 3] * 2

    class Jumps(EpochBasedTrainLoop):
        def run_iter(self, idx: int, data_batch: Any) -> None:
            self._iter += 2

    with pytest.raises(
        ConfigError, match=r"Jumps.run_iter changed the number of iterations from 0 to 2; it must count"
    ):
        trained(tmp_path / "jumps", train_cfg={"type": Jumps, **EPOCHS})


def test_results_of_a_custom_val_loop_reach_the_hooks_and_the_log(tmp_path: Path) -> None:
    best = {"checkpoint": {"type": "CheckpointHook", "save_best": "second/accuracy", "rule": "greater"}}
    runner = runner_of(
        tmp_path / "run", train_cfg={"by_epoch": True, **EPOCHS}, val_cfg={"type": "Twice"}, default_hooks=best
    )
    runner.train()
    assert list((tmp_path / "run").glob("best_second_accuracy_epoch_*.pth"))
    assert list(runner.val()) == ["first/accuracy", "second/accuracy"]


def test_the_run_reports_what_stays_exact(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "hookline"):
        trained(tmp_path / "a", train_cfg={"type": "OwnIter", **EPOCHS})
        trained(tmp_path / "b", train_cfg={"type": "OwnEpoch", **EPOCHS}, val_cfg={"type": "Twice"})
        trained(tmp_path / "c", train_cfg={"type": "FromBase", **EPOCHS}, val_cfg={"type": "EvalFromBase"})
    assert [message for message in caplog.messages if " own " in message] == [
        "OwnIter trains with its own run_iter; saves and resumes are exact at every iteration",
        "OwnEpoch trains with its own run_epoch; saves, stops and resumes are exact between epochs only",
        "Twice evaluates with its own run; hooks around single iterations are not called",
        "FromBase trains with its own run, run_epoch and run_iter; saves, stops and resumes are exact between epochs "
        "only",
        "EvalFromBase evaluates with its own run; hooks around single iterations are not called",
    ]


def test_a_loop_from_base_loop_validates_and_tests(tmp_path: Path) -> None:
    best = {"checkpoint": {"type": "CheckpointHook", "save_best": "own/accuracy", "rule": "greater"}}
    own = {"type": "EvalFromBase"}
    runner = runner_of(
        tmp_path / "run",
        train_cfg={"type": "FromBase", **EPOCHS},
        val_cfg=own,
        test_dataloader=toy_data(2, seed=1),
        test_cfg=own,
        default_hooks=best,
    )
    loop: Any = runner.train_loop
    assert loop.run() is runner.model
    assert isinstance(runner.train_loop, FromBase)
    assert isinstance(runner.val_loop, EvalFromBase)
    assert (runner.epoch, runner.iter, runner.position.validations) == (2, 8, 2)
    assert list((tmp_path / "run").glob("best_own_accuracy_epoch_*.pth"))
    assert list(runner.val_loop.run()) == list(runner.test_loop.run()) == ["own/accuracy"]
    assert runner.val() == runner.test()


def test_a_loop_object_is_used_directly(tmp_path: Path) -> None:
    described = runner_of(tmp_path / "a", train_cfg={"type": "FromBase", **EPOCHS})
    given = runner_of(tmp_path / "b", train_cfg=EPOCHS)
    loop: Any = FromBase(given, toy_data(), 2)
    given._given["train"]["train_cfg"] = loop
    described.train()
    given.train()
    assert given.train_loop is loop
    assert_same_state(given, described)


def test_loops_that_cannot_work_are_refused_when_used(tmp_path: Path) -> None:
    class Endless(BaseLoop):
        def run(self) -> None:
            """Nothing says how long this trains."""

    runner = runner_of(tmp_path / "a", train_cfg={"type": Endless})
    with pytest.raises(
        ConfigError, match="train_cfg describes a Endless without max_epochs and max_iters, which hooks"
    ):
        runner.train()
    whole, _ = trained(tmp_path / "b", train_cfg={"type": "OwnNames", **EPOCHS})
    first = os.fspath(tmp_path / "b" / "epoch_1.pth")
    with pytest.raises(
        ConfigError, match="OwnNames cannot be resumed: the checkpoint is at epoch 1 and iteration 4, but"
    ):
        trained(tmp_path / "c", train_cfg={"type": "OwnNames", **EPOCHS}, load_from=first, resume=True)
    with pytest.raises(ConfigError, match="val_cfg describes a OwnNames, which is not an evaluation loop"):
        _ = runner_of(tmp_path / "d", val_cfg=whole.train_loop).val_loop


def test_a_custom_iterator_reads_pass_after_pass(tmp_path: Path) -> None:
    class OwnData(FromBaseByIters):
        def run(self) -> None:
            self.dataloader_iterator = _InfiniteDataloaderIterator(self.dataloader)
            super().run()

    usual, expected = trained(tmp_path / "usual", train_cfg={"type": "IterBasedTrainLoop", **ITERS})
    mine, seen = trained(tmp_path / "own", train_cfg={"type": OwnData, **ITERS})
    assert [each[2:] for each in seen] == [each[2:] for each in expected]
    for one, other in zip(mine.model.parameters(), usual.model.parameters(), strict=True):
        assert torch.equal(one, other)
    log = (tmp_path / "own" / "run.log").read_text(encoding="utf-8")
    assert log.count("OwnData reads its data itself: a resumed run starts a new pass over the data; to resume") == 1
