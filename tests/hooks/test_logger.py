"""LoggerHook, other than its interval: the experiment's name, the steps of evaluations, and copies of the logs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline.errors import ConfigError
from hookline.hooks import LoggerHook
from hookline.optim.optim import Optim
from hookline.rundir.log_copies import LogCopies
from hookline.testing import MemoryWriter, toy_model, toy_runner

if TYPE_CHECKING:
    from hookline import Runner


def run(folder: Path | None = None, *, logger: dict[str, Any], **parts: Any) -> Runner:
    runner = toy_runner(work_dir=folder, default_hooks={"logger": logger}, **parts)
    runner.train()
    return runner


def lines(path: Path) -> list[str]:
    return [line.split("  ", 1)[1] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("every", "after"), [(4, ["4", "8"]), (5, ["6"]), (1, ["2", "4", "6", "8"]), (9, [])])
def test_the_experiment_name_follows_the_first_record_after_its_interval(every: int, after: list[str]) -> None:
    runner = run(max_iters=8, val=None, logger={"interval": 2, "interval_exp_name": every}, experiment_name="mine")
    found = lines(runner.work_dir / "run.log")
    named = [found[number - 1] for number, line in enumerate(found) if line == "experiment mine"]
    assert [line.split("  ")[0] for line in named] == [f"iter {number}/8" for number in after]


@pytest.mark.parametrize(("by_epoch", "steps"), [(False, [4, 8, 8]), (True, [1, 2, 2])])
def test_records_of_evaluations_stand_at_iterations_or_at_epochs(by_epoch: bool, steps: list[int]) -> None:
    writer = MemoryWriter()
    runner = run(logger={"log_metric_by_epoch": by_epoch}, writers=[writer])
    runner.test()
    evaluated = [record for record in writer.records if "train/loss" not in record]
    assert [record["step"] for record in evaluated] == steps
    assert [record["epoch"] for record in evaluated] == [1, 2, 2]


def test_the_logs_are_copied_when_the_run_ends_and_again_after_a_test(tmp_path: Path) -> None:
    runner = run(tmp_path / "digits", logger={"out_dir": str(tmp_path / "all")})
    runner.test()
    target = tmp_path / "all" / "digits"
    assert sorted(path.name for path in target.iterdir()) == [
        *["events.jsonl", "hooks.json", "metrics.jsonl", "plan.txt", "run.log"]
    ]
    for path in target.iterdir():
        assert path.read_bytes() == (runner.work_dir / path.name).read_bytes()
    assert lines(target / "run.log")[-1].startswith("epoch 2  test  accuracy")


def test_the_logs_are_copied_also_when_the_run_fails_and_only_those_with_the_endings(tmp_path: Path) -> None:
    runner = toy_runner(
        work_dir=tmp_path / "run", default_hooks={"logger": {"out_dir": str(tmp_path / "all"), "out_suffix": (".log",)}}
    )
    runner.on("after_train_epoch")(lambda runner: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert [path.name for path in (tmp_path / "all" / "run").iterdir()] == ["run.log"]


def test_logs_that_are_not_kept_come_back_when_the_run_continues(tmp_path: Path) -> None:
    away: dict[str, Any] = {"out_dir": str(tmp_path / "all"), "keep_local": False, "interval": 2}
    whole = run(tmp_path / "whole" / "run", logger={"interval": 2}, max_epochs=2)
    whole.test()
    first = run(tmp_path / "run", logger=away, max_epochs=1)
    assert sorted(path.name for path in first.work_dir.iterdir()) == [
        *["epoch_1.pth", "last_checkpoint", "loss_bits.bin", "report.html"]
    ]
    second = run(tmp_path / "run", logger=away, max_epochs=2, resume=True)
    second.test()
    assert sorted(path.name for path in second.work_dir.iterdir()) == [
        *("epoch_1.pth", "epoch_2.pth", "last_checkpoint", "loss_bits.bin", "report.html")
    ]
    target = tmp_path / "all" / "run"
    assert without_times(target / "metrics.jsonl") == without_times(whole.work_dir / "metrics.jsonl")
    said = [line for line in lines(target / "run.log") if line.startswith(("saved", "resumed"))]
    assert said == [f"saved {first.work_dir}/epoch_1.pth", *said[1:2], f"saved {first.work_dir}/epoch_2.pth"]
    assert said[1] == f"resumed from {first.work_dir}/epoch_1.pth: epoch 1, iteration 4"


def without_times(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in record.items() if not name.endswith("time")} for record in records]


AWAY: dict[str, Any] = {"keep_local": False, "interval": 1}


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_kill_after_the_logs_were_fetched_loses_and_doubles_nothing(tmp_path: Path) -> None:
    logger = AWAY | {"out_dir": str(tmp_path / "all")}
    hooks = {"logger": logger, "checkpoint": {"interval": 1, "by_epoch": False}}

    def attempt(dies_at: int) -> None:
        runner = toy_runner(work_dir=tmp_path / "run", max_epochs=3, val=None, default_hooks=hooks, resume=True)
        runner.on("before_train_iter")(lambda runner: 1 // (runner.iter != dies_at))
        with pytest.raises(ZeroDivisionError) if dies_at < 12 else nullcontext():
            runner.train()

    attempt(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogCopies, "copy", lambda self, folder: None)  # as after a kill, nothing happens at the end
        attempt(9)
    attempt(99)
    assert steps(tmp_path / "all" / "run" / "metrics.jsonl") == list(range(1, 13))
    said = (tmp_path / "all" / "run" / "run.log").read_text().splitlines()
    assert [line.split("  ", 1)[1] for line in said if "  resumed" in line] == [
        f"resumed from {tmp_path}/run/iter_5.pth: epoch 1, iteration 5",
        f"resumed from {tmp_path}/run/iter_9.pth: epoch 2, iteration 9",
    ]


def test_training_again_continues_logs_that_are_kept_elsewhere(tmp_path: Path) -> None:
    logger = AWAY | {"out_dir": str(tmp_path / "all")}
    runner = run(tmp_path / "run", logger=logger, max_epochs=1, val=None)
    runner.train_loop.max_epochs = 2
    runner.train()
    assert steps(tmp_path / "all" / "run" / "metrics.jsonl") == list(range(1, 9))


def test_a_fresh_run_sets_the_copies_of_an_earlier_one_aside(tmp_path: Path) -> None:
    logger = AWAY | {"out_dir": str(tmp_path / "all")}
    for _ in range(2):
        run(tmp_path / "run", logger=logger, max_epochs=1, val=None)
    target = tmp_path / "all" / "run"
    assert steps(target / "metrics.jsonl") == steps(target / "old-1" / "metrics.jsonl") == [1, 2, 3, 4]


def test_why_a_run_failed_is_in_the_copy(tmp_path: Path) -> None:
    logger = AWAY | {"out_dir": str(tmp_path / "all")}
    runner = toy_runner(work_dir=tmp_path / "run", default_hooks={"logger": logger})
    runner.on("after_train_epoch")(lambda runner: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()
    text = (tmp_path / "all" / "run" / "run.log").read_text()
    assert "ZeroDivisionError: integer division or modulo by zero" in text


def test_a_failed_copy_is_reported_and_nothing_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "all").write_text("in the way")
    away: dict[str, Any] = {"out_dir": str(tmp_path / "all"), "keep_local": False, "out_suffix": (".log",)}
    runner = run(tmp_path / "run", logger=away)
    target = tmp_path / "all" / "run"
    assert caplog.messages == [f"{runner.work_dir}/run.log could not be copied to {target}: Not a directory"]
    assert (runner.work_dir / "run.log").exists()
    assert runner.iter == 8


def test_a_copy_onto_itself_is_refused(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run", default_hooks={"logger": {"out_dir": str(tmp_path)}})
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"LoggerHook: out_dir {tmp_path} would copy the logs of {tmp_path / 'run'} onto themselves"
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interval_exp_name": 0}, "LoggerHook: interval_exp_name must be an int of at least 1, not 0"),
        (
            {"keep_local": False},
            "LoggerHook: keep_local=False needs an out_dir, because otherwise no logs would be kept",
        ),
        ({"out_suffix": ".log"}, "LoggerHook: out_suffix must be a list of suffixes like '.log', not '.log'"),
        ({"out_suffix": [1]}, "LoggerHook: out_suffix must be a list of suffixes like '.log', not [1]"),
    ],
)
def test_invalid_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LoggerHook(**parameters)
    assert str(refused.value) == message


def test_values_recorded_now_and_then_are_not_lost_at_the_end() -> None:
    writer = MemoryWriter()
    runner = toy_runner(
        batches=5, max_epochs=1, val=None, writers=[writer], default_hooks={"logger": {"interval": 3}}
    )  # fmt: skip
    runner.on("after_train_iter", every=2)(lambda runner: runner.hub.update_scalar("train/rare", runner.iter + 1.0))
    runner.train()
    assert [record["step"] for record in writer.records] == [3, 5]
    assert [record["train/rare"] for record in writer.records] == [2.0, 4.0]
    assert "train/loss" not in writer.records[1]


def test_values_of_the_last_epoch_are_not_lost_if_the_last_iteration_was_logged() -> None:
    writer = MemoryWriter()
    runner = toy_runner(batches=2, max_epochs=2, val=None, writers=[writer], default_hooks={"logger": {"interval": 2}})
    runner.on("after_train_epoch")(lambda runner: runner.hub.update_scalar("train/rare", runner.epoch + 1.0))
    runner.train()
    assert [(record["step"], record.get("train/rare")) for record in writer.records] == [(2, None), (4, 1.0), (4, 2.0)]


def lines_of(runner: Runner) -> list[str]:
    text = (runner.work_dir / "run.log").read_text()
    return [line.partition("  ")[2] for line in text.splitlines() if "  val  " in line]


@pytest.mark.parametrize("interval", [1, 3, 10])
def test_the_line_of_a_validation_has_the_training_loss_of_its_epoch(interval: int, tmp_path: Path) -> None:
    logger = {"logger": {"interval": interval, "ignore_last": interval == 3}}
    runner = toy_runner(max_epochs=3, batches=4, work_dir=tmp_path, default_hooks=logger)
    runner.train()
    losses, accuracy = runner.hub.get_scalar("train/loss").last(), runner.hub.get_scalar("val/accuracy").last()
    assert lines_of(runner) == [
        f"epoch {n + 1}  val  accuracy {accuracy[n]:.4f}  train loss {sum(losses[4 * n : 4 * n + 4]) / 4:.4f}"
        for n in range(3)
    ]
    records = (tmp_path / "metrics.jsonl").read_text()
    assert "of the epoch" not in records


def test_a_validation_inside_an_epoch_is_shown_with_the_epoch_of_its_record(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=2, batches=4, work_dir=tmp_path)

    @runner.on("after_train_iter")
    def validate(runner: Runner) -> None:
        if runner.iter + 1 in (6, 8):
            runner.request_val()

    runner.train()
    lines = [line.split("  val  ")[0] for line in lines_of(runner)]
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(each["step"], each["epoch"]) for each in records if "val/accuracy" in each] == [(4, 1), (6, 2), (8, 2)]
    assert lines == ["epoch 1", "epoch 2", "epoch 2"]


def test_by_iterations_it_is_that_since_the_last_validation(tmp_path: Path) -> None:
    runner = toy_runner(max_iters=7, batches=4, work_dir=tmp_path, train={"val_interval": 3})
    runner.train()
    losses, accuracy = runner.hub.get_scalar("train/loss").last(), runner.hub.get_scalar("val/accuracy").last()
    means = [sum(losses[a:b]) / (b - a) for a, b in ((0, 3), (3, 6), (6, 7))]
    assert lines_of(runner) == [
        f"iter {step}  val  accuracy {value:.4f}  train loss {mean:.4f}"
        for step, value, mean in zip((3, 6, 7), accuracy, means, strict=True)
    ]


def test_a_resumed_run_shows_the_loss_of_the_whole_epoch(tmp_path: Path) -> None:
    whole = toy_runner(max_epochs=2, batches=4, work_dir=tmp_path / "whole", default_hooks={"logger": {"interval": 3}})
    whole.train()
    stopped = toy_runner(max_epochs=2, batches=4, work_dir=tmp_path / "run", default_hooks={"logger": {"interval": 3}})
    stopped.on("after_train_iter")(lambda runner: runner.stop("for now", for_now=True) if runner.iter == 5 else None)
    stopped.train()
    resumed = toy_runner(
        max_epochs=2, batches=4, work_dir=tmp_path / "run", resume=True, default_hooks={"logger": {"interval": 3}}
    )
    resumed.train()
    assert lines_of(resumed) == lines_of(whole)


def test_a_validation_alone_has_no_training_loss(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)
    runner.train()
    runner.val()
    assert lines_of(runner)[-1] == f"epoch 2  val  accuracy {runner.hub.get_scalar('val/accuracy').current():.4f}"


@pytest.mark.parametrize("options", [{}, {"clip_norm": 1.0}], ids=["", "with a number per update"])
def test_a_stop_inside_an_interval_with_a_skipped_micro_batch_leaves_the_records_of_one_run(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def cut(runner: Runner) -> None:
        if runner.iter == 7:
            runner.stop("cut")

    def train(name: str, stops: bool = False, resume: bool = False) -> list[dict[str, Any]]:
        model = toy_model()
        optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, **options)
        parts: dict[str, Any] = {"default_hooks": {"logger": {"interval": 4}}, "batches": 6, "val": None}
        runner = toy_runner(model=model, optim=optim, work_dir=tmp_path / name, resume=resume, **parts)
        runner.on("before_backward")(lambda runner: runner.skip_step("x") if runner.iter == 7 else None)
        if stops:
            runner.on("after_train_iter")(cut)
        runner.train()
        records = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        return [{key: value for key, value in record.items() if "time" not in key} for record in records]

    whole = train("whole")
    assert [record["step"] for record in whole if ("train/grad_norm" in record) == bool(options)] == [4, 10]
    stopped = train("stopped", stops=True)
    assert [list(record) for record in stopped[1:]] == ([["step", "epoch", "train/grad_norm"]] if options else [])
    assert train("stopped", resume=True) == whole
