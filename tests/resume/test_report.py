from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, LRScheduler

from hookline import Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.errors import ConfigError, StorageError
from hookline.hooks import EMAHook
from hookline.optim.scheduled import Scheduled
from hookline.rundir.journal import read
from hookline.rundir.states import state_of
from hookline.schedules import Cosine
from hookline.steps import cross_entropy
from hookline.testing import toy_model, toy_runner


class Rates(Hook):
    """Keeps the learning rate of every iteration."""

    role = "observer"

    def __init__(self) -> None:
        self.rates: list[float] = []

    def before_train_iter(self, runner: Runner) -> None:
        self.rates.append(runner.optims.sole.learning_rates()[0])


class StopAt(Hook):
    """Ends the run for now after this many iterations."""

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter + 1 == self.at:
            runner.stop("enough for today", for_now=True)


def run(
    folder: Path,
    epochs: int,
    *,
    lr: float = 0.1,
    momentum: float = 0.9,
    schedule: str = "torch",
    stop: int = 10**6,
    accumulate: int = 1,
    hooks: Any = (),
    **parts: Any,
) -> tuple[Runner, list[float]]:
    """Train with a cosine that is as long as the run, and return the runner and the rate of every iteration."""
    model, rates = toy_model(), Rates()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    schedulers: list[Any] = []
    if schedule == "torch":
        schedulers = [Scheduled(CosineAnnealingLR(optimizer, epochs * 4), "iter", None, {"T_max": epochs * 4})]
    elif schedule == "own":
        schedulers = [Cosine(optimizer, warmup=2)]
    elif schedule == "restarts":
        schedulers = [Scheduled(CosineAnnealingWarmRestarts(optimizer, epochs * 4), "iter", None, {"T_0": epochs * 4})]
    runner = toy_runner(
        model=model,
        optim=Optim(optimizer, schedulers, accumulate=accumulate),
        max_epochs=epochs,
        work_dir=folder,
        custom_hooks=[rates, StopAt(stop), *hooks],
        **parts,
    )
    runner.train()
    return runner, rates.rates


def report(folder: Path) -> list[str]:
    """Return the lines of the last report in the log."""
    lines = [line[21:] for line in (folder / "run.log").read_text().splitlines()]
    start = max(number for number, line in enumerate(lines) if line.startswith("resumed from"))
    end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith("  "))
    return [line.strip() for line in lines[start + 1 : end]]


HOOK = "hook StopAt: checkpoint at=6, config at=1000000: the config wins"
LENGTH = 'max_epochs: checkpoint 2, config 4: the config wins; to use the checkpoint\'s: keep="max_epochs=checkpoint"'


RISES, IS_0 = "the rate rises again after its end", "the rate is 0 after its end"


@pytest.mark.parametrize(
    ("schedule", "name", "so"),
    [
        ("torch", "CosineAnnealingLR): checkpoint T_max=8, config T_max=16", RISES),
        ("own", "Cosine): checkpoint length=8, config length=16", IS_0),
    ],
)
def test_a_run_that_is_extended_asks_how_an_auto_schedule_continues(
    tmp_path: Path, schedule: str, name: str, so: str
) -> None:
    _, before = run(tmp_path, 2, stop=6, schedule=schedule)
    rate = store.read(tmp_path / "iter_6.pth", sealed=True)["optimizer"]["param_groups"][0]["lr"]
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, 4, schedule=schedule, resume=True)
    assert str(refused.value) == (
        f"{tmp_path / 'iter_6.pth'}: the length of training has changed (max_epochs 2 -> 4), and so has the length of "
        "a schedule with 'auto'; decide how the learning rate continues:\n"
        f"  schedule ({name}\n"
        f'  keep="schedule=checkpoint"  to continue the old curve, which keeps its length ({so})\n'
        f'  keep="schedule=config"  to stretch the rest of the curve: the rate continues from {rate:g} without a jump, '
        "and the curve ends with the new length\n"
        "  nothing was loaded"
    )
    assert refused.value.exit_code == 2
    assert len(before) == 6


def several(folder: Path, epochs: int, auto: str, stop: int = 10**6, **parts: Any) -> Runner:
    """Train with two optims with a cosine each; those of the optims in `auto` are as long as the run."""
    model = toy_model()
    optims = {}
    for name, layer, lr in zip("gd", [model[0], model[2]], [0.1, 0.05], strict=True):
        optimizer = torch.optim.SGD(layer.parameters(), lr=lr)
        length = epochs * 4 if name in auto else 8
        schedule = CosineAnnealingLR(optimizer, length)
        lengths = {"T_max": length} if name in auto else {}
        optims[name] = Optim(optimizer, [Scheduled(schedule, "iter", None, lengths)])

    def step(model: torch.nn.Module, batch: Any, optim: dict[str, Optim]) -> torch.Tensor:
        for each in optim.values():
            loss = cross_entropy(model, batch)
            each.update(loss)
        return loss

    runner = toy_runner(
        model=model, step=step, optim=optims, max_epochs=epochs, work_dir=folder, custom_hooks=[StopAt(stop)], **parts
    )
    runner.train()
    return runner


def test_a_question_about_one_optim_shows_only_its_rate(tmp_path: Path) -> None:
    several(tmp_path, 2, "d", stop=6)
    rates = store.read(tmp_path / "iter_6.pth", sealed=True)["optimizer"]
    rate = rates["d"]["param_groups"][0]["lr"]
    with pytest.raises(ConfigError) as refused:
        several(tmp_path, 4, "d", resume=True)
    assert str(refused.value).splitlines()[1:] == [
        "  schedule (CosineAnnealingLR) of optim 'd': checkpoint T_max=8, config T_max=16",
        f'  keep="schedule=checkpoint"  to continue the old curve, which keeps its length ({RISES})',
        f'  keep="schedule=config"  to stretch the rest of the curve: the rate continues from {rate:g} without a jump, '
        "and the curve ends with the new length",
        "  nothing was loaded",
    ]
    several(tmp_path, 4, "d", stop=7, resume=True, keep="schedule=config")
    assert report(tmp_path)[0] == (
        "schedule (CosineAnnealingLR) of optim 'd': checkpoint T_max=8, config T_max=16: the config wins, the rate "
        f"continues from {rate:g} without a jump, and the curve ends with the new length; to use the checkpoint's: "
        'keep="schedule=checkpoint"'
    )


def test_a_question_about_several_optims_shows_the_rate_of_each(tmp_path: Path) -> None:
    several(tmp_path, 2, "gd", stop=6)
    rates = store.read(tmp_path / "iter_6.pth", sealed=True)["optimizer"]
    with pytest.raises(ConfigError) as refused:
        several(tmp_path, 4, "gd", resume=True)
    goes_on = "without a jump, and the curve ends with the new length"
    assert str(refused.value).splitlines()[1:] == [
        "  schedule (CosineAnnealingLR) of optim 'g': checkpoint T_max=8, config T_max=16",
        "  schedule (CosineAnnealingLR) of optim 'd': checkpoint T_max=8, config T_max=16",
        f'  keep="schedule=checkpoint"  to continue the old curve, which keeps its length ({RISES})',
        '  keep="schedule=config"  to stretch the rest of the curve:',
        f"    optim 'g': the rate continues from {rates['g']['param_groups'][0]['lr']:g} {goes_on}",
        f"    optim 'd': the rate continues from {rates['d']['param_groups'][0]['lr']:g} {goes_on}",
        "  nothing was loaded",
    ]


@pytest.mark.parametrize("schedule", ["torch", "own"])
def test_a_stretched_schedule_is_continuous_ends_with_the_run_and_resumes_exactly(
    tmp_path: Path, schedule: str
) -> None:
    run(tmp_path / "whole", 2, stop=6, schedule=schedule)
    run(tmp_path / "parts", 2, stop=6, schedule=schedule)
    rate = store.read(tmp_path / "parts" / "iter_6.pth", sealed=True)["optimizer"]["param_groups"][0]["lr"]
    whole, rates = run(tmp_path / "whole", 4, schedule=schedule, resume=True, keep="schedule=config")
    assert report(tmp_path / "whole")[0].endswith(
        f"the config wins, the rate continues from {rate:g} without a jump, and the curve ends with the new length; to "
        'use the checkpoint\'s: keep="schedule=checkpoint"'
    )
    assert rates[0] == rate
    assert sorted(rates, reverse=True) == rates
    assert whole.optims.sole.learning_rates()[0] == pytest.approx(0.0, abs=1e-12)
    run(tmp_path / "parts", 4, schedule=schedule, resume=True, keep="schedule=config", stop=11)
    again, rest = run(tmp_path / "parts", 4, schedule=schedule, resume=True)  # nothing to decide any more
    assert report(tmp_path / "parts") == [HOOK.replace("6", "11", 1)]
    assert rest == rates[5:]
    assert str(again.model.state_dict()) == str(whole.model.state_dict())


def test_a_run_can_be_stretched_twice_and_shortened(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6)
    run(tmp_path, 4, resume=True, keep="schedule=config", stop=10)
    _, rates = run(tmp_path, 3, resume=True, keep="schedule=config", stop=11)
    assert report(tmp_path)[0].startswith("schedule (CosineAnnealingLR): checkpoint T_max=16, config T_max=12: the con")
    shortened, rest = run(tmp_path, 3, resume=True)
    assert sorted([*rates, *rest], reverse=True) == [*rates, *rest]
    assert shortened.optims.sole.learning_rates()[0] == pytest.approx(0.0, abs=1e-12)


def test_the_old_curve_is_continued_if_the_checkpoint_wins_and_this_is_asked_once(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6)
    _, rates = run(tmp_path, 4, resume=True, keep={"schedule": "checkpoint"}, stop=10)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler: LRScheduler = CosineAnnealingLR(optimizer, 8)
    expected = []
    for _ in range(16):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == expected[6:10]
    _, rest = run(tmp_path, 4, resume=True)
    assert rest == expected[10:]
    assert report(tmp_path)[0] == (
        "schedule (CosineAnnealingLR): checkpoint T_max=8, config T_max=16: the checkpoint wins; to use the config's: "
        'keep="schedule=config"'
    )
    with pytest.raises(ConfigError, match="decide how the learning rate continues"):
        run(tmp_path, 5, resume=True)


def test_a_run_that_keeps_its_length_has_nothing_to_decide(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole", 2)
    run(tmp_path, 2, stop=6)
    again, _ = run(tmp_path, 4, resume=True, keep="max_epochs=checkpoint")
    assert report(tmp_path) == [
        'max_epochs: checkpoint 2, config 4: the checkpoint wins; to use the config\'s: keep="max_epochs=config"',
        HOOK,
    ]
    assert (again.max_epochs, again.iter) == (2, 8)
    assert str(again.model.state_dict()) == str(whole.model.state_dict())


def test_a_run_that_is_already_longer_than_the_config_has_nothing_to_decide(tmp_path: Path) -> None:
    run(tmp_path, 3)
    again, _ = run(tmp_path, 2, resume=True)
    assert again.iter == 12
    assert "training is already finished" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize(("schedule", "who", "so"), [("torch", "CosineAnnealingLR", RISES), ("own", "Cosine", IS_0)])
def test_a_finished_curve_at_rate_0_cannot_be_stretched(tmp_path: Path, schedule: str, who: str, so: str) -> None:
    run(tmp_path, 2, schedule=schedule)
    why = f"the curve is at its end, so the rate of {who} would stay at 0, and nothing would be trained"
    restart = f"  to begin a new curve with these weights, start a new run with load_from={tmp_path / 'epoch_2.pth'}"
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, 4, schedule=schedule, resume=True)
    assert str(refused.value).splitlines()[2:] == [
        f'  keep="schedule=checkpoint"  to continue the old curve, which keeps its length ({so})',
        f'  keep="schedule=config"  to stretch the rest of the curve: not possible: {why}',
        restart,
        "  nothing was loaded",
    ]
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, 4, schedule=schedule, resume=True, keep="config", lr=0.2)
    assert str(refused.value).splitlines() == [
        f'keep="schedule=config" is not possible: {why}; nothing was loaded',
        restart,
        f'  to continue the old curve ({so}): keep="schedule=checkpoint"',
    ]


def test_a_finished_curve_at_another_rate_says_that_its_rate_stays(tmp_path: Path) -> None:
    def train(epochs: int, **parts: Any) -> None:
        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optim = Optim(optimizer, [Cosine(optimizer, end_factor=0.5)])
        toy_runner(model=model, optim=optim, max_epochs=epochs, work_dir=tmp_path, **parts).train()

    train(2)
    with pytest.raises(ConfigError) as refused:
        train(4, resume=True)
    assert str(refused.value).splitlines()[2:] == [
        '  keep="schedule=checkpoint"  to continue the old curve, which keeps its length (the rate stays the same '
        "after its end)",
        '  keep="schedule=config"  to stretch the rest of the curve: the curve is at its end, so the rate stays at '
        "0.05",
        f"  to begin a new curve with these weights, start a new run with load_from={tmp_path / 'epoch_2.pth'}",
        "  nothing was loaded",
    ]


def test_a_schedule_without_a_curve_cannot_be_stretched(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6, schedule="restarts")
    why = "the rate of CosineAnnealingWarmRestarts is not a function of its step, so there is no curve to stretch"
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, 4, schedule="restarts", resume=True)
    assert f'\n  keep="schedule=config"  to stretch the rest of the curve: not possible: {why}\n' in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, 4, schedule="restarts", resume=True, keep="config")
    assert str(refused.value) == (
        f'keep="schedule=config" is not possible: {why}; nothing was loaded\n'
        '  to continue the old curve: keep="schedule=checkpoint"'
    )
    again, _ = run(tmp_path, 4, schedule="restarts", resume=True, keep="schedule=checkpoint")
    assert again.iter == 16


@pytest.mark.parametrize("schedule", ["torch", "own", "none"])
def test_the_learning_rate_of_the_config_scales_the_schedule_and_keeps_the_momentum(
    tmp_path: Path, schedule: str
) -> None:
    _, straight = run(tmp_path / "straight", 2, schedule=schedule)
    run(tmp_path, 2, stop=6, schedule=schedule)
    found = run(tmp_path, 2, schedule=schedule, lr=0.05, resume=True)[0]
    assert report(tmp_path) == [
        'lr: checkpoint 0.1, config 0.05: the checkpoint wins; to use the config\'s: keep="lr=config"',
        HOOK,
    ]
    assert found.plan.entries
    (tmp_path / "epoch_2.pth").unlink()
    again, rates = run(tmp_path, 2, schedule=schedule, lr=0.05, resume=True, keep="lr=config", stop=7)
    assert rates == pytest.approx([rate / 2 for rate in straight[6:7]])
    state = again.optims.sole.optimizer.state_dict()["state"]
    assert float(state[0]["momentum_buffer"].abs().sum()) > 0
    _, rest = run(tmp_path, 2, schedule=schedule, lr=0.05, resume=True)  # the config's rate is the run's rate by now
    assert report(tmp_path) == [HOOK.replace("6", "7", 1)]
    assert rest == pytest.approx([rate / 2 for rate in straight[7:]])


def test_other_options_of_the_optimizer_can_come_from_the_config(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6)
    run(tmp_path, 2, momentum=0.5, resume=True, stop=7)
    assert report(tmp_path)[0] == (
        "optimizer: checkpoint momentum=0.9, config momentum=0.5: the checkpoint wins; to use the config's: "
        'keep="optimizer=config"'
    )
    kept, _ = run(tmp_path, 2, momentum=0.5, resume=True, keep="optimizer=config")
    assert kept.optims.sole.optimizer.param_groups[0]["momentum"] == 0.5


def test_the_windows_of_the_checkpoint_can_be_kept(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6, schedule="none", accumulate=2)
    again, _ = run(tmp_path, 2, schedule="none", accumulate=4, resume=True, keep="accumulate=checkpoint")
    assert again.optims.sole.accumulate == 2
    assert again.optims.sole.updates == 4


def test_differences_are_also_in_resume_json_until_nothing_differs(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6, schedule="none")
    run(tmp_path, 4, schedule="none", resume=True, hooks=[EMAHook()], keep="lr=config", stop=7)
    found = json.loads((tmp_path / "resume.json").read_text())
    assert [found[key] for key in ("checkpoint", "epoch", "iter")] == [str(tmp_path / "iter_6.pth"), 1, 6]
    assert [(each["key"], each["checkpoint"], each["config"], each["winner"]) for each in found["differences"]] == [
        ("max_epochs", 2, 4, "config"),
        ("hooks", {"at": 6}, {"at": 7}, "config"),
        ("hooks", None, "EMAHook", "fresh"),
    ]
    assert found["unused"] == ["keep lr=config has no effect: lr does not differ"]
    assert report(tmp_path)[-1] == "keep lr=config has no effect: lr does not differ"
    run(tmp_path, 4, schedule="none", resume=True, hooks=[EMAHook()], stop=7)
    assert not (tmp_path / "resume.json").exists()
    assert report(tmp_path) == []


def test_a_choice_without_a_checkpoint_has_no_effect(tmp_path: Path) -> None:
    run(tmp_path, 1, resume=True, keep="config")
    assert (
        f"there is no checkpoint in {tmp_path} yet: starting from scratch; keep config has no effect\n"
        in (tmp_path / "run.log").read_text()
    )


def test_a_hook_that_joins_before_training_gets_its_state_although_it_was_reported_as_dropped(tmp_path: Path) -> None:
    run(tmp_path, 1, schedule="none", hooks=[EMAHook()])

    class Adds(Hook):
        def before_train(self, runner: Runner) -> None:
            runner.register_hook(EMAHook())

    run(tmp_path, 2, schedule="none", resume=True, hooks=[Adds()])
    assert "hook EMAHook: only in the checkpoint, so it is dropped, with its state" in report(tmp_path)
    text = (tmp_path / "run.log").read_text()
    assert "  hook EMAHook has joined this run, so its state was restored after all\n" in text


def test_a_preview_loads_and_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6)
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir() if path.is_file())
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    schedulers = [Scheduled(CosineAnnealingLR(optimizer, 16), "iter", None, {"T_max": 16})]
    runner = toy_runner(model=model, optim=Optim(optimizer, schedulers), max_epochs=4, work_dir=tmp_path, resume=True)
    weights = str(model.state_dict())
    with pytest.raises(ConfigError, match="decide how the learning rate continues"):
        runner.preview_resume()
    found = runner.preview_resume(decided=False)
    assert str(found).splitlines()[:2] == [
        f"a resume continues from {tmp_path / 'iter_6.pth'}: epoch 1, iteration 6",
        '  lr: checkpoint 0.1, config 0.2: the checkpoint wins; to use the config\'s: keep="lr=config"',
    ]
    assert found is not None
    assert [each.winner for each in found.differences] == ["checkpoint", "undecided", "config", "dropped", "dropped"]
    assert (runner.iter, str(model.state_dict())) == (0, weights)
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir() if path.is_file()) == before
    empty = toy_runner(work_dir=tmp_path / "none", resume=True)
    assert empty.preview_resume() is None
    with pytest.raises(ConfigError, match=r"^preview_resume needs a resume: Runner\(\.\.\., resume=True\)$"):
        toy_runner().preview_resume()


def test_in_a_checkpoint_of_an_earlier_version_the_scheduler_tells_the_length(tmp_path: Path) -> None:
    run(tmp_path, 2, stop=6)
    path = tmp_path / "iter_6.pth"
    checkpoint = store.read(path, sealed=True)
    del checkpoint["meta"]["asked"]
    store.write(checkpoint, path, Note(6, 1, True))
    with pytest.raises(ConfigError, match=r"CosineAnnealingLR\): checkpoint T_max=8, config T_max=16\n"):
        run(tmp_path, 4, resume=True)
    again, _ = run(tmp_path, 4, resume=True, keep="schedule=config")
    assert again.optims.sole.learning_rates()[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("lr", {"": ["0.1"]}), ("max_epochs", -1), ("schedules", {"": [{"auto": {"T_max": 1.5}}]}),
     ("schedules", {"": [{"when": "never"}]}), ("hooks", []), ("parts", [3]), ("options", {"": [1]})],
)  # fmt: skip
def test_odd_facts_in_a_checkpoint_are_refused(tmp_path: Path, fact: str, value: Any) -> None:
    run(tmp_path, 2, stop=6)
    path = tmp_path / "iter_6.pth"
    checkpoint = store.read(path, sealed=True)
    checkpoint["meta"]["asked"][fact] = value
    store.write(checkpoint, path, Note(6, 1, True))
    with pytest.raises(StorageError) as refused:
        run(tmp_path, 2, resume=True)
    assert str(refused.value) == (f"{path} cannot be used: meta['asked']['{fact}'] is not of the type that a run saves")


def test_parameters_of_hooks_that_were_built_by_name_are_compared_with_their_defaults(tmp_path: Path) -> None:
    freeze = {"type": "FreezeHook", "patterns": "0.*", "until_epoch": 1}
    run(tmp_path, 1, schedule="none", hooks=[freeze])
    run(tmp_path, 3, schedule="none", hooks=[{**freeze, "until_epoch": 2, "norm_stats": True}], resume=True)
    assert report(tmp_path)[1:2] == [
        "hook FreezeHook: checkpoint until_epoch=1, config until_epoch=2: the config wins (its state continues from "
        "the checkpoint)"
    ]


def test_a_refused_resume_leaves_everything_about_the_run_in_its_folder_as_it_was(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    names = ["config.yaml", "events.jsonl", "hooks.json", "last_checkpoint", "loss_bits.bin", "metrics.jsonl"]
    names += ["plan.txt", "report.html"]
    (tmp_path / "config.yaml").write_text("lr: 0.1\n")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    wider = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    runner = toy_runner(
        model=wider, max_epochs=2, work_dir=tmp_path, resume=True, config={"lr": 1}, custom_hooks=[Rates()]
    )
    for _ in range(2):  # the second call must not start from scratch either
        with pytest.raises(StorageError, match="does not fit this run; nothing was loaded"):
            runner.train()
        assert {name: (tmp_path / name).read_bytes() for name in names} == before
    assert state_of(tmp_path).name == "finished"
    assert "ended: " in (tmp_path / "run.log").read_text()


def test_a_resume_that_fails_for_another_reason_is_in_the_journal(tmp_path: Path) -> None:
    class Failing(Hook):
        def after_load_checkpoint(self, runner: Runner) -> None:
            raise ValueError("no")

    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    with pytest.raises(ValueError, match="no"):
        toy_runner(max_epochs=2, work_dir=tmp_path, resume=True, custom_hooks=[Failing()]).train()
    kinds = [event["kind"] for event in read(tmp_path)]
    assert kinds == ["start", "save", "validation", "end", "start", "failure", "end"]
    assert state_of(tmp_path).text == "ValueError: no"


def log_line(folder: Path) -> str:
    lines = [line for line in (folder / "run.log").read_text().splitlines() if "already finished" in line]
    return lines[-1].partition("; ")[2]


def test_a_finished_run_says_what_keeps_it_from_training_longer(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=True).train()
    assert log_line(tmp_path) == "to train longer, increase max_epochs"
    toy_runner(max_epochs=6, work_dir=tmp_path, resume=True, keep="checkpoint").train()
    assert log_line(tmp_path) == (
        'max_epochs is 2 as in the checkpoint, not 6; to change that, use keep="max_epochs=config"'
    )
    toy_runner(max_epochs=1, work_dir=tmp_path, resume=True).train()
    assert log_line(tmp_path) == "max_epochs is only 1"
