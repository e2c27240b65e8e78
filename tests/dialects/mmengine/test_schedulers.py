"""Schedulers: their names, construction and resuming. test_side_by_side compares their values with the real package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine.optim import (
    ConstantLR,
    LinearLR,
    MultiStepLR,
    OptimWrapper,
    OptimWrapperDict,
    StepLR,
    _ParamScheduler,
    build_param_schedulers,
    scheduler,
)
from hookline.dialects.mmengine.registry import PARAM_SCHEDULERS
from hookline.errors import ConfigError, exit_code_of
from tests.dialects.mmengine.parts import VAL, runner_of


def sgd(kind: type[torch.optim.Optimizer] = torch.optim.SGD, **more: Any) -> torch.optim.Optimizer:
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    options: Any = {"lr": 0.1, **more}
    return kind([{"params": [first]}, {"params": [second], "lr": 0.02}], **options)  # type: ignore[arg-type]


#: These tests step schedulers without an optimizer that steps before.
out_of_order = pytest.mark.filterwarnings("ignore:.* before optimizer.step:UserWarning")


# All schedulers that need no metric, with their required settings.
PARAMETERS: dict[str, dict[str, Any]] = {
    "Constant": {"factor": 0.25},
    "CosineAnnealing": {"T_max": 5},
    "CosineRestart": {"periods": [4, 6], "restart_weights": [1, 0.5], "eta_min": 0},
    "Exponential": {"gamma": 0.9},
    "Linear": {},
    "MultiStep": {"milestones": [2, 4, 4]},
    "OneCycle": {"eta_max": 0.3, "total_steps": 20},
    "Poly": {},
    "Step": {"step_size": 3},
}


@out_of_order
@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_scheduler_resumes_from_its_state(kind: str) -> None:
    parameters = {**PARAMETERS[kind], "begin": 1, "end": 15}
    never_stopped = getattr(scheduler, f"{kind}LR")(sgd(), **parameters)
    before, after = sgd(), sgd()
    first = getattr(scheduler, f"{kind}LR")(before, **parameters)
    for _ in range(7):
        never_stopped.step()
        first.step()
    second = getattr(scheduler, f"{kind}LR")(after, **parameters)
    after.load_state_dict(before.state_dict())
    second.load_state_dict(first.state_dict())
    for _ in range(12):
        never_stopped.step()
        second.step()
        assert second.get_last_value() == never_stopped.get_last_value()


def test_a_scheduler_that_steps_before_its_optimizer_is_reported_once() -> None:
    for replaced in (False, True):
        optimizer = sgd()
        made = StepLR(optimizer, step_size=3)
        if replaced:
            optimizer.step = lambda: None  # type: ignore[method-assign,assignment]
            optimizer.step()
        with pytest.warns(UserWarning, match=r"^StepLR\.step\(\) was called before optimizer\.step\(\), or"):
            made.step()
        made.step()
    optimizer = sgd()
    made = StepLR(optimizer, step_size=3)
    optimizer.step()
    made.step()


@out_of_order
def test_factors_of_zero_return_to_the_initial_value() -> None:
    for made in (ConstantLR(sgd(), factor=0.0, end=3), LinearLR(sgd(), start_factor=0.0, end=3)):
        values = [made.get_last_value()[0]]
        for _ in range(2):
            made.step()
            values.append(made.get_last_value()[0])
        assert values in ([0.0, 0.0, 0.1], [0.0, 0.05, 0.1])


def test_all_names_are_registered() -> None:
    kinds = [*PARAMETERS, "ReduceOnPlateau"]
    for kind in kinds:
        for ending in ("LR", "ParamScheduler", *(() if kind == "OneCycle" else ("Momentum",))):
            assert PARAM_SCHEDULERS.get(f"{kind}{ending}") is getattr(scheduler, f"{kind}{ending}")


def test_wrong_parameters_are_refused_by_name() -> None:
    wrapper = OptimWrapper(sgd())
    with pytest.raises(TypeError, match=r"StepLR has no parameter 'stepsize'; did you mean 'step_size'\?"):
        build_param_schedulers(wrapper, {"type": "StepLR", "stepsize": 3})
    with pytest.raises(ValueError, match=r"^StepLR: end must be greater than begin, but begin=4 and end=2$"):
        StepLR(sgd(), 3, begin=4, end=2)
    with pytest.raises(ConfigError, match=r"^LinearLR: start_factor must be between 0 and 1, not 2$"):
        LinearLR(sgd(), start_factor=2)
    with pytest.raises(KeyError, match=r"^StepLR: last_step=3 continues an earlier schedule, but parameter group 0"):
        StepLR(sgd(), 3, last_step=3)
    with pytest.raises(TypeError, match=r"^StepLR needs an optimizer or an OptimWrapper, not a int$"):
        StepLR(3, 3)
    with pytest.raises(ValueError, match=r"^LinearMomentum needs an optimizer with a momentum or betas, but Adagrad"):
        scheduler.LinearMomentum(sgd(torch.optim.Adagrad))
    with pytest.raises(ConfigError, match=r"^param_scheduler has schedulers for an unknown optimizer 'disc'; "):
        build_param_schedulers(OptimWrapperDict(gen=wrapper), {"disc": {"type": "StepLR", "step_size": 1}})


def test_a_custom_scheduler_defines_its_values() -> None:
    class HalfLR(scheduler.lr_scheduler.LRSchedulerMixin, _ParamScheduler):
        def _get_value(self) -> list[float]:
            return [base / 2 for base in self.base_values]

    assert HalfLR(sgd()).get_last_value() == [0.05, 0.01]


def test_the_config_of_a_run_becomes_schedulers_that_its_optim_steps() -> None:
    wrapper = OptimWrapper(sgd())
    config: list[dict[str, Any]] = [
        {"type": "LinearLR", "start_factor": 0.5, "by_epoch": True, "end": 2, "convert_to_iter_based": True},
        {"type": "MultiStepLR", "milestones": [2]},
        {"type": "ExponentialLR", "gamma": 0.9, "by_epoch": False},
        {"type": "ReduceOnPlateauLR", "monitor": "loss"},
    ]
    built = build_param_schedulers(wrapper, config, epoch_length=5, max_epochs=3, max_iters=15)
    assert [(type(each).__name__, each.begin, each.end, each.by_epoch) for each in built] == [
        ("LinearLR", 0, 10, False),
        ("MultiStepLR", 0, 3, True),
        ("ExponentialLR", 0, 15, False),
        ("ReduceOnPlateauLR", 0, 3, True),
    ]
    assert [(each.scheduler, each.when) for each in wrapper.schedulers] == list(
        zip(built, ["iter", "epoch", "iter", "val"], strict=True)
    )
    assert config[0]["convert_to_iter_based"] is True
    assert build_param_schedulers(wrapper, None) == []


def test_several_optims_have_separate_or_common_schedulers() -> None:
    wrappers = OptimWrapperDict(gen=OptimWrapper(sgd()), disc=OptimWrapper(sgd()))
    same = build_param_schedulers(wrappers, {"type": "StepLR", "step_size": 1})
    assert {name: [type(each) for each in found] for name, found in same.items()} == {"gen": [StepLR], "disc": [StepLR]}
    own = build_param_schedulers(wrappers, {"gen": {"type": "MultiStepLR", "milestones": [1]}})
    assert {name: [type(each) for each in found] for name, found in own.items()} == {"gen": [MultiStepLR], "disc": []}


@pytest.mark.parametrize(
    ("options", "needed"),
    [({"total_steps": 8}, 7), ({"total_steps": 3, "begin": 2, "end": 6}, 3), ({"total_steps": 6, "begin": 3}, 4)],
)
def test_a_cycle_that_lasts_until_training_ends_is_trained_and_a_shorter_one_is_refused(
    tmp_path: Path, options: dict[str, Any], needed: int
) -> None:
    cycle = {"type": "OneCycleLR", "eta_max": 0.1, "by_epoch": False, **options}
    runner = runner_of(tmp_path / "exact", without=VAL, param_scheduler=cycle)
    runner.train()
    scheduler: Any = runner.optim_wrapper.schedulers[0].scheduler
    assert (runner.iter, scheduler.last_step) == (8, needed)
    runner = runner_of(tmp_path / "short", without=VAL, param_scheduler={**cycle, "total_steps": needed - 1})
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert (runner.iter, exit_code_of(refused.value)) == (0, 2)
    assert str(refused.value) == (
        f"OneCycleLR has {needed - 1} steps, but this run needs {needed}: it steps after every iteration. Set "
        f"total_steps to {needed}"
    )
