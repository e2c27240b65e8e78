"""Schedulers in a config: `auto` lengths and warmup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hookline.config.editor_schema import SCHEDULES
from hookline.config.signature import signature_of
from hookline.plan.registry import SCHEDULERS
from tests.config.test_builder import build, optim_of, refused

if TYPE_CHECKING:
    from tests.config.conftest import Write


def test_the_run_knows_which_lengths_were_auto(mynet: Write) -> None:
    optim = optim_of(
        "optim.schedulers=["
        "{type: CosineAnnealingLR, T_max: auto},"
        "{type: SequentialLR, schedulers: [{type: ConstantLR}, {type: LinearLR, total_iters: auto}], milestones: [1],"
        " when: iter},"
        "{type: StepLR, step_size: 2}]"
    )
    assert [one.auto for one in optim.schedulers] == [{"T_max": 3}, {"schedulers.1.total_iters": 9}, {}]


def test_auto_is_the_length_of_one_process(mynet: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "3", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    runner = build("optim.schedulers=[{type: CosineAnnealingLR, T_max: auto, when: iter}]", "strategy=ddp")
    scheduled: Any = runner.optims.sole.schedulers[0]
    assert runner.train_loop.length == 1  # 10 samples, in batches of 4, in three processes
    assert (scheduled.scheduler.T_max, scheduled.auto) == (3, {"T_max": 3})


def test_auto_is_the_length_of_the_real_run_in_a_dry_run(mynet: Write) -> None:
    loop = build().train_loop
    loop.shorten(2)
    loop.shorten(1)
    assert (loop.total_iters, loop.planned.total_iters) == (1, 9)


# -- schedules by name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{type: cosine}", "Cosine when=None auto={'length': 9} length=9 warmup=0"),
        ("{type: cosine, warmup: 0.25}", "Cosine when=None auto={'length': 9} length=9 warmup=2"),
        ("{type: linear, warmup: 4, length: auto}", "Linear when=None auto={'length': 9} length=9 warmup=4"),
        ("{type: constant, warmup: 2, length: 30}", "Constant when=None auto={} length=30 warmup=2"),
        ("{type: wsd, when: epoch, decay: 1}", "WarmupStableDecay when=epoch auto={'length': 3} length=3 warmup=0"),
        ("{type: 'hookline.schedules:Cosine'}", "Cosine when=None auto={'length': 9} length=9 warmup=0"),
    ],
)
def test_schedules_have_names(mynet: Write, text: str, expected: str) -> None:
    (scheduled,) = optim_of(f"optim.schedulers=[{text}]").schedulers
    one: Any = scheduled.scheduler
    found = f"{type(one).__name__} when={scheduled.when} auto={scheduled.auto} length={one.length} warmup={one.warmup}"
    assert found == expected


def test_a_run_from_a_config_steps_per_iteration(mynet: Write) -> None:
    runner = build("optim.schedulers=[{type: linear}]", "optim.optimizer.lr=1.0")
    seen: list[float] = []
    runner.on("before_train_iter")(lambda runner: seen.append(runner.optim.learning_rates()[0]))
    runner.train()
    assert seen == pytest.approx([(9 - step) / 9 for step in range(9)])


def test_any_scheduler_can_have_a_warmup(mynet: Write) -> None:
    text = "[{type: StepLR, step_size: 2, gamma: 0.5, warmup: 0.4}]"
    runner = build(f"optim.schedulers={text}", "optim.optimizer.lr=1.0")
    seen: list[float] = []
    runner.on("before_train_iter")(lambda runner: seen.append(runner.optim.learning_rates()[0]))
    runner.train()
    assert seen == [0.2, 0.4, 0.6, 0.8, 1, 1, 0.5, 0.5, 0.5]
    assert [(one.when, one.auto) for one in runner.optims.sole.schedulers] == [("epoch", {}), ("iter", {})]


def test_a_warmup_counts_optimizer_steps_if_the_scheduler_does(mynet: Write) -> None:
    optim = optim_of(
        "optim.schedulers=[{type: CosineAnnealingLR, T_max: auto, when: step, warmup: 0.5}]", "optim.accumulate=2"
    )
    assert [(one.when, one.auto) for one in optim.schedulers] == [("step", {"T_max": 6}), ("step", {})]
    warmup: Any = optim.schedulers[1].scheduler
    assert warmup.asked == 3


def test_a_scheduler_with_its_own_warmup_gets_it(mynet: Write) -> None:
    mynet(
        "own.py",
        """
        from torch.optim.lr_scheduler import ConstantLR

        class Own(ConstantLR):
            def __init__(self, optimizer, warmup):
                self.given = warmup
                super().__init__(optimizer)
        """,
    )
    (scheduled,) = optim_of("optim.schedulers=[{type: 'own:Own', warmup: slow}]").schedulers
    assert scheduled.scheduler.given == "slow"  # type: ignore[attr-defined]  # the class above


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{type: cosine, warmup: 1.0}",
            "[0].warmup: warmup is 1.0, which is neither a share of the run, a number below 1 such as 0.05, nor a "
            "number of steps, an int such as 1; write one of these",
        ),
        (
            "{type: StepLR, step_size: 1, warmup: -5}",
            "[0].warmup: warmup must be a number of steps, an int of at least 0, or a share of the run, a number below "
            "1, not -5",
        ),
        (
            "{type: StepLR, step_size: 1, warmup: 1}, {type: StepLR, step_size: 1, warmup: 2}",
            "[1].warmup: an earlier scheduler has a warmup, which applies to all of them",
        ),
        (
            "{type: ChainedScheduler, schedulers: [{type: StepLR, step_size: 1, warmup: 2}]}",
            "[0].schedulers[0].warmup: a scheduler inside another one cannot have a warmup; give it to the outer",
        ),
        (
            "{type: cosine, min_lr: 0.1}",
            "[0].min_lr: Cosine has no parameter 'min_lr'; available: length, warmup, end_factor, type, when, monitor",
        ),
        ("{type: cosin}", "[0].type: unknown scheduler 'cosin'; did you mean 'cosine'?"),
    ],
)
def test_mistakes_have_a_place(mynet: Write, text: str, message: str) -> None:
    override = f"optim.schedulers=[{text}]"
    assert refused(override) == f"config: 1 error\n  override '{override}'  optim.schedulers{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{type: StepLR, step_size: 1, warmup: 10}",
            "[0].warmup: warmup is 10 iterations, but there are only 9; use a lower number, or a share of the run such "
            "as 0.05, which fits any length",
        ),
        (
            "{type: cosine, warmup: 5, when: epoch}",
            "[0]: Cosine: warmup is 5 epochs, but there are only 3; use a lower number, or a share of the run such as "
            "0.05, which fits any length; to count iterations, step at 'iter'",
        ),
    ],
)
def test_a_warmup_that_is_too_long_has_a_place(mynet: Write, text: str, message: str) -> None:
    override = f"optim.schedulers=[{text}]"
    assert refused(override) == f"override '{override}' optim.schedulers{message}"


def test_the_schema_for_editors_has_the_parameters_of_the_schedules() -> None:
    common = {"optimizer", "warmup"}
    found = {name: set(signature_of(SCHEDULERS.get(name)).parameters) - common for name in SCHEDULERS.builtin}
    assert found == {name: set(keys) for name, keys in SCHEDULES.items()}
