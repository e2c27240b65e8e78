"""States of hooks that could not be loaded are found before the first step, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner
from hookline.errors import HookError
from hookline.testing import toy_runner
from tests.distributed.alone import group_of_one


class Counts(Hook):
    def __init__(self) -> None:
        self.numbers: list[int] = [1]
        self.nested = {"inner": [1]}
        self.total = torch.ones(2)

    def before_train(self, runner: Runner) -> None:
        self.ready = True

    def after_train_iter(self, runner: Runner) -> None:
        self.numbers.append(runner.iter)

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": self.numbers, "inner": self.nested["inner"], "total": self.total}


def train(tmp_path: Path, hook: Hook) -> Runner:
    runner = toy_runner(work_dir=tmp_path, custom_hooks=[hook], max_epochs=1)
    runner.train()
    return runner


def test_a_hook_with_a_state_dict_but_no_load_state_dict_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(HookError) as refused:
        train(tmp_path, Counts())
    assert str(refused.value) == ("Counts has a state_dict but no load_state_dict, so its state could not be restored")
    assert list(tmp_path.glob("*.pth")) == []


def test_a_state_that_the_hook_cannot_load_is_refused_before_the_first_step(tmp_path: Path) -> None:
    class Misspells(Counts):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.numbers = state["number"]

    hook = Misspells()
    with pytest.raises(HookError) as refused:
        train(tmp_path, hook)
    assert str(refused.value) == (
        "Misspells cannot load the state that its state_dict returns, so no run could resume: KeyError: 'number'; "
        "correct its load_state_dict"
    )
    assert hook.numbers == [1]


def test_the_trial_leaves_the_hook_as_it_is_and_happens_where_a_resume_loads(tmp_path: Path) -> None:
    class Adds(Counts):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert self.ready  # after before_train, as in a resumed run
            self.numbers.extend(state["numbers"])
            self.nested["inner"].extend(state["inner"])
            self.total.add_(state["total"])
            self.loaded = True
            torch.rand(1)

    hook, plain = Adds(), toy_runner(max_epochs=1)
    runner = train(tmp_path, hook)
    plain.train()
    assert (hook.numbers, hook.nested, hook.total.tolist()) == ([1, 0, 1, 2, 3], {"inner": [1]}, [1, 1])
    assert not hasattr(hook, "loaded")
    ours, theirs = runner.model.state_dict(), plain.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_hook_that_is_known_only_during_training_is_not_refused(tmp_path: Path) -> None:
    class Later(Hook):
        def before_train_iter(self, runner: Runner) -> None:
            self.data = 1

        def state_dict(self) -> dict[str, Any]:
            return {"data": self.data} if hasattr(self, "data") else {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.data = state["data"]

    assert train(tmp_path, Later()).iter == 4


class KeepsWeights(Hook):
    """A hook whose state has a number, and sharded tensors from some iteration on."""

    def __init__(self, since: int = 0) -> None:
        self.since, self.count = since, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the number, and the newest weights."""
        kept = [{"weights": dict(self.runner.model.named_parameters())}] if self.runner.iter >= self.since else []
        return {"count": self.count, "kept": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the number."""
        self.count = state["count"]


@pytest.mark.parametrize(("since", "steps"), [(0, 0), (4, 4)])  # before the first step, or at the first save
def test_a_state_per_rank_with_sharded_tensors_is_refused_by_name_before_it_is_saved(
    tmp_path: Path, since: int, steps: int
) -> None:
    class PerRank(KeepsWeights):
        state_per_rank = True

    runner = toy_runner(strategy="fsdp", custom_hooks=[PerRank(since)], work_dir=tmp_path)
    with group_of_one(), pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        "PerRank has state_per_rank = True, but its state has sharded tensors, so the other values of all processes "
        "but the main one would be lost; move the tensors into another hook, or leave out state_per_rank if all "
        "processes have the same values"
    )
    assert runner.iter == steps
    assert not list(tmp_path.glob("*.dcp"))


def test_a_state_with_sharded_tensors_that_is_the_same_in_all_processes_is_saved(tmp_path: Path) -> None:
    with group_of_one():
        toy_runner(strategy="fsdp", custom_hooks=[KeepsWeights()], max_epochs=1, work_dir=tmp_path).train()
    assert [path.name for path in tmp_path.glob("*.dcp")] == ["epoch_1.dcp"]
