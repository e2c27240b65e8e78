"""ProgressHook: what is on the screen during a run, and what remains after it."""

from __future__ import annotations

import io
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console

from hookline import EvalLoop
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError
from hookline.hooks import ProgressHook
from hookline.screen import refresh
from hookline.screen.console import LiveScreen
from hookline.testing import toy_data, toy_runner

if TYPE_CHECKING:
    from hookline import Runner
    from hookline.screen.display import Picture


def watched(hook: ProgressHook, monkeypatch: pytest.MonkeyPatch, width: int = 100, **parts: Any) -> tuple[Any, Runner]:
    """Return the pictures of a run whose display is drawn after every batch, and never by time; and the run."""
    monkeypatch.setattr(refresh, "PAUSE", 1e6)
    parts = {"batches": 3, "max_epochs": 2, **parts}
    runner = toy_runner(custom_hooks=[hook], **parts)
    runner.terminal.quiet = False
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    runner.terminal._console = screen
    pictures: list[list[str]] = []
    draw = LiveScreen.draw

    def note(self: LiveScreen, picture: Picture) -> None:
        pictures.append([line.plain for line in picture.lines(width)])
        draw(self, picture)

    monkeypatch.setattr(LiveScreen, "draw", note)
    monkeypatch.setattr(ProgressHook, "_memory", lambda self, runner: "9 MiB")
    for point in ("after_train_iter", "after_val_iter", "after_test_iter"):
        runner.on(point, priority=100)(lambda runner: runner.terminal.redraw())
    return pictures, runner


def plain(lines: list[str]) -> list[str]:
    """Return the text without bars and times."""
    kept = [" ".join(part for part in line.split() if not set(part) & {"━", "─", "▉"}) for line in lines]
    return [line.partition(" it/s")[0].rsplit(" ", 1)[0] if " it/s" in line else line for line in kept]


def test_training_and_validation_are_shown_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch, default_hooks={"checkpoint": None})
    runner.train()
    losses = runner.hub.get_scalar("train/loss").last()
    accuracy = runner.hub.get_scalar("val/accuracy").last()
    mean = [f"{sum(losses[:n]) / n:.4f}" for n in range(1, 7)]
    facts = [f"loss {mean[n]} lr 0.1000" for n in range(6)]
    best = f"best accuracy {accuracy[0]:.4f}"
    last = f"best accuracy {max(accuracy):.4f}"
    # The iteration whose end is drawn is not yet counted.
    assert [plain(lines) for lines in pictures] == [
        ["epoch 1/2 0/6", "9 MiB"],
        ["epoch 1/2 0/6", f"{facts[0]} 9 MiB"],
        ["epoch 1/2 1/6", f"{facts[1]} 9 MiB"],
        ["epoch 1/2 2/6", f"{facts[2]} 9 MiB"],
        ["epoch 1/2 3/6", f"{facts[2]} 9 MiB", "val 1/2"],
        ["epoch 1/2 3/6", f"{facts[2]} 9 MiB", "val 2/2"],
        ["epoch 2/2 3/6", f"{facts[3]} {best} 9 MiB"],
        ["epoch 2/2 4/6", f"{facts[4]} {best} 9 MiB"],
        ["epoch 2/2 5/6", f"{facts[5]} {best} 9 MiB"],
        ["epoch 2/2 6/6", f"{facts[5]} {best} 9 MiB", "val 1/2"],
        ["epoch 2/2 6/6", f"{facts[5]} {best} 9 MiB", "val 2/2"],
        ["epoch 2/2 6/6", f"{facts[5]} {last} 9 MiB"],
    ]
    assert runner.terminal.progress is None


@pytest.mark.parametrize(
    ("saving", "shown"),
    [
        ({"save_best": "loss"}, {"loss": min}),
        ({"save_best": ["loss", "accuracy"]}, {"loss": min, "accuracy": max}),
        ({"save_best": "accuracy", "rule": "less"}, {"accuracy": min}),
        ({}, {"accuracy": max}),  # nothing is saved as best
    ],
)
def test_metrics_saved_as_best_are_shown_as_best(
    saving: dict[str, Any], shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    val = EvalLoop(toy_data(2, seed=1), predict, metrics={"accuracy": accuracy}, loss=cross_entropy)
    pictures, runner = watched(
        ProgressHook(), monkeypatch, width=200, max_epochs=3, val=val, default_hooks={"checkpoint": saving}
    )
    runner.train()
    assert [fact for fact in pictures[-1][1].split("  ") if fact.startswith("best ")] == [
        f"best {name} {better(runner.hub.get_scalar(f'val/{name}').last()):.4f}" for name, better in shown.items()
    ]


def test_a_chosen_metric_is_shown_whatever_is_saved_as_best(monkeypatch: pytest.MonkeyPatch) -> None:
    saving = {"checkpoint": {"save_best": "accuracy"}}
    pictures, runner = watched(
        ProgressHook(monitor="accuracy", rule="less"), monkeypatch, width=200, max_epochs=3, default_hooks=saving
    )
    runner.train()
    worst = min(runner.hub.get_scalar("val/accuracy").last())
    assert f"best accuracy {worst:.4f}" in pictures[-1][1]


def test_a_save_is_named_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch, max_epochs=2, val=None)
    kind = type(runner.strategy.checkpoints)
    write = kind.write

    def write_and_draw(*given: Any) -> Any:
        runner.terminal.redraw()
        return write(*given)

    monkeypatch.setattr(kind, "write", write_and_draw)
    runner.train()
    drawn = [(plain(lines)[0], lines[-1] if lines[-1].startswith("saving") else "") for lines in pictures]
    assert drawn[4:] == [
        ("epoch 1/2 3/6", "saving epoch_1.pth"),
        ("epoch 2/2 3/6", ""),
        ("epoch 2/2 4/6", ""),
        ("epoch 2/2 5/6", ""),
        ("epoch 2/2 6/6", "saving epoch_2.pth"),
        ("epoch 2/2 6/6", ""),
    ]


def test_a_test_has_its_own_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch)
    runner.test()
    assert [plain(lines) for lines in pictures] == [["test 1/2", "9 MiB"], ["test 2/2", "9 MiB"]]


@pytest.mark.parametrize("factor", [0.25, 1.0])
def test_the_loss_may_be_an_exponential_average(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(
        ProgressHook(smoothing_factor=factor), monkeypatch, val=None, default_hooks={"checkpoint": None}
    )
    runner.train()
    losses = runner.hub.get_scalar("train/loss").last()
    expected = []
    for number in range(1, 7):
        weights = [(1 - factor) ** age for age in reversed(range(number))]
        total = sum(weight * loss for weight, loss in zip(weights, losses[:number], strict=True))
        expected.append(f"loss {total / sum(weights):.4f}")
    assert [lines[1].split("  ")[0] for lines in pictures[1:]] == [*expected, expected[-1]]


def test_no_step_draws_and_the_thread_that_does_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "SHARE", float("inf"))
    _, runner = watched(ProgressHook(), monkeypatch, max_epochs=1, val=None)
    runner.plan.remove(next(entry.hook for entry in runner.plan if entry.name == "<lambda>"))
    monkeypatch.setattr(refresh, "PAUSE", 0.001)
    drawers: list[tuple[str, bool]] = []
    drawn, steps, draw = threading.Event(), [False], LiveScreen.draw

    def note(self: LiveScreen, picture: Picture) -> None:
        drawers.append((threading.current_thread().name, steps[0]))
        draw(self, picture)
        drawn.set()

    @runner.on("before_train_iter", priority=0)
    def begin() -> None:
        steps[0] = True

    @runner.on("after_train_iter", priority=100)
    def wait() -> None:
        drawn.clear()
        assert drawn.wait(60)
        steps[0] = False

    monkeypatch.setattr(LiveScreen, "draw", note)
    runner.train()
    assert {name for name, in_step in drawers if in_step} == {"hookline-display"}
    assert (drawers[0], drawers[-1]) == (("MainThread", False), ("MainThread", False))
    assert [name for name, _ in drawers].count("MainThread") == 2
    assert "hookline-display" not in [thread.name for thread in threading.enumerate()]
    assert not [call for call in runner.plan.calls_at("after_train_iter") if call.who == "ProgressHook"]


def test_a_display_changes_no_result_and_no_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def results(*hooks: ProgressHook) -> list[Any]:
        random.seed(1)
        runner = toy_runner(custom_hooks=list(hooks), batches=3, max_epochs=2, seed=0)
        runner.terminal.quiet = False
        runner.terminal._console = Console(file=io.StringIO(), force_terminal=True, width=80)
        runner.on("after_train_iter")(lambda runner: runner.terminal.redraw())
        runner.train()
        weights = [parameter.tolist() for parameter in runner.model.parameters()]
        return [weights, random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())]

    results(ProgressHook())  # everything is imported
    assert results(ProgressHook()) == results()


def test_the_display_never_reads_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _, runner = watched(ProgressHook(), monkeypatch, max_epochs=1, val=None)
    hub = runner.hub
    for value in (1.0, 3.0, torch.tensor(5.0), torch.empty((), device="meta")):  # reading this one would fail
        hub.history("train/loss").values.append(value)
    hub.history("train/lr").values.append(torch.empty((), device="meta"))
    assert ProgressHook()._facts(runner) == ["loss 3.0000", "9 MiB"]


def test_a_metric_that_a_hook_is_just_adding_is_shown_at_the_next_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = ProgressHook()
    _, runner = watched(hook, monkeypatch, default_hooks={"checkpoint": {"save_best": "accuracy"}})
    runner.train()
    shown = hook._best_values(runner)
    assert list(shown) == ["accuracy"]

    def changed(runner: Runner) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    saving = next(entry.hook for entry in runner.plan if entry.name == "CheckpointHook")
    monkeypatch.setattr(saving, "saved_as_best", changed)
    assert hook._best_values(runner) == shown


def test_without_a_screen_nothing_is_called() -> None:
    runner = toy_runner(custom_hooks=[ProgressHook()])
    runner.plan.skip_idle_points()
    assert not [
        call for name in runner.plan.points for call in runner.plan.calls_at(name) if call.who == "ProgressHook"
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 0}, "ProgressHook: window must be an int of at least 1, not 0"),
        ({"smoothing_factor": 0}, "ProgressHook: smoothing_factor must be a number above 0, not 0"),
        ({"smoothing_factor": 2}, "ProgressHook: smoothing_factor must be at most 1, not 2"),
        (
            {"monitor": "x"},
            "ProgressHook: the name 'x' does not show whether higher or lower is better; set rule: greater or "
            "rule: less",
        ),
    ],
)
def test_invalid_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProgressHook(**parameters)
    assert str(refused.value) == message


def test_nothing_is_drawn_after_a_run_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch)
    runner.on("before_val_iter")(lambda runner: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()
    drawn = len(pictures)
    runner.plan.remove(next(entry.hook for entry in runner.plan if entry.name == "<lambda>"))
    runner.val()
    assert (len(pictures), runner.terminal.progress, runner.terminal._refresher) == (drawn, None, None)


def test_a_run_that_resumes_with_fewer_batches_ends_at_its_last_iteration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy_runner(work_dir=tmp_path, batches=6, max_epochs=2, val=None).train()
    parts: dict[str, Any] = {
        "work_dir": tmp_path,
        "batches": 2,
        "max_epochs": 4,
        "val": None,
        "resume": True,
        "keep": "config",
    }
    pictures, runner = watched(ProgressHook(), monkeypatch, **parts)
    etas: list[float] = []
    runner.on("after_train_iter", priority=100)(lambda runner: etas.append(runner.hub.get_info("eta")))
    runner.train()
    assert [plain(lines)[0] for lines in pictures] == [
        *("epoch 2/4 12/16", "epoch 3/4 12/16", "epoch 3/4 13/16", "epoch 4/4 14/16", "epoch 4/4 15/16"),
        "epoch 4/4 16/16",
    ]
    times = runner.hub.get_scalar("train/time").last()[-4:]
    assert etas == pytest.approx([sum(times[:n]) / n * (4 - n) for n in range(1, 5)])
