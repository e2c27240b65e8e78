from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline.engine.steps import cross_entropy
from hookline.errors import NumericsError, exit_code_of
from hookline.plan.registry import DEFAULT_HOOKS
from hookline.state.finite import find_non_finite
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from torch import nn

    from hookline import Runner


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


@pytest.mark.parametrize("hooks", [{"logger": {"interval": 2}}, {"logger": None}])
def test_a_loss_that_is_not_a_number_ends_the_run_and_is_never_saved(hooks: dict[str, Any]) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * float("nan")

    runner = toy_runner(max_epochs=1, step=step, default_hooks=hooks)
    with pytest.raises(NumericsError, match="^the loss has become nan at iteration 1 ") as failed:
        runner.train()
    assert exit_code_of(failed.value) == 4
    assert checkpoints(runner.work_dir) == []


@pytest.mark.parametrize(
    "hooks",
    [
        {},
        {"logger": None},
        {"logger": None, "checkpoint": None},
        {"runtime_info": None, "logger": None},
        dict.fromkeys(DEFAULT_HOOKS),
    ],
)
def test_one_infinite_loss_ends_the_run_wherever_it_is_seen_first(
    hooks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest's workers have no script
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)

    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) + (float("inf") if runner.iter == 5 else 0)

    runner = toy_runner(max_epochs=2, step=step, default_hooks=hooks)
    with pytest.raises(NumericsError) as failed:
        runner.train()
    assert str(failed.value) == (
        "the loss has become inf at iteration 6 (epoch 2, batch 2 of 4), so training cannot continue; check the "
        "learning rate, the data and the precision, or skip such batches: CheckInvalidLossHook with policy: skip and "
        "interval: 1"
    )
    hint = f"to find the step, the module and the samples: hookline replay {runner.work_dir} --triage"
    assert failed.value.__notes__ == [hint]  # whoever noticed it is of no interest
    assert checkpoints(runner.work_dir) == ([] if "checkpoint" in hooks else ["epoch_1.pth"])


@pytest.mark.parametrize(
    ("length", "hooks", "where"),
    [
        ({"max_iters": 150}, {"logger": {"interval": 60}}, "at iteration 33"),  # noticed by the log of iteration 60
        ({"max_iters": 150}, dict.fromkeys(DEFAULT_HOOKS), "at iteration 33"),  # by the loop, at iteration 100
        ({"max_iters": 40}, dict.fromkeys(DEFAULT_HOOKS), "at iteration 33"),  # at the end
        ({"max_epochs": 10}, {"logger": None}, "at iteration 33 (epoch 9, batch 1 of 4)"),  # by a save
    ],
)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_iteration_where_it_began_is_named_wherever_it_is_noticed(
    length: dict[str, Any], hooks: dict[str, Any], where: str, accumulate: int
) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * (float("nan") if runner.iter == 32 else 1)

    runner = toy_runner(**length, step=step, default_hooks=hooks, accumulate=accumulate, val=None)
    with pytest.raises(NumericsError) as failed:
        runner.train()
    assert str(failed.value).startswith(f"the loss has become nan {where}, so training cannot continue; ")


def test_after_skipped_batches_the_iteration_is_a_limit() -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * (float("nan") if runner.iter == 2 else 1)

    runner = toy_runner(max_epochs=1, batches=8, step=step, default_hooks={"logger": {"interval": 8}})
    runner.on("before_train_iter")(lambda runner: runner.skip_step("no") if runner.iter == 4 else None)
    with pytest.raises(NumericsError, match=r"^the loss has become nan by iteration 4, so training"):
        runner.train()


def test_the_loss_of_a_batch_that_a_hook_leaves_out_is_not_recorded() -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * (float("nan") if runner.iter % 4 == 3 else 1)

    runner = toy_runner(max_epochs=2, step=step)

    @runner.on("before_backward")
    def leave_out(runner: Runner, outputs: dict[str, Any]) -> None:
        if outputs["loss"].isnan():
            runner.skip_step("the loss is not a number")

    runner.train()
    assert runner.updates == 6
    assert len(runner.hub.get_scalar("train/loss")) == 6


def test_a_step_that_updates_itself_and_returns_nothing_cannot_end_with_weights_that_are_not_numbers() -> None:
    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        optim.update(cross_entropy(model, batch) * float("nan"))

    runner = toy_runner(max_epochs=1, step=step, default_hooks=dict.fromkeys(DEFAULT_HOOKS))
    with pytest.raises(NumericsError, match="of the model became NaN or Inf by iteration 4, although") as failed:
        runner.train()
    assert exit_code_of(failed.value) == 4


def test_complex_weights_that_are_not_numbers_are_found() -> None:
    fine = torch.tensor([1 + 1j, 2 - 1j])
    odd = torch.tensor([1 + 1j, complex(0, float("nan"))])
    mask = torch.complex(torch.tensor([float("inf")]), torch.zeros(1))  # a buffer may have an Inf
    state = {"fine": fine, "fine_view": fine.conj(), "odd": odd, "odd_view": odd.conj(), "mask": mask}
    assert find_non_finite(state, ["fine", "fine_view", "odd", "odd_view"]) == ["odd", "odd_view"]
    assert find_non_finite(state, list(state)) == ["odd", "odd_view", "mask"]
