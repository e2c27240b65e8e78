"""Flags, modes and groups that hooks change in a compiled model: a run that was killed resumes exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Optim, Runner
from hookline.testing import toy_runner
from tests.state.test_module_flags import net

AFTER = 4
KILLED = (3, 7, 10)


def freeze(runner: Any) -> None:
    runner.model[0].requires_grad_(False)


def thaw(runner: Any) -> None:
    runner.model[0].requires_grad_(True)


def evaluate(runner: Any) -> None:
    runner.model[1].eval()


def add_group(runner: Any) -> None:
    runner.optim.optimizer.add_param_group({"params": list(runner.model[3].parameters()), "lr": 0.03})


ACTS: dict[str, Callable[[Any], None]] = {"freeze": freeze, "thaw": thaw, "mode": evaluate, "group": add_group}


class Acts(Hook):
    """Changes the model or the optimizer once."""

    def __init__(self, act: str) -> None:
        self.act = act

    def before_train_iter(self, runner: Runner) -> None:
        if runner.iter == AFTER:
            ACTS[self.act](runner)


class Dies(Hook):
    """Ends the run with an error, after which nothing is saved."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def before_train_iter(self, runner: Runner) -> None:
        if runner.iter == self.iteration:
            raise RuntimeError("killed")


def run(folder: Path, act: str, *hooks: Hook, compiled: Any, resume: bool = False) -> Runner:
    model = net()
    model[0].requires_grad_(act != "thaw")
    trained = model[:3] if act == "group" else model
    return toy_runner(
        model=model,
        optim=Optim(torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)),
        compile=compiled,
        custom_hooks=[Acts(act), *hooks],
        default_hooks={"checkpoint": {"by_epoch": False, "interval": 1, "max_keep_ckpts": 1}},
        max_iters=12,
        work_dir=folder,
        resume=resume,
    )


def check(folder: Path, act: str, killed: int, compiled: Any) -> dict[str, torch.Tensor]:
    """Check that a killed run resumes with the same bits. Return the weights."""
    whole = run(folder / "whole", act, compiled=compiled)
    whole.train()
    with pytest.raises(RuntimeError, match="killed"):
        run(folder / "killed", act, Dies(killed), compiled=compiled).train()
    resumed = run(folder / "killed", act, compiled=compiled, resume=True)
    resumed.train()
    expected = whole.model.state_dict()
    different = [name for name, value in resumed.model.state_dict().items() if not torch.equal(value, expected[name])]
    assert different == []
    return expected


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("act", ACTS)
def test_a_compiled_run_whose_hook_changes_the_model_resumes_exactly(tmp_path: Path, act: str, killed: int) -> None:
    compiled = check(tmp_path / "compiled", act, killed, {"backend": "aot_eager"})
    plain = run(tmp_path / "plain", act, compiled=False)
    plain.train()
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(compiled[name], value)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("act", ACTS)
def test_a_run_with_generated_kernels_resumes_exactly_too(tmp_path: Path, act: str) -> None:
    check(tmp_path, act, 7, compiled=True)
