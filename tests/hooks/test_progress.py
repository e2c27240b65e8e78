"""ProgressHook: what is on the screen during a run, and what remains after it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from hookline import EvalLoop
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError
from hookline.hooks import ProgressHook
from hookline.screen import display
from hookline.testing import toy_data, toy_runner

if TYPE_CHECKING:
    from hookline import Runner
    from hookline.screen.display import Picture


def watched(hook: ProgressHook, monkeypatch: pytest.MonkeyPatch, width: int = 100, **parts: Any) -> tuple[Any, Runner]:
    """Return the pictures of a run that draws as often as possible, and the run."""
    monkeypatch.setattr(display, "PAUSE", 0.0)
    monkeypatch.setattr(display, "SHARE", float("inf"))
    parts = {"batches": 3, "max_epochs": 2, **parts}
    runner = toy_runner(custom_hooks=[hook], **parts)
    runner.terminal.quiet = False
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    runner.terminal._console = screen
    pictures: list[list[str]] = []
    draw = runner.terminal._draw

    def note(picture: Picture) -> None:
        pictures.append([line.plain for line in picture.lines(width)])
        draw(picture)

    monkeypatch.setattr(runner.terminal, "_draw", note)
    monkeypatch.setattr(ProgressHook, "_memory", lambda self, runner: "9 MiB")
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
    assert [plain(lines) for lines in pictures] == [
        ["epoch 1/2 0/6", "9 MiB"],
        ["epoch 1/2 1/6", f"{facts[0]} 9 MiB"],
        ["epoch 1/2 2/6", f"{facts[1]} 9 MiB"],
        ["epoch 1/2 3/6", f"{facts[2]} 9 MiB"],
        ["epoch 1/2 3/6", f"{facts[2]} 9 MiB", "val 1/2"],
        ["epoch 1/2 3/6", f"{facts[2]} 9 MiB", "val 2/2"],
        ["epoch 2/2 4/6", f"{facts[3]} {best} 9 MiB"],
        ["epoch 2/2 5/6", f"{facts[4]} {best} 9 MiB"],
        ["epoch 2/2 6/6", f"{facts[5]} {best} 9 MiB"],
        ["epoch 2/2 6/6", f"{facts[5]} {best} 9 MiB", "val 1/2"],
        ["epoch 2/2 6/6", f"{facts[5]} {best} 9 MiB", "val 2/2"],
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
def test_what_is_saved_as_best_is_shown_as_best(
    saving: dict[str, Any], shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    val = EvalLoop(toy_data(2, seed=1), predict, metrics={"accuracy": accuracy}, loss=cross_entropy)
    pictures, runner = watched(
        ProgressHook(), monkeypatch, width=200, max_epochs=3, val=val, default_hooks={"checkpoint": saving}
    )
    runner.train()
    # The last picture was drawn in the third validation, so it shows the best of the first two.
    assert [fact for fact in pictures[-1][1].split("  ") if fact.startswith("best ")] == [
        f"best {name} {better(runner.hub.get_scalar(f'val/{name}').last()[:2]):.4f}" for name, better in shown.items()
    ]


def test_a_chosen_metric_is_shown_whatever_is_saved_as_best(monkeypatch: pytest.MonkeyPatch) -> None:
    saving = {"checkpoint": {"save_best": "accuracy"}}
    pictures, runner = watched(
        ProgressHook(monitor="accuracy", rule="less"), monkeypatch, width=200, max_epochs=3, default_hooks=saving
    )
    runner.train()
    worst = min(runner.hub.get_scalar("val/accuracy").last()[:2])
    assert f"best accuracy {worst:.4f}" in pictures[-1][1]


def test_a_save_is_named_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch, max_epochs=1, val=None)
    runner.train()
    assert [lines[-1] for lines in pictures if lines[-1].startswith("saving")] == ["saving epoch_1.pth"]


def test_a_test_has_its_own_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(ProgressHook(), monkeypatch)
    runner.test()
    assert [plain(lines) for lines in pictures] == [["test 1/2", "9 MiB"], ["test 2/2", "9 MiB"]]


def test_the_loss_may_be_an_exponential_average(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, runner = watched(
        ProgressHook(smoothing_factor=0.25), monkeypatch, val=None, default_hooks={"checkpoint": None}
    )
    runner.train()
    losses = runner.hub.get_scalar("train/loss").last()
    expected, average = [], losses[0]
    for loss in losses:
        average = 0.75 * average + 0.25 * loss
        expected.append(f"loss {average:.4f}")
    assert [lines[1].split("  ")[0] for lines in pictures[1:]] == expected


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
def test_what_cannot_be_is_refused(parameters: dict[str, Any], message: str) -> None:
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
    assert (len(pictures), runner.terminal.progress, runner.terminal._picture) == (drawn, None, None)
