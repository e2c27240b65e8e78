from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hookline.dialects.pointrix.hook import LogHook
from hookline.dialects.pointrix.logger import (
    LOGGER_REGISTRY,
    ErrorLogger,
    JsonlWriter,
    Logger,
    ProgressLogger,
    TensorboardWriter,
    WandbWriter,
    Writer,
    parse_writer,
)
from hookline.errors import ConfigError, HooklineError
from hookline.screen.terminal import Terminal
from tests.clock import Clock
from tests.dialects.pointrix.scene import SceneTrainer, config


class Keeps(Writer):
    """A custom writer with only the three required methods."""

    def __init__(self, log_dir: Path) -> None:
        super().__init__(log_dir)
        self.calls: list[tuple[Any, ...]] = []

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        self.calls.append((name, scalar, step))

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        self.calls.append((name, tuple(image.shape), step))

    def write_config(self, name: str, config_dict: Any, step: int) -> None:
        self.calls.append((name, config_dict, step))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Set up a live terminal and return its output."""
    sent, terminal = io.StringIO(), Terminal()
    options: dict[str, Any] = {"width": 90, "color_system": None, "soft_wrap": True, "highlight": False}
    terminal._console = Console(file=sent, force_terminal=True, **options)
    monkeypatch.setattr(Logger, "terminal", terminal)
    return sent


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logger, "terminal", Terminal(quiet=True))


# -- Logger


def test_logger_prints_texts_and_tables_and_offers_the_console_methods(screen: io.StringIO, tmp_path: Path) -> None:
    Logger.terminal.open_log(tmp_path / "run.log")
    table = Table("psnr")
    table.add_row("27.31")
    Logger.print("hello [bold]you[/bold]", table)
    Logger.print("[not markup]", markup=False)
    Logger.log("timed")
    Logger.rule("end")
    Logger.terminal.close_log()
    lines = screen.getvalue().splitlines()
    assert lines[0] == "hello you"
    assert any("27.31" in line for line in lines)
    assert "[not markup]" in lines
    assert any(line.endswith("] timed") and line.startswith("[") for line in lines)
    assert "end" in lines[-1]
    logged = (tmp_path / "run.log").read_text()
    assert "hello you\n" in logged
    assert "27.31" in logged
    assert "\x1b" not in logged


def test_error_logger_prints_to_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    ErrorLogger.print("it failed")
    assert capsys.readouterr() == ("", "it failed\n")


# -- ProgressLogger


def test_bars_of_a_training_and_its_validation(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("hookline.dialects.pointrix.logger.progress.clock", clock)
    bars = ProgressLogger("training", suffix="iter/s")
    bars.add_task("train", "Training", 100, {"loss": "?"})
    bars.add_task("validation", "Validation", 4)
    bars.reset("validation", visible=False)
    bars.start()
    clock.now += 10
    bars.update("train", 20, log={"loss": "0.5000000"})
    drawn = screen.getvalue()
    bars.terminal.redraw()
    assert "20/100" not in drawn  # an update draws nothing
    bars.reset("validation", visible=True)
    clock.now += 10
    bars.update("validation", 2)
    bars.stop()
    bars.stop()
    text = screen.getvalue()
    assert "20/100  2.0 iter/s  eta 0:00:40" in text
    assert "loss 0.5000000" in text
    assert "Validation" in text
    assert "2/4" in text
    bars.stop_task("train")
    clock.now += 100
    bars.tasks["train"].measure("iter/s")
    assert bars.tasks["train"].bar.texts[0] == "1.0 iter/s"
    bars.start_task("train")
    clock.now += 2
    bars.update("train", 1)
    bars.tasks["train"].measure("iter/s")
    assert bars.tasks["train"].bar.texts == ["0.5 iter/s", "eta 0:02:38"]


def test_a_fact_on_a_device_is_not_read_by_the_display(screen: io.StringIO) -> None:
    bars = ProgressLogger("training")
    bars.add_task("train", "Training", 100, {"loss": torch.empty((), device="meta"), "psnr": torch.tensor(27.5)})
    bars.start()
    bars.stop()
    assert "\npsnr 27.5" in screen.getvalue()
    assert "loss" not in screen.getvalue()


def test_without_a_terminal_nothing_is_drawn_and_an_unknown_task_is_refused(quiet: None) -> None:
    bars = ProgressLogger("training")
    bars.add_task("train", "Training", 100)
    bars.start()
    bars.update("train")
    bars.stop()
    assert bars.tasks["train"].bar.done == 1
    with pytest.raises(HooklineError, match=r"^unknown task 'trian'; did you mean 'train'\?$"):
        bars.update("trian")


# -- writers


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_the_tensorboard_writer_writes_numbers_images_and_the_config(tmp_path: Path) -> None:
    writer = parse_writer({"writer_type": "TensorboardWriter"}, tmp_path, experiment_name="a", logcfg={"steps": 3})
    assert isinstance(writer, TensorboardWriter)
    writer.write_scalar("loss", torch.tensor(0.5, requires_grad=True), 1)
    writer.write_scalar("loss", 0.25, 2)
    writer.write_image("render", torch.rand(4, 4, 3), 2, caption="front")
    writer.finish()
    writer.write_scalar("loss", 0.125, 3)  # opens it again
    writer.finish()
    writer.finish()
    assert scalars_of(tmp_path / "tensorboard") == {"loss": [(1, 0.5), (2, 0.25), (3, 0.125)]}
    tags = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()
    assert tags["images"] == ["render"]
    assert [tag.removesuffix("/text_summary") for tag in tags["tensors"]] == ["config"]


def test_the_wandb_writer_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    writer = parse_writer({"writer_type": "WandbWriter", "tags": ["small"]}, tmp_path, experiment_name="garden")
    assert isinstance(writer, WandbWriter)
    native = writer.native.all[0]
    assert vars(native)["project"] == "pointrix-project"
    assert vars(native)["name"] == "garden"
    assert vars(native)["tags"] == ["small"]
    writer.write_scalar("loss", 0.5, 1)
    writer.finish()
    assert list((tmp_path / "wandb").glob("offline-run-*"))


def test_a_custom_writer_is_registered_and_named_in_the_config(
    tmp_path: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER_REGISTRY, "_registered", {})
    LOGGER_REGISTRY.register()(Keeps)
    trainer = SceneTrainer(config(writer={"writer_type": "Keeps"}, hooks={"log": {"name": "LogHook"}}), tmp_path)
    assert isinstance(trainer.writer, Keeps)
    assert trainer.logger is trainer.writer
    trainer.train_loop()
    (name, written, step), *calls = trainer.writer.calls
    assert (name, written["max_steps"], step) == ("config", 5, 0)
    names = dict.fromkeys(name for name, _, _ in calls)
    assert list(names) == [
        *("num_pt", "pos_lr", "loss", "L1_loss"),
        *("test_view_front.png/render", "test_view_front.png/ground_truth", "test/loss_viewpoint - psnr"),
    ]
    assert [step for name, _, step in trainer.writer.calls if name == "loss"] == [1, 2, 3, 4, 5]
    assert [step for name, _, step in trainer.writer.calls if name.startswith("test/")] == [2, 4, 5]
    assert [(shape, step) for name, shape, step in trainer.writer.calls if name.endswith("render")] == [
        ((4, 4, 3), step) for step in (2, 2, 4, 4, 5, 5)
    ]


class Text(Keeps):
    """A custom writer with a file in the folder."""

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        self.file = (work_dir / "numbers.txt").open("a")
        print(experiment_name, file=self.file)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        print(step, name, file=self.file)

    def close(self) -> None:
        self.file.close()

    def files(self) -> list[str]:
        return ["numbers.txt"]


def test_the_files_of_a_custom_writer_are_moved_away_by_a_fresh_run(tmp_path: Path, quiet: None) -> None:
    for steps in (1, 2):
        trainer = SceneTrainer(config(max_steps=steps, val_interval=0), tmp_path / "run")
        trainer.writer = Text(tmp_path / "run")
        trainer.register_hook(LogHook())
        trainer.train_loop()
    one = [f"1 {name}" for name in ("num_pt", "pos_lr", "loss", "L1_loss")]
    two = [each.replace("1", "2", 1) for each in one]
    assert (tmp_path / "run/old-1/numbers.txt").read_text().splitlines() == ["run", *one]
    assert (tmp_path / "run/numbers.txt").read_text().splitlines() == ["run", *one, *two]


def test_a_failed_validation_does_not_affect_the_next_one(tmp_path: Path, quiet: None) -> None:
    trainer = SceneTrainer(config(val_interval=0), tmp_path)
    trainer.register_hook(log := LogHook())
    trainer.writer = Keeps(tmp_path)
    whole = trainer.datapipeline.next_val
    trainer.datapipeline.next_val = lambda index: [whole(0)][index]
    with pytest.raises(IndexError):
        trainer.test()
    trainer.datapipeline.next_val = whole
    for _ in range(2):
        trainer.test()
    first, second = [value for name, value, _ in trainer.writer.calls if name.endswith("psnr")]
    assert first == second > 0
    assert log.losses_test["psnr"] == first * 2


def test_a_writer_without_one_of_the_three_methods_cannot_be_instantiated(tmp_path: Path) -> None:
    class Lacks(Writer):
        def write_scalar(self, name: str, scalar: Any, step: int) -> None: ...
        def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None: ...

    with pytest.raises(TypeError, match="abstract method '?write_config"):
        Lacks(tmp_path)  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"name": "TensorboardWriter"},
            "the config of a writer needs its class as 'writer_type'; this one has ['name']",
        ),
        (
            {"writer_type": "TensorbordWriter"},
            "unknown logger 'TensorbordWriter'; did you mean 'TensorboardWriter'?",
        ),
        (
            {"writer_type": "JsonlWriter", "file": "a"},
            "JsonlWriter has no parameter 'file'; available: experiment_name",
        ),
    ],
)
def test_an_invalid_writer_config_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_writer(given, tmp_path)
    assert str(caught.value) == message


def test_records_written_before_the_run_wait_until_it_starts(tmp_path: Path, quiet: None) -> None:
    trainer = SceneTrainer(config(max_steps=1), tmp_path)
    trainer.logger = JsonlWriter(tmp_path)
    trainer.writer.write_scalar("early", 1.0, 0)
    assert not (tmp_path / "metrics.jsonl").exists()
    trainer.train_loop()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 0, "early": 1.0}


# -- LogHook


def test_the_loss_is_shown_as_a_running_mean_that_starts_with_the_first_loss(tmp_path: Path, quiet: None) -> None:
    class Trainer(SceneTrainer):
        def train_step(self, batch: Any) -> None:
            super().train_step(batch)
            self.loss_dict = {"loss": torch.tensor({1: 1.0, 2: 2.0, 3: 4.0}[self.global_step]), "optimizer_params": {}}

    trainer = Trainer(config(max_steps=3, bar_upd_interval=1), tmp_path)
    trainer.register_hook(hook := LogHook())
    assert hook.ema_loss_for_log == 0.0
    trainer.train_loop()
    assert hook.ema_loss_for_log == pytest.approx(0.4 * 4 + 0.6 * (0.4 * 2 + 0.6 * 1))
    assert hook.bar_info == {"loss": "2.4400000", "num_pts": "6"}


def test_the_bar_and_the_table_of_a_validation(screen: io.StringIO, tmp_path: Path) -> None:
    trainer = SceneTrainer(config(hooks={"log": {"name": "LogHook"}}), tmp_path)
    trainer.train_loop()
    text = screen.getvalue()
    assert text.startswith(f"experiment folder: {tmp_path}\n")
    assert "Training" in text
    for step in (2, 4, 5):
        assert f"validation after step {step}" in text
    assert "psnr" in text
    assert "lpips" not in text
    assert Logger.terminal.progress is None


def test_log_hook_works_without_points_group_names_and_a_writer(tmp_path: Path, quiet: None) -> None:
    trainer = SceneTrainer(config(hooks={"log": {"name": "LogHook"}}), tmp_path)
    for group in trainer.optimizer.param_groups:
        del group["name"]
    trainer.writer = writer = Keeps(tmp_path)
    trainer.train_loop()
    assert "pos_lr" not in {name for name, _, _ in writer.calls}
    other = SceneTrainer(config(hooks={"log": {"name": "LogHook"}}), tmp_path / "other")
    other.train_loop()


def test_the_bar_is_removed_when_the_run_fails(screen: io.StringIO, tmp_path: Path) -> None:
    trainer = SceneTrainer(config(hooks={"log": {"name": "LogHook"}}), tmp_path)
    trainer.model.get_metric_dict = None
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        trainer.train_loop()
    assert Logger.terminal.progress is None
    LogHook().exception()  # before there is a bar
