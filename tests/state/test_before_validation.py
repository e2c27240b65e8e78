"""Validations that must not count: the trial batch before training, and a validation that a signal interrupts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Hook, Runner
from hookline.common import rng
from hookline.common.untouched import buffers_restored
from hookline.engine.metrics import accuracy
from hookline.engine.steps import predict
from hookline.errors import ConfigError
from hookline.testing import toy_data, toy_runner

BEST = {"checkpoint": {"save_best": "accuracy"}}


class Counts(nn.Module):
    """A model that counts its forward passes in evaluation mode, in a buffer and in its extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("newest", torch.zeros(8, 4))
        self.calls = 0

    def forward(self, inputs: Tensor) -> Any:
        """Count in evaluation mode, one buffer in place and the other by assignment."""
        if not self.training:
            self.seen += 1
            self.newest = inputs
            self.calls += 1
        return self.body(inputs)

    def get_extra_state(self) -> int:
        """Return the count."""
        return self.calls

    def set_extra_state(self, state: int) -> None:
        """Restore the count."""
        self.calls = state


class Remembers:
    """A metric with memory: its result is the number of validations so far."""

    def __init__(self) -> None:
        self.validations = 0

    def reset(self) -> None:
        """Begin a validation."""
        self.validations += 1

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Ignore the batch."""

    def compute(self) -> float:
        """Return the number of validations."""
        return float(self.validations)

    def state_dict(self) -> dict[str, int]:
        """Return the memory."""
        return {"validations": self.validations}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the memory."""
        self.validations = state["validations"]


def step(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return model(batch[0]), batch[1]


# -- the trial batch


def test_a_trial_batch_changes_no_buffer_and_no_extra_state() -> None:
    model = Counts()
    runner = toy_runner(model=model, max_epochs=2, default_hooks=BEST)
    runner.train()
    assert (int(model.state_dict()["seen"]), model.calls) == (4, 4)  # two batches in each of two validations


def test_a_trial_batch_does_not_count_for_a_metric_with_memory(tmp_path: Path) -> None:
    metrics = {"accuracy": accuracy, "number": Remembers()}
    val = EvalLoop(toy_data(2, seed=1), step, metrics=metrics)
    toy_runner(val=val, max_epochs=2, default_hooks=BEST, work_dir=tmp_path).train()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["val/number"] for record in records if "val/number" in record] == [1.0, 2.0]


def test_a_closure_with_memory_is_not_called_for_the_trial_and_its_name_is_still_known() -> None:
    def counting() -> Callable[..., float]:
        calls: list[int] = []

        def count(preds: Tensor, target: Tensor) -> float:
            calls.append(1)
            return float(len(calls))

        return count

    val = EvalLoop(toy_data(1, seed=1), step, metrics={"number": counting()})
    runner = toy_runner(val=val, max_epochs=1, default_hooks={"checkpoint": {"save_best": "number", "rule": "greater"}})
    runner.train()
    assert runner.hub.get_scalar("val/number").last() == [1.0]


def test_a_metric_without_a_copy_is_left_out_and_reported(tmp_path: Path) -> None:
    class Locked(Remembers):
        """A metric that cannot be copied."""

        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    val = EvalLoop(toy_data(2, seed=1), step, metrics={"number": Locked()})
    checkpoint = {"save_best": "number", "rule": "greater"}
    runner = toy_runner(val=val, max_epochs=2, default_hooks={"checkpoint": checkpoint}, work_dir=tmp_path)
    runner.train()
    assert runner.hub.get_scalar("val/number").last() == [1.0, 2.0]
    assert (
        "the trial of val before training leaves out metrics that cannot be copied, so their names are not "
        "checked: 'number' (TypeError: cannot pickle '_thread.lock' object)"
    ) in (tmp_path / "run.log").read_text()


def test_a_metric_that_copies_as_itself_does_not_take_part_in_the_trial(tmp_path: Path) -> None:
    class Same(Remembers):
        def __deepcopy__(self, memo: Any) -> Same:
            return self

    class Called:
        calls = 0

        def __deepcopy__(self, memo: Any) -> Called:
            return self

        def __call__(self, preds: Tensor, target: Tensor) -> float:
            self.calls += 1
            return 0.5

    called = Called()
    toy_runner(
        val=EvalLoop(toy_data(2), predict, metrics={"number": Same(), "called": called}),
        max_epochs=1,
        default_hooks={"checkpoint": {"save_best": "called", "rule": "greater"}},
        work_dir=tmp_path,
    ).train()
    assert called.calls == 2
    log = (tmp_path / "run.log").read_text()
    assert "so their names are not checked: 'number' (TypeError: its copy is the object itself)\n" in log
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["val/number"] == 1


def test_a_misspelled_metric_is_still_refused_before_training() -> None:
    val = EvalLoop(toy_data(2, seed=1), step, metrics={"accuracy": accuracy, "number": Remembers()})
    runner = toy_runner(val=val, default_hooks={"checkpoint": {"save_best": "acuracy", "rule": "greater"}})
    with pytest.raises(ConfigError, match="'acuracy'"):
        runner.train()


def test_a_buffer_that_grows_in_the_trial_is_a_cache_and_stays() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(1))
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("later", None)

    model, shared = Cache(), torch.ones(1)
    with buffers_restored(model):
        model.cache, model.later, model.count = torch.ones(3), torch.ones(2), shared
    assert [value.tolist() for value in model.state_dict().values()] == [[1.0] * 3, [0.0], [1.0] * 2]
    assert shared.tolist() == [1.0]  # what was assigned is not overwritten


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_that_was_made_with_expand_is_restored(persistent: bool) -> None:
    class Expanded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows: Tensor
            self.register_buffer("rows", torch.tensor([[1.0], [2.0]]).expand(2, 3), persistent=persistent)

    model = Expanded()
    before = model.rows
    with buffers_restored(model):
        model.rows[0, 0] = 5.0
        assert model.rows.tolist() == [[5.0] * 3, [2.0] * 3]
    assert model.rows is before
    assert before.tolist() == [[1.0] * 3, [2.0] * 3]
    assert before.stride() == (1, 0)


def test_an_extra_state_that_cannot_be_set_is_left_alone() -> None:
    class Version(nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            """Return a fact for readers. There is nothing to restore."""
            return {"version": 3}

    with buffers_restored(Version()):
        pass


# -- an interrupted validation


class Watches(Hook):
    """An observer that counts batches of validations."""

    role = "observer"

    def __init__(self) -> None:
        self.batches = 0

    def after_val_iter(self, runner: Runner) -> None:
        """Count and record."""
        self.batches += 1
        runner.hub.update_scalar("val/batches", self.batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the count."""
        self.batches = state["batches"]


def calls(runner: Runner) -> int:
    """Return the forward passes of the model in evaluation mode."""
    assert isinstance(runner.model, Counts)
    return runner.model.calls


def interrupted(folder: Path, at: int | None, resume: bool = False) -> Runner:
    """Return a run that gets a signal in the second batch of the validation after `at` iterations."""
    torch.manual_seed(0)
    model = Counts()

    def tell(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        if at == runner.iter and calls(runner) % 3 == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(model, batch)

    inputs = torch.cat([batch[0] for batch in toy_data(3, seed=1)])
    val = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=8, shuffle=True)
    runner = toy_runner(
        model=model,
        max_epochs=3,
        val=EvalLoop(val, tell, metrics={"accuracy": accuracy, "number": Remembers()}),
        custom_hooks=[Watches()],
        default_hooks={"checkpoint": {"interval": 0}, "timer": None},
        work_dir=folder,
        resume=resume,
    )
    return runner


def everything(runner: Runner) -> str:
    """Return the whole state as text."""
    states = {name: part.state_dict() for name, part in runner._host.contents.parts.items() if name != "writers"}
    return str(states)


@pytest.mark.parametrize("at", [4, 8, 12])
def test_fault_5_a_signal_in_a_validation_saves_at_once_and_the_run_resumes_exactly(tmp_path: Path, at: int) -> None:
    whole = interrupted(tmp_path / "whole", None)
    whole.train()
    runner = interrupted(tmp_path / "ended", at)
    with pytest.raises(SystemExit) as ended:
        runner.train()
    assert ended.value.code == 143
    assert (runner.iter, runner.validations, calls(runner)) == (at, at // 4 - 1, 3 * (at // 4 - 1) + 2)
    assert [path.name for path in (tmp_path / "ended").glob("*.pth")] == [f"epoch_{at // 4}.pth"]
    resumed = interrupted(tmp_path / "ended", None, resume=True)
    resumed.train()
    assert everything(resumed) == everything(whole)
    ours, theirs = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("ended", "whole"))
    assert [_untimed(line) for line in ours.splitlines()] == [_untimed(line) for line in theirs.splitlines()]


def _untimed(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if "time" not in name and name != "eta"}


def test_fault_5_averaged_weights_are_not_saved_as_the_weights_of_an_interrupted_validation(tmp_path: Path) -> None:
    """The scope of EMAHook puts averaged weights into the model during a validation."""

    def run(at: int | None, resume: bool = False) -> Runner:
        def tell(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            if runner.iter == at:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(model, batch)

        runner = toy_runner(
            max_epochs=2,
            val=EvalLoop(toy_data(3, seed=1), tell, metrics={"accuracy": accuracy}),
            custom_hooks=[{"type": "EMAHook", "momentum": 0.5}],
            default_hooks={"checkpoint": {"interval": 0}, "timer": None},
            work_dir=tmp_path / ("whole" if at is None and not resume else "ended"),
            resume=resume,
        )
        return runner

    whole = run(None)
    whole.train()
    with pytest.raises(SystemExit):
        run(4).train()
    resumed = run(None, resume=True)
    resumed.train()
    assert everything(resumed) == everything(whole)


@pytest.fixture(autouse=True)
def own_generators() -> Iterator[None]:
    """Leave the random generators as they were."""
    with rng.preserved():
        yield


def test_an_interrupted_validation_takes_back_what_hooks_did_at_its_begin(tmp_path: Path) -> None:
    """StatsMonitorHook writes before a validation what is left. Watches has no state before the first one."""

    class First(Watches):
        def state_dict(self) -> dict[str, Any]:
            return {"batches": self.batches} if self.batches else {}

    def run(at: int | None, resume: bool = False) -> list[list[str]]:
        def tell(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            if runner.iter == at and first.batches:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(model, batch)

        first, folder = First(), tmp_path / ("whole" if at is None and not resume else "ended")
        runner = toy_runner(
            max_iters=6,
            train={"val_interval": 3},
            val=EvalLoop(toy_data(3, seed=1), tell, metrics={"accuracy": accuracy}),
            custom_hooks=[first, {"type": "StatsMonitorHook", "step_log_freq": 3}],
            default_hooks={"checkpoint": {"interval": 0}, "timer": None, "logger": {"interval": 100}},
            work_dir=folder,
            resume=resume,
        )
        with pytest.raises(SystemExit) if at is not None else nullcontext():
            runner.train()
        assert first.batches == (2 if at is not None else 6)
        return [list(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    whole = run(None)
    run(3)
    assert run(None, resume=True) == whole


def test_an_interrupted_validation_saves_the_versions_of_the_modules(tmp_path: Path) -> None:
    """A module may convert its state when it is loaded without a version."""
    runner = interrupted(tmp_path, 8)
    with pytest.raises(SystemExit):
        runner.train()
    saved = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    assert saved["state_dict"]._metadata == {
        name: {"version": 1} for name in ("", "body", "body.0", "body.1", "body.2")
    }


def test_a_state_of_a_part_with_a_graph_does_not_disturb_validations(tmp_path: Path) -> None:
    """torch refuses to copy a tensor that was computed from parameters, but not to save it."""

    class Doubled:
        def state_dict(self) -> dict[str, Any]:
            return {"doubled": 2 * next(runner.model.parameters())}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    runner = interrupted(tmp_path, 8)
    runner.add_part("doubled", Doubled())
    with pytest.raises(SystemExit):
        runner.train()
    saved = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    assert saved["doubled"]["doubled"].tolist() == (2 * next(runner.model.parameters())).tolist()


def test_a_checkpoint_that_a_hook_writes_in_a_validation_has_the_state_of_that_moment(tmp_path: Path) -> None:
    runner = interrupted(tmp_path, None)

    @runner.on("after_val")
    def write(runner: Runner) -> None:
        if runner.iter == 8:
            runner.saving.write_now(tmp_path / "mine.pth", complete=False)

    runner.train()
    saved = torch.load(tmp_path / "mine.pth", weights_only=True)
    assert saved["position"]["validated_at"] == 8
    assert (int(saved["state_dict"]["seen"]), saved["hooks"]["Watches"]) == (6, {"batches": 6})
    assert saved["message_hub"]["scalars"]["val/number"]["values"].tolist() == [1.0, 2.0]
