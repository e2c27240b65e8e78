"""MessageHub, HistoryBuffer, MMLogger and LogProcessor."""

from __future__ import annotations

import logging
import logging.handlers
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.instances import Instances
from hookline.dialects.mmengine.logging import HistoryBuffer, MessageHub, MMLogger, print_log
from hookline.dialects.mmengine.runner import LogProcessor
from hookline.errors import HooklineError
from tests.dialects.mmengine.parts import runner_of, weights


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (MessageHub, MMLogger):
        monkeypatch.setattr(kind, "_instance_dict", Instances())


def test_a_hub_is_found_by_its_name_and_the_newest_without() -> None:
    first = MessageHub.get_instance("first")
    second = MessageHub.get_instance("second")
    assert MessageHub.get_instance("first") is first
    assert MessageHub.get_current_instance() is second
    assert (first.instance_name, MessageHub.check_instance_created("third")) == ("first", False)
    with pytest.raises(TypeError, match="^a MessageHub is looked up by its name, a string, not by 3$"):
        MessageHub.get_instance(3)  # type: ignore[arg-type]


def test_without_any_the_current_hub_is_made() -> None:
    assert MessageHub.get_current_instance().instance_name == "mmengine"


def test_scalars_with_counts() -> None:
    hub = MessageHub("hub")
    hub.update_scalar("loss", 0.5)
    hub.update_scalars({"loss": {"value": 9.0, "count": 3}, "lr": np.array([0.1]), "time": torch.tensor(2)})
    assert hub.get_scalar("loss").mean() == 9.5 / 4
    assert hub.get_scalar("loss").mean(1) == 3.0
    assert [each.tolist() for each in hub.get_scalar("loss").data] == [[0.5, 9.0], [1.0, 3.0]]
    assert (hub.get_scalar("lr").current(), hub.get_scalar("time").current()) == (0.1, 2)
    assert list(hub.log_scalars) == ["loss", "lr", "time"]
    with pytest.raises(KeyError, match="no scalar is recorded as 'los'; did you mean 'loss'"):
        hub.get_scalar("los")
    with pytest.raises(KeyError, match="the scalar 'x' is given as a dict, but the dict has no 'value'"):
        hub.update_scalars({"x": {"count": 1}})
    with pytest.raises(HooklineError, match="the scalar 'big' must be a number or a tensor with one element"):
        hub.update_scalar("big", torch.zeros(3))


def test_info() -> None:
    hub = MessageHub("hub")
    hub.update_info("a", 1)
    hub.update_info_dict({"b": 2, "c": object()})
    assert (hub.get_info("a"), hub.get_info("z", 9), hub.pop_info("b"), hub.pop_info("b", 7)) == (1, 9, 2, 7)
    assert sorted(hub.runtime_info) == ["a", "c"]


def test_a_hub_is_restored_from_its_state(caplog: pytest.LogCaptureFixture) -> None:
    hub, other = MessageHub("hub"), MessageHub("other")
    hub.update_scalar("loss", 4.0, count=2)
    hub.update_scalar("passing", 1.0, resumed=False)
    hub.update_info_dict({"kept": np.float64(0.5), "odd": object()})
    hub.update_info("also passing", 1, resumed=False)
    other.load_state_dict(hub.state_dict())
    hub.state_dict()
    assert other.get_scalar("loss").mean() == 2.0
    assert list(other.log_scalars) == ["loss"]
    assert other.runtime_info == {"kept": 0.5}
    (warning,) = caplog.messages
    assert warning.startswith("the info 'odd' is a builtins.object, which a checkpoint cannot store;")


def test_info_that_cannot_be_saved_does_not_end_a_run(tmp_path: Path) -> None:
    class Puts(Hook):
        def before_train(self, runner: Any) -> None:
            runner.message_hub.update_info("anything", {1, 2})
            runner.message_hub.update_info("plain", {"a": [1, 2]})

    runner_of(tmp_path / "run", custom_hooks=[Puts()]).train()
    assert weights(tmp_path / "run" / "epoch_2.pth", "message_hub", "info")["plain"] == {"a": [1, 2]}
    assert "the info 'anything' is a builtins.set, which" in (tmp_path / "run" / "run.log").read_text()


def test_a_history_and_custom_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryBuffer, "_statistics_methods", {})
    buffer = HistoryBuffer([1.0, 2.0], [1, 1], max_length=3)
    for value in (3.0, 4.0):
        buffer.update(value)
    assert (buffer.mean(), buffer.min(), buffer.max(2), buffer.current()) == (3.0, 2.0, 4.0, 4.0)

    @HistoryBuffer.register_statistics
    def spread(buffer: HistoryBuffer, scale: float) -> float:
        return scale * (buffer.max() - buffer.min())

    assert buffer.statistics("spread", scale=10) == 20.0
    assert (buffer.statistics("mean", 2), buffer.statistics("current")) == (3.5, 4.0)
    with pytest.raises(KeyError, match="unknown HistoryBuffer statistic 'spraed'; did you mean 'spread'"):
        buffer.statistics("spraed")


@pytest.mark.parametrize("given", [0, -1, 1.5, "2"])
def test_an_invalid_window_is_refused(given: Any) -> None:
    buffer = HistoryBuffer([1.0], [1])
    with pytest.raises(
        ValueError, match="window_size is the number of newest values to use; it must be an integer of at least 1"
    ):
        buffer.mean(given)


def test_an_empty_history() -> None:
    with pytest.raises(ValueError, match="this HistoryBuffer has no values yet"):
        HistoryBuffer().current()
    with pytest.raises(ValueError, match="log_history and count_history must have the same length, not 1 and 0"):
        HistoryBuffer([1.0], [])


def test_print_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_log("printed")
    print_log("not shown", logger="silent")
    mine = MMLogger.get_instance("mine", log_file=str(tmp_path / "x.log"), log_level="WARNING")
    print_log("by its name", logger="mine", level=logging.ERROR)
    print_log("by the current", logger="current", level=logging.WARNING)
    print_log("too low", logger=mine)
    print_log("by the current", logger="current", level=logging.WARNING)  # a repeated warning is dropped
    shown, place = capsys.readouterr(), f"{__file__} - test_print_log"
    lines = [f"mmengine - ERROR - {place} - N - by its name", "mmengine - WARNING - by the current"]
    for text in (shown.out.removeprefix("printed\n"), (tmp_path / "x.log").read_text()):
        without_times = [re.sub(r"^[\d/]+ [\d:]{8} - | \d+(?= - by)", "", line) for line in text.splitlines()]
        assert without_times == [lines[0].replace(" N", ""), lines[1]]
    assert (shown.out[:8], shown.err) == ("printed\n", "")
    assert mine.log_file == str(tmp_path / "x.log")
    with pytest.raises(ValueError, match="^unknown MMLogger 'other'; create it with"):
        print_log("x", logger="other")
    with pytest.raises(TypeError, match="^logger must be a logging.Logger, the name of one"):
        print_log("x", logger=3)  # type: ignore[arg-type]
    for handler in mine.handlers:
        handler.close()


def test_the_handler_of_a_log_file_is_named_in_a_config(tmp_path: Path) -> None:
    rotating = {"type": "RotatingFileHandler", "maxBytes": 1024}
    logger = MMLogger("rotating", log_file=tmp_path / "x.log", file_handler_cfg=rotating)
    assert isinstance(logger.handlers[-1], logging.handlers.RotatingFileHandler)
    logger.handlers[-1].close()
    for wrong, message in (("RotatingFileHandle", "did you mean 'RotatingFileHandler'"), ("Popen", "unknown handler")):
        with pytest.raises(ValueError, match=message):
            MMLogger("wrong", log_file=tmp_path / "x.log", file_handler_cfg={"type": wrong})


def test_the_instances_of_a_class_are_a_dict_that_may_be_cleared_and_replaced() -> None:
    first, second = MessageHub.get_instance("first"), MessageHub.get_instance("second")
    assert dict(MessageHub._instance_dict) == {"first": first, "second": second}
    MessageHub._instance_dict.pop("second")
    assert MessageHub.get_current_instance() is first
    MessageHub._instance_dict.clear()
    assert MessageHub.get_current_instance().instance_name == "mmengine"
    MessageHub._instance_dict = {}
    of_run = MessageHub.make_current(MessageHub("of a run"))
    assert (MessageHub.get_current_instance(), list(MessageHub._instance_dict)) == (of_run, ["of a run"])


def test_a_hub_of_a_run_ends_with_it_unless_it_is_the_newest() -> None:
    MessageHub.make_current(MessageHub("old"))
    MessageHub.make_current(MessageHub("new"))
    assert list(MessageHub._instance_dict) == ["new"]
    assert MessageHub.get_current_instance().instance_name == "new"


def test_the_state_of_an_original_hub_is_read(caplog: pytest.LogCaptureFixture) -> None:
    state = {
        "log_scalars": {"loss": HistoryBuffer([0.5], [1]), "bad": 1},
        "runtime_info": {"iter": 3, "big": 4},
        "resumed_keys": {"big": False},
    }
    hub = MessageHub("read")
    hub.load_state_dict(state)
    assert (hub.get_scalar("loss").current(), hub.get_info("iter"), "bad" in hub.log_scalars) == (0.5, 3, False)
    assert list(hub.state_dict()["info"]) == ["iter"]
    assert "the scalar 'bad' is left out: it must be a HistoryBuffer, not 1" in caplog.text


def test_a_hub_may_begin_with_values() -> None:
    history = HistoryBuffer([1.0], [1])
    hub = MessageHub("given", {"loss": history}, {"iter": 2}, {"iter": False})
    assert (hub.get_scalar("loss"), hub.get_info("iter"), hub.state_dict()["info"]) == (history, 2, {})
    with pytest.raises(AssertionError, match="log_scalars must hold HistoryBuffers; 'loss' is 1"):
        MessageHub("x", log_scalars={"loss": 1})  # type: ignore[dict-item]
    with pytest.raises(AssertionError, match="resumed_keys has 'iters', which is not recorded; did you mean 'iter'"):
        MessageHub("x", runtime_info={"iter": 1}, resumed_keys={"iters": True})
    with pytest.raises(AssertionError, match="the scalar 'x' must be a number"):
        hub.update_scalars({"x": []})


def test_a_history_takes_single_numbers() -> None:
    buffer = HistoryBuffer(np.array([[1, 2, 3]]), np.array([[1, 1, 1]]), max_length=2)
    assert (buffer.max_length, buffer.data[0].tolist(), HistoryBuffer().max_length) == (2, [2, 3], 1_000_000)
    with pytest.raises(TypeError, match="single numbers"):
        buffer.update([1, 2])
    with pytest.raises(AssertionError, match="must have the same length, not 2 and 1"):
        HistoryBuffer([1, 2], [1])


# -- LogProcessor


def test_the_lines_that_hooks_write_with_it(tmp_path: Path) -> None:
    lines = []

    class Writes(Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if batch_idx == 3:
                lines.append(runner.log_processor.get_log_after_iter(runner, batch_idx, "train"))

        def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
            lines.append(runner.log_processor.get_log_after_epoch(runner, len(runner.val_dataloader), "val"))

    runner_of(tmp_path / "run", custom_hooks=[Writes()], train_cfg={"max_epochs": 1}).train()
    (tag, line), (found, last) = lines
    assert list(tag) == ["lr", "data_time", "time", "loss"]
    assert line.startswith("Epoch(train) [1][4/4]  lr: 1.0000e-01  eta: 0:00:00  data_time: ")
    assert line.endswith(f"loss: {tag['loss']:.4f}")
    assert list(found) == ["data_time", "time", "accuracy"]
    assert last.startswith("Epoch(val) [1][2/2]  data_time: ")


def test_lines_by_iterations_and_with_all_of_a_name(tmp_path: Path) -> None:
    runner = runner_of(tmp_path / "run", train_cfg={"by_epoch": False, "max_iters": 3})
    runner.train()
    processor = LogProcessor(by_epoch=False, log_with_hierarchy=True, num_digits=2)
    tag, line = processor.get_log_after_iter(runner, 2, "train")
    assert "train/loss" in tag
    assert line.startswith("Iter(train) [4/3]  eta: 0:00:00  train/lr: 0.10")
    runner.message_hub.update_info("val/table", [1, 2])
    assert processor.get_log_after_epoch(runner, 2, "val", with_non_scalar=True)[0]["table"] == [1, 2]
    with pytest.raises(ValueError, match="^get_log_after_epoch: mode must be 'val' or 'test', not 'train'$"):
        processor.get_log_after_epoch(runner, 2, "train")


def test_a_rule_for_no_name_is_ignored_with_all_its_options() -> None:
    ignored = {"data_src": "", "method": "mean", "window_size": "global"}  # configs of OpenMMLab's projects have it
    assert LogProcessor(custom_cfg=[ignored]).rules() == LogProcessor().rules()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"custom_cfg": [{"log_name": "x"}]}, "an entry of custom_cfg needs 'data_src', the name it applies to"),
        (
            {"custom_cfg": [{"data_src": "loss", "window": 3}]},
            "custom_cfg has no option 'window'; did you mean 'window_size'?",
        ),
        ({"custom_cfg": [{"data_src": "a"}, {"data_src": "a"}]}, "two entries of custom_cfg have the name 'a'"),
        ({"custom_cfg": [{"data_src": "a", "window_size": "epochs"}]}, "window_size cannot be 'epochs'; did you mean"),
        ({"mean_pattern": r"^x$"}, "mean_pattern must have the form '.*(one|other).*', not '^x$'"),
    ],
)
def test_invalid_log_processor_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(HooklineError) as caught:
        LogProcessor(**given)
    assert message in str(caught.value)
