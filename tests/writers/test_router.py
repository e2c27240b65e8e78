"""Writers: what reaches a writer, what is refused, and how a run handles a failing writer."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hookline import Runner, Writer
from hookline.errors import ConfigError, DataError, HooklineError
from hookline.strategies import Strategy
from hookline.testing import MemoryWriter, toy_runner
from hookline.writers import Writers, delivery
from hookline.writers.jsonl import JsonlWriter


class Clock:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Away(MemoryWriter):
    """A server that is down for a while. A call to it may take long."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.tries = 0
        self.on_try: Any = lambda: None

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        self.tries += 1
        self.on_try()
        if self.error is not None:
            raise self.error
        super().write_scalars(scalars, step)


def begun(*writers: Writer, main: bool = True) -> Writers:
    together = Writers(writers, main)
    together.begin(Path(), "x")
    return together


# ------------------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("lacking", ["write_scalar", "write_image", "write_config"])
def test_a_class_that_lacks_one_of_the_three_cannot_be_made(lacking: str) -> None:
    methods = {name: lambda *args: None for name in ("write_scalar", "write_image", "write_config") if name != lacking}
    with pytest.raises(TypeError, match=f"abstract method '?{lacking}'?$"):
        type("Mine", (Writer,), methods)()


def test_the_three_are_enough() -> None:
    taken: list[tuple[Any, ...]] = []

    class Mine(Writer):
        def write_scalar(self, name: str, value: float, step: int) -> None:
            taken.append((name, value, step))

        def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
            taken.append((name, image.shape, step, caption))

        def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
            taken.append((name, config, step))

    together = begun(Mine())
    together.write_scalars({"a": 1, "b": 2.5}, 3)
    together.write_image("c", torch.zeros(3, 4, 5), 3, caption="d")
    together.write_config("config", {"e": 1}, 0)
    together.write_histogram("f", [1.0, 2.0, float("nan"), 3.0], 3)
    together.write_text("g", "left out", 3)
    together.write_table("h", ["i"], [[1]], 3)
    together.write_graph("j", torch.nn.Linear(1, 1), None)
    together.flush()
    together.close()
    assert taken == [
        ("a", 1, 3),
        ("b", 2.5, 3),
        ("c", (4, 5, 3), 3, "d"),
        ("config", {"e": 1}, 0),
        ("f/min", 1.0, 3),
        ("f/mean", 2.0, 3),
        ("f/std", pytest.approx((2 / 3) ** 0.5), 3),
        ("f/max", 3.0, 3),
    ]
    assert [(each.failures, each.missing) for each in together.deliveries] == [(0, 0)]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1),
        (0.5, 0.5),
        (True, 1),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array([0.5]), 0.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor([[3]]), 3),
    ],
)
def test_a_number_of_any_kind_is_an_int_or_a_float(value: Any, number: float) -> None:
    writer = MemoryWriter()
    together = begun(writer)
    together.write_scalar("a", value, 1)
    together.write_scalars({"b": value}, 2)
    assert writer.records == [{"step": 1, "a": number}, {"step": 2, "b": number}]
    assert {type(writer.records[0]["a"]), type(writer.records[1]["b"])} == {type(number)}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0.5", "'0.5'"),
        (None, "None"),
        (torch.zeros(2), "Tensor of shape (2,)"),
        (np.zeros((2, 2)), "ndarray of shape (2, 2)"),
        ([0.5], "[0.5]"),
        (1j, "1j"),
    ],
)
def test_a_scalar_that_is_no_number_is_refused_with_its_name(value: Any, told: str) -> None:
    writer = MemoryWriter()
    with pytest.raises(HooklineError) as refused:
        begun(writer).write_scalars({"fine": 1.0, "train/loss": value}, 1)
    assert str(refused.value) == f"the scalar 'train/loss' must be a number or a tensor with one element, not {told}"
    assert writer.records == []


@pytest.mark.parametrize(
    ("name", "value", "step", "message"),
    [
        (("a", "b"), 1.0, 1, "the name of a scalar must be a string, not ('a', 'b')"),
        (None, 1.0, 1, "the name of a scalar must be a string, not None"),
        ("a", 1.0, 1.5, "the step of 'a' must be a whole number, not 1.5"),
        ("a", 1.0, "3", "the step of 'a' must be a whole number, not '3'"),
        ("a", 1.0, 1 << 63, "the step of 'a' does not fit in 64 bits"),
        ("a", 10**400, 1, "the scalar 'a' is too large for a float: it is an int of 1329 bits"),
        ("step", 1, 1, "a scalar cannot be named 'step': every record already has its step under this name"),
        ("epoch", 1.5, 1, "the scalar 'epoch' must be a whole number, as in every record, not 1.5"),
        ("epoch", float("nan"), 1, "the scalar 'epoch' must be a whole number, as in every record, not nan"),
        ("epoch", 10**20, 1, "the scalar 'epoch' must be a whole number, as in every record, not 1e+20"),
    ],
)
def test_a_record_that_nobody_could_read_is_refused(name: Any, value: Any, step: Any, message: str) -> None:
    writer = MemoryWriter()
    together = begun(writer)
    with pytest.raises(HooklineError) as refused:
        together.write_scalar(name, value, step)
    assert str(refused.value) == message
    with pytest.raises(HooklineError) as refused:
        together.write_scalars({name: value}, step)
    assert str(refused.value) == message
    assert writer.records == []


def test_steps_names_and_large_numbers_are_plain() -> None:
    writer = MemoryWriter()
    together = begun(writer)
    steps: list[Any] = [np.int64(3), torch.tensor(3), 3]
    name: Any = np.str_("a")
    epoch: Any = np.int32(2)
    for step in steps:
        together.write_scalars({name: 1.0, "epoch": epoch}, step)
    together.write_scalars({"a": 1 << 70, "b": -(1 << 63), "c": 1 - (1 << 63)}, 4)
    together.write_text(name, "text", steps[0])
    assert writer.records == [{"step": 3, "a": 1.0, "epoch": 2}] * 3 + [
        {"step": 4, "a": 2.0**70, "b": -(2.0**63), "c": 1 - (1 << 63)}
    ]
    assert [type(value) for value in writer.records[0].values()] == [int, float, int]
    assert [type(value) for value in writer.records[3].values()] == [int, float, float, int]
    assert {type(name) for record in writer.records for name in record} == {str}
    assert [*map(type, writer.texts[0])] == [str, str, int]


@pytest.mark.parametrize(
    ("method", "kind", "args"),
    [
        ("write_image", "an image", (np.zeros((2, 2)), 1)),
        ("write_config", "a config", ({}, 1)),
        ("write_histogram", "a histogram", ([1.0], 1)),
        ("write_text", "a text", ("text", 1)),
        ("write_table", "a table", (["a"], [[1]], 1)),
        ("write_graph", "a graph", (torch.nn.Linear(1, 1), None)),
    ],
)
def test_a_name_is_a_text_and_a_step_a_whole_number_everywhere(method: str, kind: str, args: tuple[Any, ...]) -> None:
    write = getattr(begun(MemoryWriter()), method)
    with pytest.raises(HooklineError) as refused:
        write(3, *args)
    assert str(refused.value) == f"the name of {kind} must be a string, not 3"
    if method != "write_graph":
        with pytest.raises(HooklineError) as refused:
            write("x", *args[:-1], 0.5)
        assert str(refused.value) == "the step of 'x' must be a whole number, not 0.5"


def test_images_of_all_kinds_are_one_kind_to_writers() -> None:
    pixels = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
    kinds = [
        pixels,
        pixels.transpose(2, 0, 1),
        torch.from_numpy(pixels),
        torch.from_numpy(pixels).permute(2, 0, 1) / 255,
        Image.fromarray(pixels),
    ]
    writer = MemoryWriter()
    together = begun(writer)
    for image in kinds:
        together.write_image("a", image, 1)
    assert [image.tolist() for _, image, _, _ in writer.images] == [pixels.tolist()] * len(kinds)
    together.write_image("batch", torch.zeros(4, 3, 8, 8), 1)
    together.write_image("list", [np.zeros((8, 8)), np.zeros((8, 8))], 1)
    assert [image.shape for _, image, _, _ in writer.images[-2:]] == [(22, 22, 3), (12, 22)]


@pytest.mark.parametrize(
    ("method", "args", "message"),
    [
        (
            "write_image",
            (np.zeros((2, 5, 7)),),
            "the image 'x': ndarray of shape (2, 5, 7) and dtype float64 is not an image; expected (H, W), ",
        ),
        (
            "write_image",
            (torch.zeros(4, dtype=torch.int64),),
            "the image 'x': Tensor of shape (4,) and dtype int64 is ",
        ),
        ("write_image", ("cat.png",), "the image 'x': str is not an image; expected (H, W), "),
        ("write_histogram", ([float("nan")] * 3,), "the histogram 'x' has no finite number among its 3 numbers"),
        ("write_histogram", (["a"],), "the histogram 'x' needs numbers, not list: could not convert string"),
        (
            "write_table",
            (["a", "b"], [[1, 2], [3]]),
            "the table 'x' has 2 columns (a, b), but its row 1 has 1 cells",
        ),
    ],
)
def test_invalid_values_are_refused_with_a_description(method: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError) as refused:
        getattr(begun(MemoryWriter()), method)("x", *args, 1)
    assert str(refused.value).startswith(message)


def test_only_the_main_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = MemoryWriter()
    together = begun(writer, main=False)
    together.write_scalars({"a": 1.0}, 1)
    together.write_image("b", np.zeros((2, 2)), 1)
    together.write_config("config", {}, 1)
    together.close()
    assert (writer.records, writer.images, writer.configs, together.state_dict()) == ([], [], [], {})
    monkeypatch.setattr(Strategy, "is_main", False)
    runner = toy_runner(work_dir=tmp_path, writers=["jsonl", "tensorboard"])
    runner.train()
    assert not {"metrics.jsonl", "tensorboard"} & {path.name for path in tmp_path.iterdir()}


def test_later_writes_come_after_a_reserved_record() -> None:
    writer, other = MemoryWriter(), MemoryWriter()
    together = begun(writer, other)
    together.reserve()
    together.write_scalars({"a": 2.0}, 2)
    together.write_text("b", "text", 2)
    together.reserve()
    together.write_scalars({"a": 4.0}, 4)
    together.only(other).write_scalars({"own": 0.0}, 4)
    assert (writer.records, other.records, writer.texts) == ([], [{"step": 4, "own": 0.0}], [])
    together.fill({"a": 1.0}, 1)
    assert (writer.records, writer.texts) == ([{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}], [("b", "text", 2)])
    together.fill({"a": 3.0}, 3)
    together.write_scalars({"a": 5.0}, 5)
    assert [record["step"] for record in writer.records] == [1, 2, 3, 4, 5]
    together.reserve()
    together.write_scalars({"a": 6.0}, 6)
    together.close()
    assert [record["step"] for record in writer.records] == [1, 2, 3, 4, 5, 6]


def test_the_config_is_handed_over_once_when_training_starts() -> None:
    writer = MemoryWriter()
    runner = toy_runner(max_epochs=1, writers=[writer], config={"lr": 0.1})
    runner.on("before_train")(lambda: seen.append(len(writer.configs)))
    seen: list[int] = []
    runner.train()
    runner.val()
    assert (writer.configs, seen) == ([("config", {"lr": 0.1}, 0)], [1])


def test_all_configs_that_a_resumed_run_writes_before_its_checkpoint_are_handed_over_there() -> None:
    writer = MemoryWriter()
    together = Writers([writer])
    together.begin(Path(), "x", resuming=True)
    together.write_config("config", {"lr": 0.1}, 0)
    together.write_config("data", {"seed": 3}, 0)
    together.write_scalars({"a": 1.0}, 0)
    assert writer.configs == []
    together.load_state_dict({})
    together.load_state_dict({})
    assert writer.configs == [("config", {"lr": 0.1}, 0), ("data", {"seed": 3}, 0)]
    assert writer.records == []


def ends_well(runner: Runner) -> None:
    runner.train()


def fails(runner: Runner) -> None:
    runner.on("after_train_iter")(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()


def is_stopped(runner: Runner) -> None:
    runner.on("after_train_iter")(lambda runner: runner.stop("enough"))
    runner.train()


def gets_a_signal(runner: Runner) -> None:
    runner.on("after_train_iter")(lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit):
        runner.train()


def is_interrupted(runner: Runner) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    runner.on("after_train_iter")(interrupt)
    with pytest.raises(KeyboardInterrupt):
        runner.train()


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (ends_well, "finished"),
        (is_stopped, "finished"),
        (fails, "failed"),
        (gets_a_signal, "killed"),
        (is_interrupted, "killed"),
    ],
)
@pytest.mark.parametrize("background", [False, True])
def test_a_writer_sees_how_the_run_has_ended(run: Callable[[Runner], None], outcome: str, background: bool) -> None:
    class Seeing(MemoryWriter):
        in_background = background

        def close(self) -> None:
            seen.append(self.outcome)

    seen: list[str] = []
    writer = Seeing()
    run(toy_runner(writers=[writer], config={"a": 1}))
    toy_runner(max_epochs=1, writers=[writer], config={"a": 1}).train()
    assert seen == [outcome, "finished"]


# ----------------------------------------------------------------------------------------------------- failures


def test_failed_writes_are_retried_in_order_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, writer, other = Clock(monkeypatch), Away(ConnectionError("away")), MemoryWriter()
    together = begun(writer, other)
    tried_at = []
    for step in range(300):
        clock.now = 100.0 + step
        before = writer.tries
        together.write_scalars({"a": float(step)}, step)
        if writer.tries > before:
            tried_at.append(step)
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert [record["step"] for record in other.records] == list(range(300))
    writer.error = None
    clock.now += 60
    together.write_scalars({"a": 300.0}, 300)
    together.write_scalars({"a": 301.0}, 301)
    together.close()
    assert [record["step"] for record in writer.records] == list(range(302))
    assert caplog.messages == ["Away failed: ConnectionError: away; will try again, and the run continues"]
    assert (together.deliveries[0].failures, together.deliveries[0].missing) == (10, 0)


def test_a_writer_that_hangs_takes_at_most_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, writer = Clock(monkeypatch), Away(TimeoutError("no answer"))

    def hang() -> None:
        clock.now += 30

    writer.on_try = hang
    together = begun(writer)
    spent = 0.0
    for step in range(100_000):
        before = clock.now
        together.write_scalars({"a": 1.0}, step)
        spent += clock.now - before
        clock.now += 1
    assert spent <= 0.011 * (clock.now - 100)


def test_the_queue_is_bounded_and_the_end_says_how_much_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "KEPT", 5)
    monkeypatch.setattr(delivery, "KEPT_BYTES", 100)
    writer = Away(OSError("full"))
    together = begun(writer)
    for step in range(20):
        together.write_scalars({"a": 1.0}, step)
        together.write_image("b", np.zeros((8, 8)), step)
    writer.error = None
    together.close()
    assert [record["step"] for record in writer.records] == [0, 1, 2, 3]
    assert [step for _, _, step, _ in writer.images] == [0]
    assert caplog.messages[1:] == ["Away is missing 35 of this run's records: OSError: full"]
    together.begin(Path(), "x")
    together.close()
    assert len(caplog.messages) == 2


def test_a_write_that_cannot_succeed_is_dropped_and_the_next_is_made(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(MemoryWriter):
        def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
            super().write_scalars({"a": scalars["a"]}, step)

    writer = Picky()
    together = begun(writer)
    for step, name in enumerate("abab"):
        together.write_scalars({name: 1.0}, step)
    together.close()
    assert [record["step"] for record in writer.records] == [0, 2]
    assert caplog.messages == [
        "Picky failed: KeyError: 'a'; the run continues",
        "Picky is missing 2 of this run's records: KeyError: 'a'",
    ]


@pytest.mark.parametrize("passes", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_no_failure(passes: type[BaseException]) -> None:
    writer = Away()

    def interrupt() -> None:
        raise passes

    writer.on_try = interrupt
    with pytest.raises(passes):
        begun(writer).write_scalars({"a": 1.0}, 1)


def test_a_refusal_of_a_writer_ends_the_run() -> None:
    class Refuses(MemoryWriter):
        def begin(self, work_dir: Path, experiment_name: str) -> None:
            raise ConfigError("there is no key")

    with pytest.raises(ConfigError, match="^there is no key$"):
        toy_runner(writers=[Refuses()]).train()


def test_all_are_closed_also_when_one_refuses_to_be() -> None:
    class Refuses(MemoryWriter):
        def close(self) -> None:
            closed.append("refuses")
            raise ConfigError("not yet")

    class Closes(MemoryWriter):
        def close(self) -> None:
            closed.append("closes")

    closed: list[str] = []
    together = begun(Refuses(), Closes(), Refuses(), Closes())
    with pytest.raises(ConfigError, match="^not yet$"):
        together.close()
    assert closed == ["refuses", "closes", "refuses", "closes"]


def test_a_refusal_of_what_waited_is_raised_at_the_end_and_the_writer_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Closes(Away):
        def close(self) -> None:
            closed.append(True)

    closed: list[bool] = []
    writer = Closes(OSError("away"))
    together = begun(writer)
    for step in (1, 2):
        together.write_scalars({"a": 1.0}, step)
    writer.error = ConfigError("there is no key")
    with pytest.raises(ConfigError, match="^there is no key$"):
        together.close()
    assert closed == [True]
    assert caplog.messages[1:] == ["Closes is missing 1 of this run's records: OSError: away"]


@pytest.mark.parametrize("background", [False, True])
def test_a_writer_that_cannot_tell_whether_it_may_pass_gives_up_just_this_record(
    background: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(MemoryWriter):
        in_background = background

        def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
            if step == 1:
                raise ImportError("its library is broken")
            super().write_scalars(scalars, step)

        def may_pass(self, error: Exception) -> bool:
            raise error

    writer = Odd()
    together = begun(writer)
    for step in (1, 2):
        together.write_scalars({"a": 1.0}, step)
        together.flush()
    together.close()
    assert writer.records == [{"step": 2, "a": 1.0}]
    assert caplog.messages == [
        "Odd failed: ImportError: its library is broken; the run continues",
        "Odd is missing 1 of this run's records: ImportError: its library is broken",
    ]


def test_texts_and_tables_that_wait_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(MemoryWriter):
        def write_text(self, name: str, text: str, step: int) -> None:
            raise OSError("away")

    monkeypatch.setattr(delivery, "KEPT_BYTES", 100)
    writer = Silent()
    together = begun(writer)
    together.write_text("a", "x" * 60, 1)
    together.write_text("b", "x" * 60, 2)  # too much
    together.write_table("c", ["d", "e"], [["x" * 10, 1], ["x" * 10, 2]], 3)
    together.write_table("f", ["g"], [["x" * 20]], 4)  # too much
    together.write_scalars({"h": 1.0}, 5)
    monkeypatch.setattr(writer, "write_text", lambda *args: writer.texts.append(args))
    together.close()
    assert [step for _, _, step in writer.texts] == [1]
    assert [step for *_, step in writer.tables] == [3]
    assert [record["step"] for record in writer.records] == [5]
    assert together.deliveries[0].missing == 2


class CannotGoBack(MemoryWriter):
    """The disk is full when the records after a checkpoint should be dropped."""

    full = True

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().load_state_dict(state)


def test_a_state_that_could_not_be_taken_back_is_tried_again_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, writer = Clock(monkeypatch), CannotGoBack()
    together = begun(writer)
    together.write_scalars({"a": 1.0}, 1)
    state = together.state_dict()
    together.write_scalars({"a": 2.0}, 2)
    together.begin(Path(), "x", resuming=True)
    together.load_state_dict(state)
    together.write_scalars({"a": 2.5}, 2)
    assert [record["a"] for record in writer.records] == [1.0, 2.0]
    waiting = {"waiting": [[{"a": 2.5}, 2]]}
    assert together.state_dict() == {"CannotGoBack": state["CannotGoBack"] | waiting}
    writer.full, clock.now = False, clock.now + 60
    together.write_scalars({"a": 3.0}, 3)
    assert [record["a"] for record in writer.records] == [1.0, 2.5, 3.0]
    assert caplog.messages == [
        "CannotGoBack failed: OSError: [Errno 28] No space left on device; will try again, and the run continues"
    ]


def test_a_writer_that_could_not_begin_has_the_state_that_it_is_still_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    class Begins(MemoryWriter):
        def begin(self, work_dir: Path, experiment_name: str) -> None:
            if not allowed:
                raise OSError("away")

    clock, writer, allowed = Clock(monkeypatch), Begins(), []
    together = begun(writer)
    assert together.state_dict() == {"Begins": {"waiting": []}}
    together.write_scalars({"a": 1.0}, 1)
    assert together.state_dict() == {"Begins": {"waiting": [[{"a": 1.0}, 1]]}}
    allowed.append(True)
    clock.now += 60
    together.write_scalars({"a": 2.0}, 2)
    state = together.state_dict()
    assert state["Begins"]["records"] == 2
    together.close()
    allowed.clear()
    together.begin(Path(), "x", resuming=True)
    together.load_state_dict(state)
    together.write_scalars({"a": 3.0}, 3)
    assert together.state_dict() == {"Begins": state["Begins"] | {"waiting": [[{"a": 3.0}, 3]]}}


def test_waiting_numbers_are_saved_and_written_by_the_resumed_run() -> None:
    writer = Away(OSError("away"))
    together = begun(writer)
    together.write_scalars({"a": 1.0}, 1)
    together.write_scalars({"a": 2.0}, 2)
    state = together.state_dict()
    assert state["Away"]["waiting"] == [[{"a": 1.0}, 1], [{"a": 2.0}, 2]]
    after = MemoryWriter()
    after.__class__ = type("Away", (MemoryWriter,), {})
    going_on = Writers([after])
    going_on.begin(Path(), "x", resuming=True)
    going_on.load_state_dict(state)
    assert after.records == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]


def test_a_stateless_writer_still_gets_the_iteration_of_the_checkpoint(tmp_path: Path) -> None:
    class Rows(MemoryWriter):
        state_dict = Writer.state_dict

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            loaded.append(dict(state))

    loaded: list[dict[str, Any]] = []
    toy_runner(max_epochs=2, work_dir=tmp_path, writers=[Rows()]).train()
    assert loaded == []
    toy_runner(max_epochs=3, work_dir=tmp_path, writers=[Rows()], resume=True).train()
    assert loaded == [{"iter": 8}]


def test_two_of_a_kind_have_their_own_states(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, writers=["jsonl", {"type": "jsonl", "filename": "more.jsonl"}])
    runner.train()
    assert (tmp_path / "more.jsonl").read_bytes() == (tmp_path / "metrics.jsonl").read_bytes()
    state = torch.load(tmp_path / "epoch_2.pth")["writers"]
    assert sorted(state) == ["JsonlWriter", "JsonlWriter#2"]

    class Inherits(KnownOtherwise):
        """Has the same name in messages."""

    toy_runner(work_dir=tmp_path / "known", writers=[KnownOtherwise(), Inherits(filename="more.jsonl")]).train()
    state = torch.load(tmp_path / "known" / "epoch_2.pth")["writers"]
    assert sorted(state) == ["the records", "the records#2"]


# --------------------------------------------------------------------------------------------------- in the background


class Slow(MemoryWriter):
    """A server that answers only when the test allows it."""

    in_background = True

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.called = threading.Event()
        self.threads: set[str] = set()
        self.batches: list[int] = []

    def write_records(self, records: Any) -> None:
        self.called.set()
        assert self.answers.wait(10)
        self.threads.add(threading.current_thread().name)
        self.batches.append(len(records))
        super().write_records(records)


def test_a_slow_writer_is_not_waited_for_and_gets_what_has_gathered_at_once() -> None:
    writer = Slow()
    together = begun(writer)
    together.write_scalars({"a": 1.0}, 0)
    assert writer.called.wait(10)
    for step in range(1, 500):
        together.write_scalars({"a": 1.0}, step)
    together.write_image("b", np.zeros((2, 2)), 500)
    together.write_scalars({"a": 1.0}, 500)
    assert len(together.state_dict()["Slow"]["waiting"]) == 501
    assert writer.records == []
    writer.answers.set()
    together.close()
    assert writer.batches == [1, 200, 200, 99, 1]
    assert [record["step"] for record in writer.records] == list(range(501))
    assert len(writer.images) == 1
    assert writer.threads == {"hookline Slow"}
    assert [thread.name for thread in threading.enumerate() if thread.name == "hookline Slow"] == []


def test_a_write_refused_in_the_background_is_dropped_and_later_ones_are_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refuses(MemoryWriter):
        in_background = True

        def write_text(self, name: str, text: str, step: int) -> None:
            assert go_on.wait(10)
            if text == "bad":
                raise DataError("refused")
            super().write_text(name, text, step)

        def may_pass(self, error: Exception) -> bool:
            return True

    writer, go_on = Refuses(), threading.Event()
    together = begun(writer)
    for step, text in enumerate(["bad", "one", "bad", "two"]):
        together.write_text("a", text, step)
    go_on.set()
    together.flush()
    assert [text for _, text, _ in writer.texts] == ["one", "two"]
    together.write_text("a", "bad", 4)
    together.flush()
    together.write_text("a", "three", 5)
    together.close()
    assert [text for _, text, _ in writer.texts] == ["one", "two", "three"]
    assert caplog.messages == [
        "Refuses failed: DataError: refused; the run continues",
        "Refuses is missing 3 of this run's records: DataError: refused",
    ]


def test_the_end_of_a_run_does_not_wait_long_for_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.0)
    monkeypatch.setattr(delivery, "LITTLE_PATIENCE", 0.0)
    writer = Slow()
    together = begun(writer)
    together.write_scalars({"a": 1.0}, 1)
    assert writer.called.wait(10)
    (thread,) = [each for each in threading.enumerate() if each.name == "hookline Slow"]
    together.close()
    assert caplog.messages == ["Slow is missing 1 of this run's records: it did not answer in time"]
    writer.answers.set()
    thread.join(10)
    assert not thread.is_alive()
    monkeypatch.undo()
    together.begin(Path(), "x")
    together.write_scalars({"a": 2.0}, 2)
    together.flush()
    assert writer.records == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]
    together.close()


# ------------------------------------------------------------------------------------------------------ files of a run


def test_files_of_writers_make_way_for_a_fresh_run_whatever_they_are_called(tmp_path: Path) -> None:
    writers = [{"type": "jsonl", "filename": "mine.jsonl"}, {"type": "tensorboard", "folder": "board"}, "csv"]
    for _ in range(2):
        toy_runner(max_epochs=1, work_dir=tmp_path, writers=writers).train()
    made = {"mine.jsonl", "board", "metrics.csv"}
    assert made <= {path.name for path in tmp_path.iterdir()}
    assert made <= {path.name for path in (tmp_path / "old-1").iterdir()}
    assert len((tmp_path / "mine.jsonl").read_text().splitlines()) == 2


def test_records_of_an_attempt_that_died_before_its_first_checkpoint_are_dropped(tmp_path: Path) -> None:
    writers = ["jsonl", "csv", "tensorboard"]
    for resume in (False, True):
        runner = toy_runner(max_iters=6, work_dir=tmp_path, writers=writers, resume=resume, val=None)
        if not resume:
            runner.on("after_train_iter")(lambda runner: 1 / (runner.iter < 4))
            runner.on("before_train")(lambda runner: runner.writers.write_scalars({"a": 1.0}, 0))
            with pytest.raises(ZeroDivisionError):
                runner.train()
        else:
            runner.train()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 2
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


def test_records_after_an_earlier_checkpoint_are_kept_with_the_later_ones(tmp_path: Path) -> None:
    writers = ["jsonl", "csv", "tensorboard"]
    toy_runner(max_epochs=3, work_dir=tmp_path, writers=writers).train()
    toy_runner(max_epochs=2, work_dir=tmp_path, writers=writers, resume=tmp_path / "epoch_1.pth").train()
    old = tmp_path / "old-1"
    assert [len((folder / "metrics.jsonl").read_text().splitlines()) for folder in (old, tmp_path)] == [6, 4]
    assert [len((folder / "metrics.csv").read_text().splitlines()) for folder in (old, tmp_path)] == [7, 5]
    assert [len(list((folder / "tensorboard").iterdir())) for folder in (old, tmp_path)] == [1, 2]


# ------------------------------------------------------------------------------ files, copies, flushes, states


class KnownOtherwise(JsonlWriter):
    told_as = "the records"


@pytest.mark.parametrize(
    ("writers", "message"),
    [
        (
            ["jsonl", KnownOtherwise()],
            "the records would write metrics.jsonl, which JsonlWriter already writes; give it another filename",
        ),
        (
            ["tensorboard", "tensorboard"],
            "TensorboardWriter would write tensorboard, which TensorboardWriter already writes; give it another folder",
        ),
        (
            ["jsonl", "jsonl"],
            "JsonlWriter would write metrics.jsonl, which JsonlWriter already writes; give it another filename",
        ),
        (
            ["jsonl", {"type": "csv", "filename": "metrics.jsonl"}],
            "CsvWriter would write metrics.jsonl, which JsonlWriter already writes; give it another filename",
        ),
        (
            [{"type": "csv", "filename": "run.log"}],
            "CsvWriter would write run.log, which the run itself already writes; give it another filename",
        ),
        ([{"type": "csv", "filename": 3}], "CsvWriter: filename must be the name of a file in the run's folder, not 3"),
        ("jsonl", "writers must be a list, such as ['jsonl']"),
    ],
)
def test_writers_that_would_spoil_each_others_files_are_refused(writers: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toy_runner(writers=writers)
    assert str(caught.value) == message


OWN_NAMES = (
    *(".lock", ".writable", ".epoch_1.pth.partial", ".run.log.partial", "last_checkpoint", "LAST_CHECKPOINT"),
    *("epoch_1.pth", "iter_9.pth", "best_accuracy_epoch_1.pth", "mine.pth", "old-1", "old-12", "run.log", "plan.txt"),
    *("config.yaml", "control.jsonl", "events.jsonl", "hooks.json", "profile.json", "profile_2.json", "report.html"),
    *("loss_bits.bin", "capsule.json", "capsule-rank1.json"),
)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_writer_cannot_have_a_name_that_the_run_uses_in_its_folder(name: str) -> None:
    class Elsewhere(MemoryWriter):
        def files(self) -> list[str]:
            return [name]

    for kind, label in (("csv", "filename"), ("jsonl", "filename"), ("tensorboard", "folder")):
        who = f"{kind.capitalize()}Writer"
        with pytest.raises(ConfigError) as refused:
            toy_runner(writers=[{"type": kind, label: name}])
        assert str(refused.value) == (
            f"{who} would write {name}, which the run itself already writes; give it another {label}"
        )
    with pytest.raises(ConfigError, match=f"^Elsewhere would write {re.escape(name)}, which the run itself already"):
        toy_runner(writers=[Elsewhere()])


@pytest.mark.parametrize("name", ["old-x", "old-1.csv", "epoch_1.pth.csv", "runs.log", "my.records", "größe.csv"])
def test_a_writer_may_have_any_other_name(name: str) -> None:
    assert list(toy_runner(writers=[{"type": "csv", "filename": name}]).writers.files()) == [name]


def test_the_name_of_a_file_must_be_in_one_line() -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(writers=[{"type": "csv", "filename": "a\nb.csv"}])
    assert str(refused.value) == "CsvWriter: filename must be in one line and without control codes, not 'a\\nb.csv'"


def test_a_class_that_lacks_methods_is_refused_by_name() -> None:
    class Half(Writer):
        def write_scalar(self, name: str, value: float, step: int) -> None: ...

    with pytest.raises(ConfigError) as caught:
        toy_runner(writers=[{"type": Half}])
    assert str(caught.value) == "Half cannot be used as a writer: it does not implement write_config, write_image"


class Changes(MemoryWriter):
    """Changes the numbers that it receives, and counts its flushes."""

    flushed = 0

    def write_scalars(self, scalars: Any, step: int) -> None:
        scalars["zz"] = 1
        super().write_scalars(scalars, step)

    def flush(self) -> None:
        self.flushed += 1


def test_a_writer_may_change_what_it_is_given_and_is_flushed_before_every_save(tmp_path: Path) -> None:
    changes, other = Changes(), MemoryWriter()
    toy_runner(writers=[changes, other], work_dir=tmp_path, max_epochs=3).train()
    assert all("zz" in record for record in changes.records)
    assert not any("zz" in record for record in other.records)
    assert changes.flushed == 3


def test_a_state_that_no_checkpoint_can_hold_costs_the_writer_its_state_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd(MemoryWriter):
        def state_dict(self) -> dict[str, Any]:
            return {"n": np.int64(3)}

    runner = toy_runner(writers=[Odd()], work_dir=tmp_path, max_epochs=1, quiet=False)
    runner.train()
    assert (tmp_path / "epoch_1.pth").exists()
    assert (
        "warning: Odd failed: HookError: its state['n'] is a numpy.int64, which a checkpoint cannot store; use tensors "
        "and plain data (numbers, strings, lists, dicts); the run continues" in capsys.readouterr().out
    )


# ------------------------------------------------------------------------------------- evaluating a checkpoint


def test_a_test_in_another_process_stands_at_the_iteration_of_its_checkpoint_and_stays_after_a_resume(
    tmp_path: Path,
) -> None:
    def lines() -> list[tuple[int, int, list[str]]]:
        found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        return [
            (record["step"], record["epoch"], sorted({name.partition("/")[0] for name in record})) for record in found
        ]

    places = {"train": ["epoch", "step", "train"], "val": ["epoch", "step", "val"], "test": ["epoch", "step", "test"]}
    toy_runner(work_dir=tmp_path, max_epochs=2).train()
    tested = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    tested.test()
    assert (tested.iter, tested.epoch) == (0, 0)
    both = [(4 * epoch, epoch, places[stage]) for epoch in (1, 2) for stage in ("train", "val")]
    assert lines() == [*both, (8, 2, places["test"])]
    toy_runner(work_dir=tmp_path, max_epochs=3, resume=True).train()
    last = [(12, 3, places["train"]), (12, 3, places["val"])]  # after the validation that epoch_2.pth still lacked
    assert lines() == [*both[:3], (8, 2, places["test"]), both[3], *last]
    # After resuming from an earlier checkpoint, test results of a later one no longer belong to the run.
    toy_runner(work_dir=tmp_path, max_epochs=2, resume=tmp_path / "epoch_1.pth").train()
    assert lines() == both


def test_some_of_the_writers_may_be_written_to_alone() -> None:
    one, other = MemoryWriter(), MemoryWriter()
    together = begun(one, other)
    together.only(other).write_scalars({"a": 0.5}, 1)
    together.write_scalars({"b": 2}, 2)
    assert one.records == [{"step": 2, "b": 2}]
    assert other.records == [{"step": 1, "a": 0.5}, {"step": 2, "b": 2}]


def test_before_the_place_of_its_checkpoint_a_resumed_run_writes_nothing_to_some_of_them_either() -> None:
    writer = MemoryWriter()
    together = Writers([writer])
    together.begin(Path(), "x", resuming=True)
    together.only(writer).write_scalars({"a": 1}, 1)
    together.load_state_dict({})
    together.only(writer).write_scalars({"a": 2}, 2)
    assert [record["step"] for record in writer.records] == [2]


def test_a_writer_that_cannot_say_what_it_makes_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mute(MemoryWriter):
        def files(self) -> list[str]:
            raise ValueError("who knows")

    writer = Mute()
    toy_runner(writers=[writer], work_dir=tmp_path, max_epochs=1, quiet=False).train()
    assert len(writer.records) == 2
    warning = "warning: Mute cannot list its files (who knows); files of an earlier run stay where they are\n"
    assert capsys.readouterr().out.count(warning) == 1
