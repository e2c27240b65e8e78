"""The numbers of optimizers and schedulers are checked when an Optim is created, however they were set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Optimizer, RMSprop, Rprop, lr_scheduler

from hookline import Optim
from hookline.errors import ConfigError
from hookline.testing import toy_runner

NAN, INF = float("nan"), float("inf")
LEAST = "must be a number of at least 0, not"


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(2))]


def groups(**options: float) -> list[dict[str, Any]]:
    return [{"params": parameters()}, {"params": parameters(), **options}]


def sgd() -> SGD:
    return SGD(parameters(), lr=0.1, momentum=0.9)


class Own(Optimizer):
    """An optimizer with an option that torch does not know."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, limit: float) -> None:
        super().__init__(params, {"lr": lr, "limit": limit})


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda: SGD(parameters(), lr=NAN), f"SGD: lr {LEAST} nan"),
        (lambda: SGD(parameters(), lr=INF), f"SGD: lr {LEAST} inf"),
        (lambda: SGD(parameters(), lr=torch.tensor(NAN)), f"SGD: lr {LEAST} nan"),
        (lambda: SGD(parameters(), lr=0.1, momentum=NAN), f"SGD: momentum {LEAST} nan"),
        (lambda: SGD(parameters(), lr=0.1, dampening=NAN), "SGD: dampening must be a number, not nan"),
        (lambda: SGD(parameters(), lr=0.1, weight_decay=INF), f"SGD: weight_decay {LEAST} inf"),
        (lambda: Adam(parameters(), eps=INF), f"Adam: eps {LEAST} inf"),
        (lambda: RMSprop(parameters(), alpha=INF), "RMSprop: alpha must be a number, not inf"),
        (lambda: Own(parameters(), lr=NAN, limit=1), f"Own: lr {LEAST} nan"),
        (
            lambda: SGD(groups(lr=-1), lr=0.1),
            f"SGD: lr of parameter group 1 {LEAST} -1",
        ),
    ],
)
def test_an_optimizer_with_a_number_that_makes_no_sense_is_refused(
    optimizer: Callable[[], Optimizer], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer())
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: SGD(parameters(), lr=0.0),
        lambda: AdamW(parameters(), lr=torch.tensor(0.1), fused=True),
        lambda: Adafactor(parameters()),  # has a negative number and a None among its options
        lambda: Rprop(parameters()),
        lambda: Own(parameters(), lr=0.1, limit=INF),
    ],
)
def test_numbers_that_make_sense_are_accepted(optimizer: Callable[[], Optimizer]) -> None:
    made = optimizer()
    assert Optim(made).optimizer is made


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (lambda o: lr_scheduler.ExponentialLR(o, NAN), f"ExponentialLR: gamma {LEAST} nan"),
        (lambda o: lr_scheduler.ExponentialLR(o, -1), f"ExponentialLR: gamma {LEAST} -1"),
        (lambda o: lr_scheduler.StepLR(o, 0), "StepLR: step_size must be a number above 0, not 0"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 0), "CosineAnnealingLR: T_max must be a number above 0, not 0"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 5, -1.0), f"CosineAnnealingLR: eta_min {LEAST} -1.0"),
        (lambda o: lr_scheduler.PolynomialLR(o, power=INF), f"PolynomialLR: power {LEAST} inf"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=NAN), f"ReduceLROnPlateau: factor {LEAST} nan"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, min_lr=-1), f"ReduceLROnPlateau: default_min_lr {LEAST} -1"),
        (lambda o: lr_scheduler.OneCycleLR(o, NAN, 10), f"SGD: lr {LEAST} nan"),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, NAN), f"CyclicLR: max_lrs {LEAST} nan"),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, NAN)], milestones=[3]
            ),
            f"ExponentialLR: gamma {LEAST} nan",
        ),
    ],
)
def test_a_scheduler_with_a_number_that_makes_no_sense_is_refused(
    scheduler: Callable[[Optimizer], Any], message: str
) -> None:
    optimizer = sgd()
    made = scheduler(optimizer)
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, schedulers=[made])
    assert str(refused.value) == message


def test_schedulers_that_make_sense_are_accepted() -> None:
    makers: list[Callable[[Optimizer], Any]] = [
        lambda o: lr_scheduler.StepLR(o, 3),
        lambda o: lr_scheduler.MultiStepLR(o, [1, 2]),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 3),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: lr_scheduler.LinearLR(o, total_iters=0),
        lambda o: lr_scheduler.OneCycleLR(o, 0.1, 10),
        lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0),
        lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="max"),
        lambda o: lr_scheduler.LambdaLR(o, lambda epoch: -1.0 if epoch else 1.0),
        lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 1)]),
    ]
    for make in makers:
        optimizer = sgd()
        made = make(optimizer)
        assert Optim(optimizer, schedulers=[made]).schedulers[0].scheduler is made


def test_a_run_with_a_bare_optimizer_is_refused_before_training() -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(ConfigError, match=r"^SGD: lr must be a number of at least 0, not nan$"):
        toy_runner(model=model, optim=SGD(model.parameters(), lr=NAN))


def test_a_tensor_on_another_device_or_of_another_kind_is_left_alone() -> None:
    optimizer = sgd()
    optimizer.param_groups[0]["mask"] = Tensor([1.0, NAN])
    assert Optim(optimizer).optimizer is optimizer
