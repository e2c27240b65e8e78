"""The tutorial, typed into a shell as a reader does; `tests/transcripts.py` says how a page is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import transcripts

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"


@pytest.mark.long
@pytest.mark.processes
def test_every_command_of_the_tutorial_shows_the_output_that_is_printed_below_it(tmp_path: Path) -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    different = {
        command.text: output for command, output in transcripts.run(page, tmp_path) if not command.matches(output)
    }
    assert different == {}, "if these outputs are right, run `python -m tests.transcripts docs/tutorial.md`"


def test_an_output_may_differ_in_numbers_and_widths_only() -> None:
    command = transcripts.Command("hookline train", ["epoch 1/3  loss 1.5296", "│ run   │"])
    assert command.matches(["epoch 2/30  loss 2.0e-04", "│ run │"])
    assert not command.matches(["epoch 1/3  lost 1.5296", "│ run   │"])
    assert not command.matches(["epoch 1/3  loss 1.5296"])


def test_a_gap_stands_for_any_number_of_lines() -> None:
    command = transcripts.Command("hookline train", ["begin", "...", "in 3 s", "...", "end"])
    assert command.matches(["begin", "one", "in 12 s", "two", "three", "end"])
    assert command.matches(["begin", "in 12 s", "end"])
    assert not command.matches(["begin", "one", "end"])
    assert not command.matches(["begin", "in 12 s", "last"])
    assert command.rewritten(["start", "one", "in 12 s", "two", "last"]) == ["start", "...", "in 12 s", "...", "last"]


def test_a_line_between_gaps_that_has_changed_a_little_is_found_but_does_not_match() -> None:
    command = transcripts.Command("hookline train", ["...", "epoch 1  val  accuracy 0.9", "..."])
    output = ["one", "epoch 1  val  accuracy 0.9  train loss 0.1", "two"]
    assert not command.matches(output)
    assert command.rewritten(output) == ["...", "epoch 1  val  accuracy 0.9  train loss 0.1", "..."]


@pytest.mark.processes
def test_a_page_is_rewritten_with_its_real_outputs(tmp_path: Path) -> None:
    page = 'A page.\n\n```text title="a.txt"\none\ntwo\n```\n\n```console\n$ cat a.txt\nold\n$ mkdir b && cd b\n```\n'
    page += '\n```text title="c.txt"\n3\n```\n\n```console\n$ cat ../a.txt c.txt\none\n...\n9\n```\n'
    expected = page.replace("old", "one\ntwo").replace("9", "3")
    assert transcripts.rewritten(page, transcripts.run(page, tmp_path)) == expected
