from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from hookline.checkpoint import loading, store
from hookline.checkpoint.seal import Note
from hookline.common import worker_errors


@pytest.fixture(autouse=True)
def handler() -> Iterator[object]:
    """Handle SIGCHLD as torch does if a worker has died."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    before = signal.signal(signal.SIGCHLD, fail)
    yield fail
    signal.signal(signal.SIGCHLD, before)


def die() -> None:
    os.kill(os.getpid(), signal.SIGCHLD)


def test_the_error_comes_when_the_context_ends(handler: object) -> None:
    done = []

    @worker_errors.put_off()
    def work() -> None:
        die()
        done.append("the rest")

    with pytest.raises(RuntimeError, match="^DataLoader worker"):
        work()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGCHLD) is handler


def test_without_a_death_nothing_is_raised(handler: object) -> None:
    with worker_errors.put_off():
        pass
    assert signal.getsignal(signal.SIGCHLD) is handler


def test_another_error_wins(handler: object) -> None:
    @worker_errors.put_off()
    def work() -> None:
        die()
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        work()
    assert signal.getsignal(signal.SIGCHLD) is handler


def test_a_run_that_ends_after_a_signal_hears_nothing_until_the_next_one_begins(handler: object) -> None:
    with worker_errors.put_off():
        die()
        worker_errors.silence()
    die()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    worker_errors.listen()
    assert signal.getsignal(signal.SIGCHLD) is handler


def test_other_threads_leave_the_handler_alone(handler: object) -> None:
    seen: list[object] = []

    def look() -> None:
        with worker_errors.put_off():
            seen.append(signal.getsignal(signal.SIGCHLD))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handler]


def test_a_worker_that_dies_during_a_save_is_not_taken_for_damage_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove = loading.prove_loadable

    def prove_while_a_worker_dies(path: Path, **options: bool) -> None:
        die()
        prove(path, **options)

    monkeypatch.setattr(store, "prove_loadable", prove_while_a_worker_dies)
    with pytest.raises(RuntimeError, match="^DataLoader worker"):
        store.write({"state_dict": {"weight": torch.ones(2)}}, tmp_path / "iter_1.pth", Note(1))
    monkeypatch.undo()
    store.verify(tmp_path / "iter_1.pth")


def _try_get_data(error: Exception) -> None:
    """Raise an error in a function that is called as the one of torch."""
    raise error


@pytest.mark.parametrize(
    ("error", "death"),
    [
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
            "(pid 7) is killed by signal: Killed.",
        ),
        (RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), "(pid(s) 7) exited unexpectedly"),
        (ConnectionResetError("reset by peer"), "(pid 8) exited unexpectedly with exit code 3."),
        (EOFError(), "(pid 8) exited unexpectedly with exit code 3."),
        (RuntimeError("shapes differ"), None),
    ],
)
def test_the_death_behind_an_error_of_a_loader_is_found(
    monkeypatch: pytest.MonkeyPatch, error: Exception, death: str | None
) -> None:
    asked = []

    def known_the_third_time() -> None:
        asked.append(True)
        if len(asked) == 3:
            raise RuntimeError("DataLoader worker (pid 8) exited unexpectedly with exit code 3. ")

    assert callable(signal_handling._error_if_any_worker_fails)  # type: ignore[attr-defined]  # a private name of torch
    assert hasattr(_MultiProcessingDataLoaderIter, worker_errors.READS)
    monkeypatch.setattr(signal_handling, "_error_if_any_worker_fails", known_the_third_time)
    with pytest.raises(type(error)) as caught:
        _try_get_data(error)
    assert worker_errors.death_behind(caught.value) == ("" if death is None else f"DataLoader worker {death}")


def test_an_error_elsewhere_is_not_taken_for_the_death_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_errors, "PATIENCE", 0.0)
    with pytest.raises(OSError, match="disk") as caught:
        raise OSError("disk")
    assert worker_errors.death_behind(caught.value) == ""
    with pytest.raises(OSError, match="disk") as caught:
        _try_get_data(OSError("disk"))
    assert worker_errors.death_behind(caught.value) == ""
