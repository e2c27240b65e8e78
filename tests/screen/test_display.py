"""The content of the live display: lines that fit any width."""

from __future__ import annotations

import pytest

from hookline.screen.display import Bar, Picture, fold, join_fitting


def picture() -> Picture:
    bar = Bar("epoch 3/15", 45, 255, ("31.2 it/s", "eta 0:00:07"))
    return Picture(bar, ["loss 0.1243", "lr 4.82e-03", "best accuracy 0.9609", "412 MiB"], Bar("val", 3, 10))


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            100,
            [
                "epoch 3/15 ━━━━━━━━━━───────────────────────────────────────────────  45/255  31.2 it/s  eta 0:00:07",
                "loss 0.1243  lr 4.82e-03  best accuracy 0.9609  412 MiB",
                "val ━━━━━━━━━━━━━━━━━━━━━━━━━━━───────────────────────────────────────────────────────────────  3/10",
            ],
        ),
        (
            60,
            [
                "epoch 3/15 ━━━──────────────  45/255  31.2 it/s  eta 0:00:07",
                "loss 0.1243  lr 4.82e-03  best accuracy 0.9609  412 MiB",
                "val ━━━━━━━━━━━━━━━───────────────────────────────────  3/10",
            ],
        ),
        (
            40,
            [
                "epoch 3/15 ━━────────  45/255  31.2 it/s",
                "loss 0.1243  lr 4.82e-03",
                "val ━━━━━━━━━─────────────────────  3/10",
            ],
        ),
        (
            20,
            [
                "epoch 3/15 45/255",
                "loss 0.1243",
                "val ━━━───────  3/10",
            ],
        ),
    ],
)
def test_parts_that_do_not_fit_are_left_out(width: int, lines: list[str]) -> None:
    found = [line.plain for line in picture().lines(width)]
    assert found == lines
    assert max(map(len, found)) <= width


def test_a_length_that_nobody_knows_has_no_bar() -> None:
    assert Bar("iter", 45, None, ("31.2 it/s",)).line(80).plain == "iter 45  31.2 it/s"


def test_more_than_there_should_be_is_a_full_bar() -> None:
    assert Bar("val", 12, 10).line(24).plain == "val ━━━━━━━━━━━━━  12/10"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("epoch 3  val  accuracy 0.9749", 29, ["epoch 3  val  accuracy 0.9749"]),
        ("epoch 3  val  accuracy 0.9749", 28, ["epoch 3  val", "  accuracy 0.9749"]),
        ("stopped by TimeLimitHook: 10 minutes", 25, ["stopped by TimeLimitHook:", "  10 minutes"]),
        ("  indented text of a message", 16, ["  indented text", "    of a message"]),
        ("saved runs/a/long/path/to/epoch_1.pth", 12, ["saved", "  runs/a/long/path/to/epoch_1.pth"]),
        ("実験 実験", 5, ["実験", "  実験"]),
    ],
)
def test_a_line_is_broken_between_items_or_words_and_never_inside_one(text: str, width: int, lines: list[str]) -> None:
    assert fold(text, width) == lines


def test_the_current_activity_is_cut_between_words() -> None:
    shown = Picture(Bar("val", 1, None), [], "saving best_accuracy_epoch_14.pth")
    assert [line.plain for line in shown.lines(20)][-1] == "saving"


def test_at_least_the_first_text_is_there() -> None:
    assert join_fitting(["a long text", "b"], 3) == "a long text"


def test_no_name_in_the_display_breaks_its_lines_or_holds_a_code() -> None:
    name, shown = "a\x1b[2J\n\x9b\u202e", "a\\x1b[2J\\n\\x9b\\u202e"
    bar = Bar(name, 1, None, (name,))
    texts = [line.plain for line in Picture(bar, [f"best {name} 0.5", "1 MiB"], bar).lines(200)]
    assert texts == [f"{shown} 1  {shown}", f"best {shown} 0.5  1 MiB", f"{shown} 1  {shown}"]
    assert [line.plain for line in Picture(Bar("val", 1, None), [], f"saving {name}").lines(200)][
        -1
    ] == f"saving {shown}"
