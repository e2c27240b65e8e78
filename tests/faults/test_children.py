"""The test harness itself: exit codes, signals, output, and cleanup."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.faults.children import close_all, command, running, start


def leave(code: int) -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b"to the descriptor\n")
    sys.exit(code)


def fail() -> None:
    raise ValueError("on purpose")


def sleep() -> None:
    print("ready")
    time.sleep(600)


def spin() -> None:
    while True:
        pass


def leave_with_4() -> None:
    sys.exit(4)


def sleep_with_a_worker() -> None:
    worker = multiprocessing.Process(target=time.sleep, args=(600,))
    worker.start()
    print(worker.pid)
    time.sleep(600)


def print_start_method() -> None:
    print(multiprocessing.get_start_method())


def wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a process is alive; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("code", [0, 1, 5, 143])
def test_a_child_returns_its_exit_code_and_its_output(code: int) -> None:
    with running(leave, code) as child:
        assert child.wait() == code
        assert sorted(child.output().splitlines()) == ["to stderr", "to stdout", "to the descriptor"]


def test_an_exception_ends_a_child_with_1_and_its_traceback() -> None:
    with running(fail) as child:
        assert child.wait() == 1
        assert child.output().endswith("ValueError: on purpose\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_is_a_negative_exit_code(number: int) -> None:
    with running(sleep) as child:
        wait_for(lambda: "ready" in child.output())
        child.kill(number)
        assert child.wait() == -number


def test_waiting_times_out_and_shows_the_output() -> None:
    with running(sleep) as child:
        wait_for(lambda: "ready" in child.output())
        with pytest.raises(TimeoutError, match="did not end within 0.05 s; it printed:\nready"):
            child.wait(0.05)


def test_a_child_hangs_if_it_computes_without_an_end_or_waits_for_ever() -> None:
    for function in (spin, sleep):
        with running(function) as child:
            assert child.wait_busy(0.5) is None, function
    with running(leave, 3) as child:
        assert child.wait_busy(60.0) == 3


def test_a_child_that_gets_no_time_to_compute_does_not_hang() -> None:
    """A stopped child stands for one on a machine that is busy with others."""
    with running(leave_with_4) as child:
        os.kill(child.pid, signal.SIGSTOP)
        timer = threading.Timer(1.0, os.kill, (child.pid, signal.SIGCONT))
        timer.start()
        assert child.wait_busy(0.8) == 4
        timer.join()


def test_closing_a_child_ends_it_and_the_processes_that_it_started() -> None:
    child = start(sleep_with_a_worker)
    wait_for(lambda: child.output().strip())
    worker = int(child.output())
    assert is_alive(child.pid)
    assert is_alive(worker)
    close_all()
    wait_for(lambda: not is_alive(child.pid) and not is_alive(worker))


def test_a_child_starts_workers_as_any_process_does() -> None:
    with running(print_start_method) as child:
        assert child.wait() == 0
        assert child.output() == f"{multiprocessing.get_start_method()}\n"


def test_a_command_runs_in_a_folder_with_its_arguments(tmp_path: Path) -> None:
    assert command("hooks", "LogerHook", cwd=tmp_path) == (
        2,
        "hookline: unknown hook 'LogerHook'; did you mean 'LoggerHook'?\n",
    )
    code, output = command("init", "mine", cwd=tmp_path)
    assert (code, output.splitlines()[-1]) == (0, "to train it: cd mine && hookline train config.yaml")
    assert (tmp_path / "mine" / "config.yaml").is_file()
