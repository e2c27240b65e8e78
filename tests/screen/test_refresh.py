"""The thread of the display: when it draws, that it ends, and that it disturbs nobody."""

from __future__ import annotations

import io
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookline.screen import console, refresh
from hookline.screen.display import Bar, Picture
from hookline.screen.refresh import Refresher
from hookline.screen.terminal import Terminal
from tests.screen.emulator import run_on_a_terminal, shown_after

OnTty = Callable[[], tuple[Terminal, "Tty"]]

#: Long enough on any machine. A test that passes never waits as long.
PATIENCE = 60


class Tty(io.StringIO):
    """A terminal that keeps all that is written, and calls a function before each write."""

    def __init__(self, before: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self._before = before

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._before()
        return super().write(text)


def displays() -> list[threading.Thread]:
    """Return the threads of displays."""
    return [thread for thread in threading.enumerate() if thread.name == "hookline-display"]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let displays be drawn again and again."""
    monkeypatch.setattr(refresh, "PAUSE", 0.001)
    monkeypatch.setattr(refresh, "SHARE", float("inf"))


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads of displays wait forever."""
    monkeypatch.setattr(refresh, "PAUSE", 1e6)


@pytest.fixture
def on_tty(monkeypatch: pytest.MonkeyPatch) -> OnTty:
    """Return a function that replaces the standard output by a terminal, and returns both sides of it."""

    def replace() -> tuple[Terminal, Tty]:
        file = Tty()
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "40")
        return Terminal(), file

    return replace


@pytest.mark.parametrize(("took", "pause"), [(0.0005, 0.25), (0.0025, 0.25), (0.01, 1.0), (0.1, 10.0)])
def test_it_is_drawn_four_times_a_second_at_most_and_for_a_hundredth_of_the_time(
    took: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "thread_time", itertools.count(10.0, took).__next__)
    refresher = Refresher(lambda: None)
    refresher.draw()
    assert refresher.pause == pytest.approx(pause)


def test_the_thread_draws_until_it_is_stopped(fast: None) -> None:
    drawers: list[threading.Thread] = []
    enough = threading.Event()

    def draw() -> None:
        drawers.append(threading.current_thread())
        if len(drawers) == 4:
            enough.set()

    refresher = Refresher(draw)
    refresher.start()
    assert enough.wait(PATIENCE)
    (thread,) = displays()
    assert thread.daemon
    refresher.stop()
    drawn = len(drawers)
    assert displays() == []
    assert drawers == [threading.current_thread(), *[thread] * (drawn - 1)]
    refresher.stop()  # a second call does nothing
    assert len(drawers) == drawn


def test_a_drawing_that_fails_is_reported_once_and_is_the_last_one(
    fast: None, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def draw() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 2:
            raise ValueError("no colors")

    refresher = Refresher(draw)
    refresher.start()
    with_failure = caplog.messages
    deadline = time.monotonic() + PATIENCE
    while not with_failure and time.monotonic() < deadline:
        time.sleep(0.001)
        with_failure = caplog.messages
    refresher.draw()
    refresher.stop()
    assert calls == ["MainThread", "hookline-display"]
    assert caplog.messages == [
        "the progress display stops, because it cannot be drawn (ValueError: no colors); the run continues"
    ]


def test_a_run_continues_if_the_system_has_no_thread_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    refresher = Refresher(lambda: None)
    refresher.start()
    refresher.stop()
    assert [message.partition("(")[2] for message in caplog.messages] == [
        "RuntimeError: can't start new thread); the run continues"
    ]


def picture() -> Picture:
    return Picture(Bar("val", 1, 2), ["loss 0.5"])


@contextmanager
def ends_with(error: BaseException | None) -> Iterator[None]:
    if error is None:
        yield
        return
    with pytest.raises(type(error)):
        yield


@pytest.mark.parametrize("error", [None, ValueError(), KeyboardInterrupt(), SystemExit(143)])
def test_however_the_context_ends_the_thread_has_ended_and_the_screen_is_empty(
    error: BaseException | None, fast: None, on_tty: OnTty
) -> None:
    (terminal, tty), drawn = on_tty(), threading.Event()

    def make() -> Picture:
        if threading.current_thread() is not threading.main_thread():
            drawn.set()
        return picture()

    with ends_with(error), terminal.live(make):
        assert drawn.wait(PATIENCE)
        if error is not None:
            raise error
    assert (displays(), terminal.progress) == ([], None)
    assert sys.stdout is tty
    written = tty.getvalue()
    assert [line for line in shown_after(written) if line] == []
    terminal.redraw()
    terminal.say("after it")
    assert tty.getvalue()[len(written) :] == "after it\n"


def test_nothing_is_drawn_after_the_end_even_if_waiting_for_the_thread_is_interrupted(
    fast: None, on_tty: OnTty, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal, tty), asked, may_go_on = on_tty(), threading.Event(), threading.Event()

    def make() -> Picture:
        if threading.current_thread() is not threading.main_thread():
            asked.set()
            assert may_go_on.wait(PATIENCE)
        return picture()

    def interrupt(thread: threading.Thread, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    shown = terminal.live(make)
    shown.__enter__()
    assert asked.wait(PATIENCE)
    (thread,) = displays()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shown.__exit__(None, None, None)
    written = tty.getvalue()
    may_go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert tty.getvalue() == written


def test_first_and_last_state_are_drawn_by_the_caller(never: None, on_tty: OnTty) -> None:
    (terminal, tty), done = on_tty(), iter(range(10))
    with terminal.live(lambda: Picture(Bar("val", next(done), 9))):
        terminal.say("a line")
    assert [part.partition("\x1b")[0] for part in tty.getvalue().split("  ") if "/9" in part] == [
        *["0/9\r"] * 2,  # and again below the line
        *["1/9\r"] * 1,
        "1/9\n",  # rich draws once more before it erases
    ]


def test_a_screen_that_somebody_else_uses_is_drawn_later(
    never: None, on_tty: OnTty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookline.screen.terminal.PAUSE", 0.01)
    terminal, tty = on_tty()
    with terminal.live(picture):
        written = tty.getvalue()
        with terminal._lock:
            other = threading.Thread(target=terminal.redraw)
            other.start()
            other.join(PATIENCE)
            assert not other.is_alive()
            assert tty.getvalue() == written
        terminal.redraw()
        assert tty.getvalue() != written


def test_a_print_waits_until_a_drawing_is_complete(never: None, on_tty: OnTty) -> None:
    """Otherwise both would erase the lines of the same display, and one of them a line too many or too few."""
    (terminal, _), order = on_tty(), list[str]()

    def print_line() -> None:
        print("a line")
        order.append("printed")

    with terminal.live(picture):
        with terminal._lock:
            other = threading.Thread(target=print_line)
            other.start()
            other.join(0.2)  # a print that does not wait is over by now
            order.append("drawn")
        other.join(PATIENCE)
    assert order == ["drawn", "printed"]


def test_no_lock_is_taken_in_another_order_when_a_display_begins_and_ends(fast: None, on_tty: OnTty) -> None:
    (terminal, tty), over = on_tty(), threading.Event()

    def say() -> None:
        while not over.is_set():
            terminal.say("a line")

    others = [threading.Thread(target=say) for _ in range(2)]
    for each in others:
        each.start()
    for _ in range(20):
        with terminal.live(picture):
            print("from here")
    over.set()
    for each in others:
        each.join(PATIENCE)
        assert not each.is_alive()
    lines = shown_after(tty.getvalue().replace("\n", "\r\n"))
    assert set(lines) == {"a line", "from here", ""}
    assert lines.count("from here") == 20


def test_handlers_that_log_to_the_real_streams_write_above_the_display(never: None, on_tty: OnTty) -> None:
    terminal, tty = on_tty()
    logger, handler = logging.Logger("a logger"), logging.StreamHandler(tty)
    logging.getLogger("hookline.test").addHandler(handler)
    logger.addHandler(handler)
    try:
        with terminal.live(picture):
            logger.warning("a message")
        assert shown_after(tty.getvalue().replace("\n", "\r\n"))[0] == "a message"
        assert handler.stream is tty
    finally:
        logging.getLogger("hookline.test").removeHandler(handler)


def test_a_warning_does_not_color_the_display(never: None, on_tty: OnTty, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, tty = on_tty()
    with terminal.live(picture):
        written = tty.getvalue()
        terminal.say("careful", "yellow")
        assert tty.getvalue()[len(written) :].count("\x1b[33m") == 1


def test_a_detail_of_a_step_does_not_wait_for_a_drawing(on_tty: OnTty, never: None) -> None:
    terminal, tty = on_tty()
    terminal._flushed = float("inf")  # nothing is written yet
    with terminal.live(picture):
        holds, over = threading.Event(), threading.Event()

        def draw() -> None:
            with terminal._lock:
                holds.set()
                assert over.wait(PATIENCE)

        other = threading.Thread(target=draw)
        other.start()
        assert holds.wait(PATIENCE)
        terminal.detail(lambda: "a detail")  # would wait forever
        assert len(terminal._waiting) == 1
        over.set()
        other.join()
    assert len(terminal._waiting) == 0
    assert "a detail" not in tty.getvalue()  # it is in the log, and the display has shown the same


# ------------------------------------------------------------------------------------------------- in a real terminal

FAST = """
import hookline.screen.refresh
hookline.screen.refresh.PAUSE, hookline.screen.refresh.SHARE = 0.001, float("inf")
"""

NOISY = (
    FAST
    + """
import logging, os, random, sys, threading, time, warnings
logging.basicConfig(format="%(message)s")  # a handler with the real standard error

from hookline.hooks import ProgressHook
from hookline.testing import toy_runner

runner = toy_runner(quiet=False, custom_hooks=[ProgressHook()], batches=25, max_epochs=2, work_dir="run")
hookline_log = logging.getLogger("hookline")

@runner.on("after_train_iter")
def make_noise(runner):
    number = runner.iter
    print(f"{number} printed")
    print(f"{number} to the standard error", file=sys.stderr)
    logging.warning(f"{number} logged")
    hookline_log.warning(f"{number} by a hook")
    time.sleep(random.random() / 100)
    sys.stdout.flush()

runner.train()
print([thread.name for thread in threading.enumerate()])
"""
)


def test_lines_of_everybody_stay_whole_while_the_display_is_drawn(tmp_path: Path) -> None:
    code, written = run_on_a_terminal(NOISY, tmp_path)
    assert code == 0, written
    lines = [line for line in shown_after(written) if line]
    for epoch, begin in ((1, 0), (2, 25)):
        noise = [
            f"{number} {how}"
            for number in range(begin, begin + 25)
            for how in ("printed", "to the standard error", "logged")
        ]
        warned = [f"warning: {number} by a hook" for number in range(begin, begin + 25)]
        expected = [line for n in range(25) for line in (*noise[3 * n : 3 * n + 3], warned[n])]
        place = (begin // 25) * 101
        assert lines[place : place + 100] == expected
        assert lines[place + 100].startswith(f"epoch {epoch}  val")
    assert lines[202:] == ["['MainThread']"]
    assert written.count("━") > 0


INTERRUPTED = (
    FAST
    + """
import os, signal, sys, threading, time
from hookline.hooks import ProgressHook
from hookline.testing import toy_runner

runner = toy_runner(quiet=False, custom_hooks=[ProgressHook()], batches=3, work_dir="run")

@runner.on("after_train_iter")
def interrupt(runner):
    if runner.iter == 1:
        os.kill(os.getpid(), signal.{signal})
        time.sleep(0.1)

try:
    runner.train()
except BaseException as error:
    print(type(error).__name__, [thread.name for thread in threading.enumerate()])
"""
)


@pytest.mark.parametrize(("signal", "error"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "SystemExit")])
def test_a_signal_is_answered_above_the_display_and_ends_it(signal: str, error: str, tmp_path: Path) -> None:
    code, written = run_on_a_terminal(INTERRUPTED.replace("{signal}", signal), tmp_path)
    assert code == 0, written
    assert [line for line in shown_after(written) if line] == [
        "Finishing the step and saving. Press Ctrl-C again to quit immediately.",
        f"ended by {signal} after iteration 2: saved run/iter_2.pth",
        "Continue with: Runner(..., resume=True).train()",
        f"{error} ['MainThread']",
    ]


FORKS = (
    FAST
    + """
import os, sys
from hookline.hooks import ProgressHook
from hookline.testing import toy_runner

runner = toy_runner(quiet=False, custom_hooks=[ProgressHook()], batches=30, max_epochs=1, val=None, work_dir="run")

@runner.on("after_train_iter")
def fork(runner):
    child = os.fork()
    if child == 0:
        print(runner.iter, "in another process", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

runner.train()
"""
)


def test_processes_that_are_forked_while_the_display_is_drawn_can_print(tmp_path: Path) -> None:
    code, written = run_on_a_terminal(FORKS, tmp_path)
    assert code == 0, written
    assert [line for line in shown_after(written) if line] == [f"{number} in another process" for number in range(30)]


NEVER_CLOSED = (
    FAST
    + """
import time
from hookline.screen.display import Bar, Picture
from hookline.screen.terminal import Terminal

shown = Terminal().live(lambda: Picture(Bar("val", 1, 2)))
shown.__enter__()
time.sleep(0.05)
"""
)


def test_a_display_that_nobody_closes_does_not_disturb_the_end_of_the_process(tmp_path: Path) -> None:
    for _ in range(3):
        with open(tmp_path / "errors", "wb") as errors:
            code, _ = run_on_a_terminal(NEVER_CLOSED, tmp_path, stderr=errors.fileno())
        assert (code, (tmp_path / "errors").read_text()) == (0, "")


def test_errors_that_go_to_a_file_are_not_shown_above_the_display(tmp_path: Path) -> None:
    program = NEVER_CLOSED + "import sys\nprint('to a file', file=sys.stderr)\n"
    with open(tmp_path / "errors", "wb") as errors:
        _, written = run_on_a_terminal(program, tmp_path, stderr=errors.fileno())
    assert (tmp_path / "errors").read_text() == "to a file\n"
    assert "to a file" not in written


def test_a_console_gives_its_lock_back_when_printing_fails() -> None:
    lock = threading.RLock()

    class Fails:
        def __rich_console__(self, *given: Any) -> Iterator[str]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        console.make_console(False, lock).print(Fails())
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
    other.start()
    other.join()
    assert taken == [True]


def test_the_lock_of_a_display_is_free_in_a_forked_process(never: None, on_tty: OnTty) -> None:
    terminal, _ = on_tty()
    with terminal.live(picture):
        child = os.fork()
        if child == 0:
            taken: list[bool] = []
            old = terminal.console if terminal._console is not None else None
            other = threading.Thread(target=lambda: taken.append(terminal._lock.acquire(blocking=False)))
            other.start()
            other.join()
            os._exit(0 if (taken, old, terminal.progress) == ([True], None, None) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
