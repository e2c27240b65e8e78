"""Terminal: showing lines never ends a run, and run.log has all of them, without control characters."""

from __future__ import annotations

import io
import logging
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from hookline.common.numbers import as_number
from hookline.screen.console import LiveScreen
from hookline.screen.display import Bar, Picture
from hookline.screen.terminal import Terminal, TerminalHandler
from hookline.testing import toy_runner

TRAINS = """
from hookline.testing import toy_runner
runner = toy_runner(quiet=False, default_hooks={"logger": {"interval": 1}}, batches=50, work_dir="run")
runner.train()
open("ended", "w").write(str(runner.iter))
"""


def test_a_run_continues_when_nobody_reads_its_output(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINS], cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE, text=True
    )
    os.close(writes)
    os.read(reads, 1)
    os.close(reads)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors, (tmp_path / "ended").read_text()) == (0, "", "100")
    lines = (tmp_path / "run" / "run.log").read_text().splitlines()
    assert sum("  iter " in line for line in lines) == 100


def test_letters_that_a_screen_cannot_show_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    terminal = Terminal()
    terminal.say("größe")
    terminal.detail(lambda: "naïve")
    terminal.flush()
    screen.seek(0)
    assert screen.read() == "gr\\xf6\\xdfe\nna\\xefve\n"


def test_a_bar_is_plain_where_the_screen_knows_no_lines() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=file, width=40, color_system=None).print(Picture(Bar("epoch 1/2", 3, 6)))
    file.seek(0)
    assert file.read() == "epoch 1/2 ============-------------  3/6\n"


def test_a_full_disk_under_run_log_is_reported_once_and_costs_lines_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "run.log").write_text("from before\n")
    terminal = Terminal()
    terminal.open_log(tmp_path / "run.log")
    resource.setrlimit(resource.RLIMIT_FSIZE, (12, before[1]))
    try:
        terminal.say("one")
        terminal.say("two")
        terminal.close_log()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().out == (
        "one\nwarning: run.log cannot be written: File too large; the run continues\ntwo\n"
    )
    assert (tmp_path / "run.log").read_text() == "from before\n"


def test_a_line_is_in_the_log_at_once_and_without_control_characters(tmp_path: Path) -> None:
    terminal = Terminal(quiet=True)
    terminal.open_log(tmp_path / "run.log")
    terminal.say("a\x1b[31mred\x07 thing :key: and\ttab\nnext line")
    assert (tmp_path / "run.log").read_text().partition("  ")[
        2
    ] == "a\\x1b[31mred\\x07 thing :key: and\ttab\nnext line\n"
    terminal.close_log()


def test_no_code_in_a_text_reaches_the_screen_or_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda *given: "now")
    terminal = Terminal()
    terminal.open_log(tmp_path / "run.log")
    code, shown = (
        "\x1b]0;title\x07\x9b2J\r\u202e\u200b\ud800\n  more",
        "\\x1b]0;title\\x07\\x9b2J\\r\\u202e\\u200b\\ud800",
    )
    terminal.say(f"say {code}")
    terminal.detail(lambda: f"detail {code}")
    terminal.note(f"note {code}")
    terminal.show(Text("show \x1b[2J\x9b"))
    log = logging.Logger("a logger", logging.INFO)
    log.addHandler(TerminalHandler(terminal))
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        log.warning("warn %s", code, exc_info=True)
    terminal.close_log()
    lines = (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
    assert [lines[0], lines[2], lines[4], lines[6], lines[7], lines[-1]] == [
        f"now  say {shown}",
        f"now  detail {shown}",
        f"now  note {shown}",
        "show \\x1b[2J\\x9b",
        f"now  warning: warn {shown}",
        "ValueError: \\x1b[2J",
    ]
    out = capsys.readouterr().out.splitlines()
    assert [out[0], out[2], out[4], out[5], out[-1]] == [
        f"say {shown}",
        f"detail {shown}",
        "show \\x1b[2J\\x9b",
        f"warning: warn {shown}",
        "ValueError: \\x1b[2J",
    ]


def test_no_name_means_a_picture_or_a_colour(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "lr[bold] s3:key:weights a[/b]", max_epochs=1)
    runner.train()
    runner.hub.update_scalar("val/acc[macro]", 0.5)
    runner.terminal.quiet = False
    terminal = Terminal()
    terminal.say("saved s3:key:weights")
    terminal.show(runner.summary())
    shown = capsys.readouterr().out.replace("\n", "")
    assert "saved s3:key:weights" in shown
    assert "lr[bold] s3:key:weights a[/b]" in shown
    assert "val acc[macro]" in shown


def test_on_a_narrow_screen_paths_of_the_closing_table_wrap(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "a_run_with_quite_a_long_name", max_epochs=1)
    runner.train()
    file = io.StringIO()
    Console(file=file, width=40).print(runner.summary())
    cells = "".join(line.split("│")[2].strip() for line in file.getvalue().splitlines() if "│" in line)
    assert str(runner.work_dir / "epoch_1.pth") in cells


def test_a_narrower_screen_has_wrapped_the_display_which_is_taken_back_whole() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    live = Live(console=console, transient=True, auto_refresh=False)
    screen = LiveScreen(console, live)
    with live:
        screen.draw(Picture(Bar("epoch 1/2", 3, 6), ["loss 0.5000"]))
        file: Any = console.file
        file.truncate(0)
        console.width = 25
        screen.draw(Picture(Bar("epoch 1/2", 4, 6), ["loss 0.4000"]))
        # The bar of 55 cells now takes three rows of 25: the cursor must go up two rows more than there are lines.
        assert file.getvalue().lstrip("\0").startswith("\x1b[2K\x1b[1A" * 2 + "\r\x1b[2K\x1b[1A\x1b[2K")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (5.0, 0, "5"),
        (0.5, 0, "5.0e-01"),
        (0.5, 1, "0.5"),
        (0.05, 1, "5.0e-02"),
        (0.05, 4, "0.0500"),
        (3e-5, 4, "3.00e-05"),
    ],
)
def test_a_number_has_its_digits_where_that_says_something(value: float, digits: int, text: str) -> None:
    assert as_number(value, digits) == text


def test_a_stream_that_cannot_say_whether_it_is_a_terminal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None: ...

    stream = Tee()
    monkeypatch.setattr(sys, "stdout", stream)
    toy_runner(quiet=False, max_epochs=1).train()
    assert "accuracy" in stream.text
