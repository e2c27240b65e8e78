"""Signals become requests. What a run does about them is in tests/faults/test_signals.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hookline.run import signals
from hookline.run.requests import Requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_request_and_the_handler_is_restored(number: signal.Signals) -> None:
    before, requests = signal.getsignal(number), Requests()
    with signals.signals_as_requests(requests, print):
        assert signal.getsignal(number) is not before
        os.kill(os.getpid(), number)
        assert (requests.signal, requests.pending) == (number, True)
    assert signal.getsignal(number) is before


def test_the_request_of_an_earlier_run_is_forgotten() -> None:
    requests = Requests()
    requests.receive_signal(15)
    with signals.signals_as_requests(requests, print):
        assert requests.signal == 0


def test_two_signals_at_once_are_one_and_a_later_one_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests()
    with signals.signals_as_requests(requests, print):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(signals, "SAME", -1.0)
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.value.code == 143


def test_each_signal_has_its_exception_and_exit_code() -> None:
    assert isinstance(signals.ending(signal.SIGINT), KeyboardInterrupt)
    ended = [signals.ending(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert [error.code for error in ended if isinstance(error, SystemExit)] == [143, 129]


def test_a_child_that_was_forked_is_ended_by_a_signal_as_usual() -> None:
    code = """
import os, signal
from hookline.run import signals
from hookline.run.requests import Requests
with signals.signals_as_requests(Requests(), str):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(child, 0)
print(os.WTERMSIG(status))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "15\n"), ended.stderr


IGNORED = {
    (): "",
    ("HUP",): "",  # as nohup does on purpose
    ("INT",): "Ctrl-C has no effect here, because SIGINT was ignored at the start; to end, use: kill {pid}",
    ("INT", "TERM"): "SIGINT and SIGTERM are ignored here; only kill -KILL {pid} ends this process",
}


@pytest.mark.parametrize("ignored", IGNORED)
def test_a_process_that_ignores_ctrl_c_knows_how_to_end_it(ignored: tuple[str, ...]) -> None:
    code = "import os; from hookline.run.signals import describe_ignored; print(os.getpid(), describe_ignored())"
    trap = f"trap '' {' '.join(ignored)}; " if ignored else ""
    ended = subprocess.run(
        ["sh", "-c", f'{trap}exec "$0" -c "$1"', sys.executable, code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    pid, _, text = ended.stdout.rstrip("\n").partition(" ")
    assert text == IGNORED[ignored].format(pid=pid)
