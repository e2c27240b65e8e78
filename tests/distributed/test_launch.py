"""`hookline.launch`, in real processes: results, errors, signals, notebooks, and nothing left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
import torch
from jupyter_client.manager import KernelManager

import hookline
from hookline.errors import ConfigError, DataError, DistributedError, HooklineError, exit_code_of
from hookline.launching import functions
from hookline.testing import toy_runner
from tests.distributed.processes import Command, running

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

    from hookline import Runner

pytestmark = pytest.mark.processes


@contextmanager
def script(folder: Path, text: str, **variables: str) -> Iterator[Command]:
    """Run a script that launches."""
    (folder / "script.py").write_text(text)
    with running(sys.executable, "-u", "script.py", cwd=folder, **variables) as command:
        yield command


def rank() -> int:
    return int(os.environ["RANK"])


def at_the_top(offset: int, factor: int = 1) -> tuple[int, str]:
    """Be found by a new process."""
    return offset + factor * rank(), os.environ["WORLD_SIZE"]


# -- results


def test_the_results_come_back_by_rank_from_a_function_that_nothing_can_pickle() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    seen = hookline.launch(lambda *given: [*given, *(os.environ[name] for name in names)], "given", nproc=3)
    assert seen == [["given", str(i), str(i), "3", "3", "127.0.0.1"] for i in range(3)]
    assert "RANK" not in os.environ


def test_the_processes_form_a_group_and_return_tensors() -> None:
    def total(start: float) -> torch.Tensor:
        torch.distributed.init_process_group("gloo")
        value = torch.tensor([start, float(rank())])
        torch.distributed.all_reduce(value)
        torch.distributed.destroy_process_group()
        return value

    results = hookline.launch(total, 1.5, nproc=2)
    assert [each.tolist() for each in results] == [[3.0, 1.0], [3.0, 1.0]]


def test_a_terminal_sends_ctrl_c_only_to_the_launcher() -> None:
    assert hookline.launch(lambda: os.getpgrp() == os.getpid()) == [True, True]


def test_a_large_result_comes_back_whole() -> None:
    results = hookline.launch(lambda: torch.full((1_000_000,), float(rank())), nproc=2)
    assert [(len(each), float(each.sum())) for each in results] == [(1_000_000, 0.0), (1_000_000, 1_000_000.0)]


THREADS = """
import torch, hookline
torch.set_num_threads(2)
torch.randn(4_000_000).exp()                       # this process now has threads, which a copy of it would wait for

def work():
    torch.randn(4_000_000).exp()
    torch.nn.Linear(500, 500)(torch.randn(500, 500)).sum().backward()
    return torch.get_num_threads()

print(hookline.launch(work, nproc=2), torch.get_num_threads())
"""


def test_each_process_uses_one_thread_unless_omp_num_threads_is_set(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(THREADS)
    with running("env", "-u", "OMP_NUM_THREADS", sys.executable, "script.py", cwd=tmp_path) as command:
        assert (command.wait(), command.output()) == (0, "[1, 1] 2\n")
    with script(tmp_path, THREADS, OMP_NUM_THREADS="2") as command:
        assert (command.wait(), command.output()) == (0, "[2, 2] 2\n")


# -- where the platform cannot copy a process


def test_a_platform_without_fork_starts_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert hookline.launch(at_the_top, 10, nproc=2, factor=2) == [(10, "2"), (12, "2")]


def test_a_platform_without_fork_refuses_a_function_that_cannot_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "start_method", lambda: "spawn")
    with pytest.raises(ConfigError) as raised:
        hookline.launch(lambda: None)
    message = str(raised.value)
    assert message.startswith("hookline.launch: the function and its arguments cannot be sent to a new process (Can't ")
    assert message.endswith("; define the function at the top level of a module")


# -- refusals


@pytest.mark.parametrize("nproc", [0, -1, True, 2.0, "2", None])
def test_nproc_must_be_a_number_of_processes(nproc: Any) -> None:
    with pytest.raises(ConfigError, match="^hookline.launch: nproc must be an int of at least 1, not "):
        hookline.launch(at_the_top, 1, nproc=nproc)


def test_another_name_for_nproc_is_refused_unless_the_function_has_it() -> None:
    def work(nprocs: int = 0) -> int:
        return nprocs

    with pytest.raises(ConfigError) as refused:
        hookline.launch(print, nprocs=2)
    assert str(refused.value) == (
        "hookline.launch has no parameter 'nprocs', and neither has the function; did you mean 'nproc'?"
    )
    assert hookline.launch(work, nproc=2, nprocs=3) == [3, 3]


def test_a_process_that_has_used_cuda_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError) as raised:
        hookline.launch(at_the_top, 1)
    assert str(raised.value) == (
        "hookline.launch cannot copy this process, because it has already used CUDA, and the copies could not; call "
        "launch before anything uses a GPU (in a notebook, restart the kernel first), or use torchrun"
    )


def test_a_worker_cannot_launch() -> None:
    with pytest.raises(ConfigError) as raised:
        hookline.launch(lambda: hookline.launch(at_the_top, 1), nproc=1)
    assert str(raised.value) == (
        "hookline.launch was called in a process that a launcher has started (RANK and WORLD_SIZE are set); call the "
        "function itself"
    )


# -- errors


class OddError(Exception):
    """An error that can be pickled, but not loaded again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails(error: BaseException) -> None:
    if rank() == 1:
        raise error
    time.sleep(1000)


@pytest.mark.parametrize(
    ("error", "kind", "message", "code"),
    [
        (ValueError("no"), ValueError, "no", 1),
        (DataError("no samples"), DataError, "no samples", 3),
        (OddError(1, 2), DistributedError, "tests.distributed.test_launch.OddError: 1 and 2", 1),
        (SystemExit(5), HooklineError, "the function called sys.exit(5) before it returned", 5),
        (SystemExit(0), HooklineError, "the function called sys.exit(0) before it returned", 1),
    ],
)
def test_an_error_in_a_process_ends_the_others_and_is_raised_with_rank_and_traceback(
    error: BaseException, kind: type[Exception], message: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookline.launching.group.NOTICE", 0.1)
    before = multiprocessing.active_children()
    with pytest.raises(kind) as raised:
        hookline.launch(fails, error)
    assert (type(raised.value), str(raised.value), exit_code_of(raised.value)) == (kind, message, code)
    (note,) = raised.value.__notes__
    assert note.startswith("in rank 1 of 2, started by hookline.launch:\n  Traceback (most recent call last):\n")
    assert ", in fails\n      raise error\n" in note
    assert multiprocessing.active_children() == before


def test_an_error_of_a_process_that_never_exits_is_still_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_and_stays() -> None:
        if rank() == 1:
            Finalize(None, time.sleep, (1000,), exitpriority=0)  # as a queue of DataLoader workers may do
            raise ValueError("no")

    monkeypatch.setattr("hookline.launching.group.NOTICE", 0.1)
    with pytest.raises(ValueError, match="^no\n"):
        hookline.launch(fails_and_stays)


def test_the_first_error_is_raised_and_not_its_consequence() -> None:
    def exchange() -> None:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        if rank() == 1:
            raise ValueError("the cause")
        torch.distributed.barrier()  # fails, because rank 1 is gone

    with pytest.raises(ValueError, match="^the cause\n"):
        hookline.launch(exchange)


ENDS = """
import hookline
from hookline.testing import toy_runner

for _ in range(10):
    hookline.launch(lambda: toy_runner(work_dir="run", strategy="ddp").train() and None)
"""


TIMED = """
import faulthandler
import hookline
from hookline.testing import toy_runner

faulthandler.dump_traceback_later(600)
hookline.launch(lambda: toy_runner(work_dir="run", strategy="ddp").train() and None)
"""


def test_processes_do_not_wait_for_a_timer_of_faulthandler_that_the_launching_process_has_set(tmp_path: Path) -> None:
    with script(tmp_path, TIMED) as command:
        assert command.wait() == 0, command.output()


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_the_process_that_failed_is_raised_and_not_what_the_other_says_about_it(
    tmp_path: Path, failing: int
) -> None:
    def train() -> None:
        runner = toy_runner(work_dir=tmp_path, strategy="ddp")

        @runner.on("after_train_iter")
        def fail(runner: Runner) -> None:
            if runner.iter == 2 and runner.rank == failing:
                raise ValueError("planted")

        runner.train()

    with pytest.raises(ValueError, match="^planted\n"):
        hookline.launch(train)


def test_a_signal_to_one_process_ends_the_run_and_is_raised(tmp_path: Path) -> None:
    def train() -> None:
        runner = toy_runner(work_dir=tmp_path, strategy="ddp", max_epochs=1_000_000)

        @runner.on("after_train_iter")
        def signaled(runner: Runner) -> None:
            if runner.iter == 2 and runner.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        runner.train()

    with pytest.raises(SystemExit) as raised:
        hookline.launch(train)
    assert raised.value.code == 143
    assert len(list(tmp_path.glob("iter_*.pth"))) == 1


def test_the_end_of_a_run_in_two_processes_is_quiet(tmp_path: Path) -> None:
    """torch shows the stacks of a process that asks a store which has gone."""
    with script(tmp_path, ENDS) as command:
        assert command.wait() == 0, command.output()
        assert "TCPStore" not in command.output()


def test_the_exit_code_of_an_error_survives() -> None:
    def blamed() -> None:
        error = ValueError("no")
        error.exit_code = 4  # type: ignore[attr-defined]  # as hookline.errors.blame does
        error.add_note("in hook A")
        raise error

    with pytest.raises(ValueError, match="^no\n") as raised:
        hookline.launch(blamed, nproc=1)
    assert (exit_code_of(raised.value), raised.value.__notes__[0]) == (4, "in hook A")


@pytest.mark.parametrize(
    ("end", "message", "code"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL", 6),
        (lambda: os._exit(7), "ended with exit code 7", 7),
        (lambda: os._exit(0), "ended with exit code 0", 6),
    ],
)
def test_a_process_that_ends_without_an_answer_is_named(end: Any, message: str, code: int) -> None:
    with pytest.raises(DistributedError) as raised:
        hookline.launch(lambda: end() if rank() == 1 else None)
    assert str(raised.value) == f"rank 1 of 2 {message} before its function returned"
    assert exit_code_of(raised.value) == code


def test_a_result_that_cannot_be_pickled_is_an_error_that_says_so() -> None:
    with pytest.raises(Exception, match="pickle") as raised:
        hookline.launch(lambda: lambda: None, nproc=1)
    assert raised.value.__notes__[0] == (
        "the result of the function cannot be pickled; return plain values, or tensors on the CPU"
    )


# -- signals

TRAINS = """
import os, sys
import hookline
from hookline.testing import toy_runner

def train():
    rank = os.environ.pop("RANK"), os.environ.pop("WORLD_SIZE")  # a run of its own
    runner = toy_runner(max_epochs=1_000_000, default_hooks={"checkpoint": None}, work_dir=f"run_{rank[0]}")

    @runner.on("after_train_iter")
    def tell(runner):
        if runner.iter == 3:
            os.write(1, b"trains\\n")

    try:
        runner.train()
    finally:
        os.write(1, f"rank {rank[0]} saved {any(runner.work_dir.glob('*.pth'))}\\n".encode())

try:
    hookline.launch(train)
finally:
    os.write(1, f"{type(sys.exc_info()[1]).__name__} in the script\\n".encode())
"""


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(signal.SIGINT, -2, "KeyboardInterrupt"), (signal.SIGTERM, 143, "SystemExit"), (signal.SIGHUP, 129, "SystemExit")],
)
def test_a_signal_lets_all_processes_save_and_is_then_raised(
    tmp_path: Path, number: signal.Signals, code: int, name: str
) -> None:
    with script(tmp_path, TRAINS) as command:
        command.until(lambda: command.output().count("trains") == 2)
        os.killpg(command.pid, number)  # as Ctrl-C in a terminal does
        assert command.wait() == code, command.output()
        lines = [line for line in command.output().splitlines() if line.startswith("rank") or "in the script" in line]
        assert sorted(lines[:2]) == ["rank 0 saved True", "rank 1 saved True"]
        assert lines[2:] == [f"{name} in the script"]
        assert command.processes() == []


STUBBORN = """
import os, signal, time
import hookline, hookline.launching.group as group
group.GRACE = 0.1
group.LAST = 0.1

def work():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, b"works\\n")
    while True:
        time.sleep(0.01)

try:
    hookline.launch(work)
except KeyboardInterrupt as error:
    print(error.__notes__)
"""


def test_processes_that_ignore_a_signal_are_killed(tmp_path: Path) -> None:
    with script(tmp_path, STUBBORN) as command:
        command.until(lambda: command.output().count("works") == 2)
        command.send(signal.SIGINT)
        assert command.wait() == 0, command.output()
        assert command.output().splitlines()[2:] == [
            "['rank 0 of 2 did not end after SIGINT, and was ended', "
            "'rank 1 of 2 did not end after SIGINT, and was ended']"
        ]
        assert command.processes() == []


def test_processes_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with script(tmp_path, STUBBORN) as command:
        command.until(lambda: command.output().count("works") == 2)
        assert len(command.processes()) == 2
        command.send(signal.SIGKILL)
        assert command.wait() == -9
        command.until(lambda: not command.processes())


# -- notebooks


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager = KernelManager(transport="ipc", kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.manager = manager  # type: ignore[attr-defined]  # to interrupt it
    try:
        client.wait_for_ready(timeout=120)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def shown(client: BlockingKernelClient, code: str, interrupt_at: str = "") -> tuple[list[str], str]:
    """Return the lines that a cell shows, and the name of the error that ends it. Interrupt it once at a text."""
    asked, text, error = client.execute(code), "", ""
    while True:
        try:
            message = client.get_iopub_msg(timeout=120)
        except Empty:
            raise AssertionError(f"the kernel stays silent after {text!r}") from None
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != asked:
            continue
        if kind == "status" and content["execution_state"] == "idle":
            return sorted(text.splitlines()), error
        if kind == "stream":
            text += content["text"]
        elif kind == "error":
            error = content["ename"]
        if interrupt_at and text.count(interrupt_at) == 2:
            client.manager.interrupt_kernel()  # type: ignore[attr-defined]  # see the fixture
            interrupt_at = ""


CELL = """
import os, time
import torch, hookline
torch.randn(4_000_000).exp()
offset = 10

def work(factor):
    torch.distributed.init_process_group("gloo")
    total = torch.tensor([float(os.environ["RANK"])])
    torch.distributed.all_reduce(total)
    torch.distributed.destroy_process_group()
    print(f"rank {os.environ['RANK']} works\\n", end="", flush=True)
    return offset + factor * int(os.environ["RANK"]) + total.item()

print(hookline.launch(work, 100, nproc=2))
"""

INTERRUPTED = """
def train():
    try:
        print("trains\\n", end="", flush=True)
        while True:
            time.sleep(0.01)
    finally:
        open(f"saved_{os.environ['RANK']}", "w").close()

hookline.launch(train, nproc=2)
"""


def test_a_function_of_a_notebook_runs_in_processes_and_ctrl_c_lets_them_end(
    kernel: BlockingKernelClient, tmp_path: Path
) -> None:
    shown(kernel, f"import os; os.chdir({json.dumps(str(tmp_path))})")
    assert shown(kernel, CELL) == (["[11.0, 111.0]", "rank 0 works", "rank 1 works"], "")
    assert shown(kernel, INTERRUPTED, interrupt_at="trains\n") == (["trains", "trains"], "KeyboardInterrupt")
    assert sorted(os.listdir(tmp_path)) == ["saved_0", "saved_1"]
    assert shown(kernel, "import multiprocessing; print(multiprocessing.active_children())") == (["[]"], "")
    assert shown(kernel, CELL)[1] == ""  # the kernel can go on
