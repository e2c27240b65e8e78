"""Signals become requests. What a run does about them is in tests/faults/test_signals.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hookline.engine import signals
from hookline.engine.requests import Requests


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


def test_how_a_run_ends_after_a_signal() -> None:
    assert isinstance(signals.ending(signal.SIGINT), KeyboardInterrupt)
    ended = [signals.ending(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert [error.code for error in ended if isinstance(error, SystemExit)] == [143, 129]


def test_a_child_that_was_forked_is_ended_by_a_signal_as_usual() -> None:
    code = """
import os, signal
from hookline.engine import signals
from hookline.engine.requests import Requests
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
