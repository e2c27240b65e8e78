"""The log buffer, and the loggers, inside a PeriodicLogger and as hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hookline.dialects.imix.engine.hooks import (
    HookBase,
    LogBufferStorage,
    LogBufferWriter,
    PeriodicLogger,
    get_log_buffer,
)
from hookline.errors import ConfigError, HookError, HooklineError

from .engines import engine_in


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"histograms": 0, "images": 0, "scalars": 0})
    found.Reload()
    return found


# ------------------------------------------------------------------------------------------------------ the buffer


def test_scalars_have_a_history_and_are_shown_smoothed_unless_told_otherwise() -> None:
    buffer = LogBufferStorage()
    for value in (1.0, 9.0, 2.0):
        buffer.put_scalar("loss", torch.tensor(value))
        buffer.put_scalar("lr", value, smoothing_hint=False)
    buffer.put_scalar("accuracy", 0.5, is_epoch=True)
    history = buffer.history("loss")
    assert (history.latest(), history.median(3), history.avg(2), history.global_avg()) == (2.0, 2.0, 5.5, 4.0)
    assert (history.values(), len(history)) == ([1.0, 9.0, 2.0], 3)
    assert buffer.latest_with_smoothing_hint(2) == {"loss": 5.5, "lr": 2.0, "accuracy": 0.5}
    assert buffer.latest() == {"loss": 2.0, "lr": 2.0, "accuracy": 0.5}
    assert list(buffer.histories()) == ["loss", "lr", "accuracy"]
    assert buffer.hub.get_scalar("train/loss").last() == [1.0, 9.0, 2.0]


def test_a_name_scope_stands_before_names() -> None:
    buffer = LogBufferStorage(keeps_images=True)
    with buffer.name_scope("head"):
        buffer.put_scalars(loss=1.0, other=2)
        buffer.put_histogram("weights", [1.0, 2.0])
    buffer.put_scalar("loss", 3.0)
    assert buffer.latest() == {"head/loss": 1.0, "head/other": 2, "loss": 3.0}
    assert [each.name for each in buffer.histograms] == ["head/weights"]


def test_a_name_that_nothing_is_recorded_under_is_refused_with_the_nearest() -> None:
    buffer = LogBufferStorage()
    buffer.put_scalar("loss", 1.0)
    with pytest.raises(KeyError) as caught:
        buffer.history("los")
    assert str(caught.value) == "nothing is recorded as 'los'; did you mean 'loss'?"
    with pytest.raises(HooklineError, match=r"^the scalar 'train/x' must be a number or a tensor with one element, no"):
        buffer.put_scalar("x", torch.ones(2))


def test_the_current_buffer_belongs_to_the_engine_that_trains(tmp_path: Path) -> None:
    found = []

    class Looks(HookBase):
        def before_train(self) -> None:
            found.append(get_log_buffer() is self.trainer.log_buffer)

    with pytest.raises(AssertionError, match=r"^get_log_buffer\(\) works only while an engine is training"):
        get_log_buffer()
    engine_in(tmp_path, custom_hooks=[Looks()]).train()
    assert found == [True]
    with pytest.raises(AssertionError):
        get_log_buffer()


# ----------------------------------------------------------------------------------------------------- the loggers


class Counts(HookBase):
    """Records the number of the iteration, after the loggers."""

    def after_train_iter(self) -> None:
        self.trainer.log_buffer.put_scalar("count", self.trainer.iter, smoothing_hint=False)


def test_records_of_the_default_loggers_by_epochs(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, batches=5, log_config={"period": 2}, custom_hooks=[Counts()])
    engine.train()
    found = lines(tmp_path / "metrics.json")
    assert [(each["iteration"], each["epoch"]) for each in found] == [(1, 0), (3, 0), (6, 1), (8, 1), (10, 1)]
    assert all(list(each) == sorted(each) for each in found)
    assert set(found[0]) == {"iteration", "epoch", "loss", "lr", "data_time", "iter_time", "count"}
    # A value recorded after the logger is in the next record, and the last value of an epoch is in the last record.
    assert [each.get("count") for each in found] == [0, 2, 5, 7, None]
    assert set(found[-1]) == {"iteration", "epoch", "epoch_time"}
    scalars = events(tmp_path / "runs")
    assert [event.step for event in scalars.Scalars("loss")] == [1, 3, 6, 8]
    assert [event.value for event in scalars.Scalars("lr")] == [pytest.approx(0.1)] * 4
    text = (tmp_path / "run.log").read_text()
    assert text.count("current_iter:") == 4
    line = next(line for line in text.splitlines() if "current_iter:6" in line)
    parts = line.partition("  ")[2].split(" \t ")
    assert parts[:5] == ["epoch:1", "2/5", "current_iter:6", "max_iter:10", "max_epoch:2"]
    assert [part.partition(":")[0] for part in parts[5:]] == ["loss", "lr", "load_data_time", "iter_time", "eta"]
    assert parts[6] == "lr:1.000000e-01"


def test_by_iterations_there_is_a_record_after_the_last_one(tmp_path: Path) -> None:
    engine_in(tmp_path, by_iter=True, max_iter=5, log_config={"period": 2}).train()
    assert [each["iteration"] for each in lines(tmp_path / "metrics.json")] == [1, 3, 4]
    assert "max_epoch" not in (tmp_path / "run.log").read_text()


def test_loggers_work_inside_a_custom_periodic_logger_and_as_hooks(tmp_path: Path) -> None:
    inside = {
        "type": "PeriodicLogger",
        "loggers": [{"type": "JSONLoggerHook", "json_file": str(tmp_path / "elsewhere" / "inside.json")}],
        "log_config_period": 2,
    }
    alone = [
        {"type": "JSONLoggerHook", "json_file": "alone.json", "window_size": 1, "level": "LOWEST"},
        {"type": "TensorboardLoggerHook", "log_dir": str(tmp_path / "board")},
        {"type": "CommonMetricLoggerHook"},
    ]
    hooks = [inside, Counts(), *alone]
    engine_in(tmp_path / "run", batches=4, total_epochs=1, log_config=None, custom_hooks=hooks).train()
    assert [each["iteration"] for each in lines(tmp_path / "elsewhere" / "inside.json")] == [1, 3, 4]
    assert not (tmp_path / "run" / "metrics.json").exists()
    # The default period is 10. A logger that is a hook uses the engine's period.
    assert [each["iteration"] for each in lines(tmp_path / "run" / "alone.json")] == [4]


def test_as_hooks_they_have_the_period_of_the_config(tmp_path: Path) -> None:
    alone = [
        {"type": "JSONLoggerHook", "json_file": "alone.json", "window_size": 1, "level": "LOWEST"},
        {"type": "TensorboardLoggerHook", "log_dir": str(tmp_path / "board")},
        {"type": "CommonMetricLoggerHook", "level": 60},
    ]
    cfg: dict[str, Any] = {"log_config": {"period": 2, "hooks": []}, "custom_hooks": [Counts(), *alone]}
    engine_in(tmp_path, batches=4, total_epochs=1, **cfg).train()
    found = lines(tmp_path / "alone.json")
    assert [(each["iteration"], each.get("count")) for each in found] == [(1, 1), (3, 3), (4, None)]
    assert [event.step for event in events(tmp_path / "board" / "runs").Scalars("count")] == [1, 3]
    assert (tmp_path / "run.log").read_text().count("current_iter:") == 2


def test_images_and_histograms_reach_tensorboard(tmp_path: Path) -> None:
    class Shows(HookBase):
        def after_train_iter(self) -> None:
            self.trainer.log_buffer.put_image("batch", torch.rand(3, 4, 5))
            self.trainer.log_buffer.put_histogram("weights", next(self.trainer.model.parameters()))

    shows = Shows()
    shows.level = "HIGHEST"
    engine_in(tmp_path, batches=4, total_epochs=1, log_config={"period": 2}, custom_hooks=[shows]).train()
    found = events(tmp_path / "runs")
    assert [(event.step, event.width, event.height) for event in found.Images("batch")] == [(i, 5, 4) for i in range(4)]
    assert [event.step for event in found.Histograms("weights")] == [0, 1, 2, 3]


def test_without_anybody_to_take_them_images_are_not_kept(tmp_path: Path) -> None:
    class Shows(HookBase):
        def after_train_iter(self) -> None:
            self.trainer.log_buffer.put_image("batch", torch.rand(3, 4, 5))

    engine = engine_in(tmp_path, log_config={"hooks": [{"type": "JSONLoggerHook"}]}, custom_hooks=[Shows()])
    engine.train()
    assert engine.log_buffer.images == []


def test_a_custom_logger_reads_the_buffer(tmp_path: Path) -> None:
    class Mine(LogBufferWriter):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def process_buffer_data(self) -> None:
            self.seen.append(sorted(self.log_buffer.latest_with_smoothing_hint(20)))

        def close(self) -> None:
            self.seen.append("closed")

    class Plain:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def write(self) -> None:
            self.seen.append("written")

    inside, alone, plain = Mine(), Mine(), Plain()
    hooks = [PeriodicLogger([inside, plain]), alone]
    engine_in(tmp_path, log_config={"period": 2}, custom_hooks=hooks, total_epochs=1).train()
    assert inside.seen == alone.seen == [["data_time", "iter_time", "loss", "lr"], "closed"]
    assert plain.seen == ["written"]
    with pytest.raises(HookError, match=r"^PeriodicLogger: object is not a logger: it has no write\(\)$"):
        PeriodicLogger([object()])


def test_the_hooks_of_a_log_config_are_the_loggers(tmp_path: Path) -> None:
    class Own(HookBase):
        pass

    own = Own()
    loggers = [{"type": "TextLoggerHook"}, {"type": "JSONLoggerHook", "json_file": "log.json"}, own]
    engine = engine_in(tmp_path, log_config={"period": 1, "hooks": loggers})
    periodic = next(hook for hook in engine.hooks if isinstance(hook, PeriodicLogger))
    assert [type(logger).__name__ for logger in periodic.loggers] == ["CommonMetricLoggerHook", "JSONLoggerHook"]
    assert engine.hooks[-1] is own


def test_a_fresh_run_in_the_same_folder_has_separate_records(tmp_path: Path) -> None:
    for _ in range(2):
        engine_in(tmp_path, log_config={"period": 1}).train()
    assert [each["iteration"] for each in lines(tmp_path / "metrics.json")] == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in (tmp_path / "old-1").iterdir()) == [
        "Sequential_epoch0_model.pth",
        "Sequential_epoch1_model.pth",
        "Sequential_model_final.pth",
        "config.yaml",
        "events.jsonl",
        "hooks.json",
        "last_checkpoint",
        "loss_bits.bin",
        "metrics.json",
        "plan.txt",
        "report.html",
        "run.log",
        "runs",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [{"type": "JSONLoggerHook"}, {"type": "JSONLoggerHook"}],
            "JSONLoggerHook would write metrics.json, which JSONLoggerHook already writes; give it another json_file",
        ),
        (
            [{"type": "JSONLoggerHook", "json_file": "run.log"}],
            "JSONLoggerHook would write run.log, which the run itself already writes; give it another json_file",
        ),
        (
            [{"type": "TensorboardLoggerHook"}, {"type": "TensorboardLoggerHook"}],
            "TensorboardLoggerHook would write runs, which TensorboardLoggerHook already writes; give it another "
            "log_dir",
        ),
        *(
            (
                [{"type": kind, name: given, **more}],
                f"{kind}: {name} must be a path, or a bare name for a place in work_dir, not {given!r}",
            )
            for kind, name, given, more in [
                ("JSONLoggerHook", "json_file", "", {}),
                ("JSONLoggerHook", "json_file", "..", {}),
                ("TensorboardLoggerHook", "log_dir", 3, {}),
                ("AutogradProfilerHook", "output_dir", "", {}),
                ("EvaluateHook", "eval_json_file", "runs/..", {"eval_function": len}),
            ]
        ),
    ],
)
def test_a_place_that_cannot_be_right_is_refused_by_names_that_users_know(
    tmp_path: Path, given: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_in(tmp_path, custom_hooks=given).train()
    assert str(caught.value) == message


def test_a_logger_that_cannot_write_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    loggers = [
        {"type": "JSONLoggerHook", "json_file": str(tmp_path / "file" / "a.json")},
        {"type": "TensorboardLoggerHook", "log_dir": str(tmp_path / "file")},
    ]
    engine_in(tmp_path / "run", custom_hooks=loggers).train()
    said = [line for line in (tmp_path / "run" / "run.log").read_text().splitlines() if " failed: " in line]
    assert [line.partition("warning: ")[2].partition(":")[0] for line in said] == [
        "JSONLoggerHook failed",
        "TensorboardLoggerHook failed",
    ]
