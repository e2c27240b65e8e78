"""The launcher over torch's elastic agent, with real processes: restarts, exit codes, signals, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.processes import Command, running

STAND_IN = (sys.executable, "-u", "-m", "tests.distributed.standin")


@contextmanager
def launched(folder: Path, *words: str, test: str = "", **options: Any) -> Iterator[Command]:
    """Run stand-in workers under the launcher."""
    given = json.dumps({"nproc": 2, **options})
    with running(*STAND_IN, "launch", given, *words, cwd=folder, HOOKLINE_TEST=test) as command:
        yield command


def lines(command: Command) -> list[str]:
    """Return the lines of the processes sorted, and then those of the launcher in their order."""
    found = command.output().splitlines()
    return [
        *sorted(line for line in found if not line.startswith("launcher:")),
        *(line for line in found if line.startswith("launcher:")),
    ]


def test_each_process_gets_the_variables_of_torchrun_and_one_thread(tmp_path: Path) -> None:
    words = (*STAND_IN, "launch", '{"nproc": 2}', "shows")
    with running("env", "-u", "OMP_NUM_THREADS", *words, cwd=tmp_path, HOOKLINE_TEST="kept") as command:
        assert command.wait() == 0, command.output()
        same = "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 HOOKLINE_RESUME=0 HOOKLINE_TEST=kept"
        assert lines(command) == [f"RANK=0 LOCAL_RANK=0 {same}", f"RANK=1 LOCAL_RANK=1 {same}"]


def test_omp_num_threads_is_kept_if_it_is_set(tmp_path: Path) -> None:
    with running(*STAND_IN, "launch", '{"nproc": 2}', "shows", cwd=tmp_path, OMP_NUM_THREADS="3") as command:
        assert command.wait() == 0, command.output()
        assert [line.split()[4] for line in lines(command)] == ["OMP_NUM_THREADS=3"] * 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ends", "start", "1"), 1, "training had not begun, so it would fail again"),
        (("ends", "start", "5"), 5, "training had not begun, so it would fail again"),
        (("ends", "", "2"), 2, "exit code 2 is final"),
        (("ends", "", "7"), 7, "exit code 7 is final"),
        (("ends", "end", "75"), 75, "training had ended"),
    ],
)
def test_a_startup_error_and_a_final_exit_code_are_not_restarted(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    with launched(tmp_path, *words, max_restarts=3) as command:
        assert command.wait() == code, command.output()
        assert lines(command) == [
            "rank 0 begins",
            "rank 1 begins",
            f"launcher: rank 1 failed with exit code {code}",
            f"launcher: not restarted: {said}",
        ]
        assert command.processes() == []


@pytest.mark.parametrize(
    ("words", "said", "next"),
    [
        (("ends", "", "1"), "failed with exit code 1", "resumes"),
        (("dies", "9"), "was killed by SIGKILL", "resumes"),
        (("dies", "11", "start"), "was killed by SIGSEGV", "begins"),  # nothing to resume: it did not begin to train
    ],
)
def test_a_failure_in_training_and_a_kill_are_restarted_together_and_resume(
    tmp_path: Path, words: tuple[str, ...], said: str, next: str
) -> None:
    with launched(tmp_path, *words, max_restarts=2) as command:
        assert command.wait() == 0, command.output()
        assert lines(command) == [
            *sorted(["rank 0 begins", "rank 1 begins", f"rank 0 {next}", f"rank 1 {next}"]),
            f"launcher: rank 1 {said}",
            "launcher: restarting all processes (restart 1 of 2)",
        ]


def test_a_process_that_ends_between_two_looks_is_not_restarted_by_the_rules_of_torch(tmp_path: Path) -> None:
    words = (*STAND_IN, "launch", '{"nproc": 2, "max_restarts": 3}', "ends", "end", "75")
    with running(*words, cwd=tmp_path, HOOKLINE_TEST="early") as command:
        assert command.wait() == 75, command.output()
        assert lines(command) == [
            "rank 0 begins",
            "rank 1 begins",
            "launcher: rank 1 failed with exit code 75",
            "launcher: not restarted: training had ended",
        ]


def test_without_restarts_left_the_failure_sets_the_exit_code(tmp_path: Path) -> None:
    with launched(tmp_path, "dies", "9") as command:
        assert command.wait() == 137
        assert lines(command)[2:] == ["launcher: rank 1 was killed by SIGKILL"]


@pytest.mark.parametrize(("first", "second"), [("4", "6"), ("4", "1"), ("6", "6")])
def test_the_first_failure_sets_the_exit_code_and_the_message(tmp_path: Path, first: str, second: str) -> None:
    with launched(tmp_path, "explains", first, second) as command:
        assert command.wait() == int(first)
        assert command.output() == (
            f"launcher: rank 1 failed with exit code {first}: the loss is nan\n"
            "  raised by CheckHook at after_train_iter\n"
        )


def test_a_process_that_does_not_notice_a_failure_is_ended(tmp_path: Path) -> None:
    with launched(tmp_path, "misses", grace=0.2) as command:
        assert command.wait() == 1
        assert command.output() == (
            "rank 0 waits\n"
            "launcher: rank 1 failed with exit code 1:\n"
            'Traceback (most recent call last):\n  File "train.py", line 1\nValueError: no\n'
        )
        assert command.processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_all_processes_save_and_end(tmp_path: Path, number: signal.Signals) -> None:
    with launched(tmp_path, "saves", max_restarts=3) as command:
        command.until(lambda: command.output().count("trains") == 2)
        command.send(number)
        assert command.wait() == 128 + number
        assert lines(command) == [
            *(f"rank {rank} {text}" for rank in (0, 1) for text in (f"saves after {number.name}", "trains"))
        ]
        assert command.processes() == []


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with launched(tmp_path, "saves") as command:
        command.until(lambda: command.output().count("trains") == 2)
        while command.output().count("ends at once") < 2:  # two within a short time count as one
            command.send(signal.SIGINT)
            if not command.processes():
                break
        assert command.wait() == 130
        assert command.output().count("ends at once") == 2
        assert command.processes() == []


def test_processes_that_ignore_a_signal_are_killed_after_the_grace_period(tmp_path: Path) -> None:
    with launched(tmp_path, "ignores", grace=0.1) as command:
        command.until(lambda: command.output().count("trains") == 2)
        command.send(signal.SIGTERM)
        assert command.wait() == 137
        assert lines(command)[2:] == [
            "launcher: rank 0 failed with exit code 137: it did not end after SIGTERM, and was killed"
        ]
        assert command.processes() == []


def test_processes_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with launched(tmp_path, "ignores") as command:
        command.until(lambda: command.output().count("trains") == 2)
        assert len(command.processes()) == 2
        command.send(signal.SIGKILL)
        assert command.wait() == -9
        command.until(lambda: not command.processes())


def test_a_worker_whose_launcher_is_gone_before_it_begins_ends(tmp_path: Path) -> None:
    gone = str(os.getppid())  # any process that is not its parent
    with running(*STAND_IN, "shows", cwd=tmp_path, HOOKLINE_LAUNCHER_PID=gone) as command:
        assert command.wait() == 1
        assert command.output() == ""


def test_a_process_that_a_worker_starts_is_not_bound_to_the_launcher(tmp_path: Path) -> None:
    with launched(tmp_path, "starts") as command:
        assert command.wait() == 0, command.output()
        assert lines(command) == ["rank 0 started another process", "rank 1 started another process"]


def test_a_signal_before_the_other_machines_have_come_ends_the_launcher(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options: dict[str, Any] = {"nnodes": "2", "node_rank": 0, "rdzv_endpoint": f"127.0.0.1:{port}"}
    with launched(tmp_path, "shows", **options) as command:
        command.until(lambda: _listens(port))
        command.send(signal.SIGTERM)
        assert command.wait() == 143
        assert command.output() == ""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_two_machines_restart_together_and_both_resume(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options: dict[str, Any] = {"nproc": 1, "nnodes": "2", "rdzv_endpoint": f"127.0.0.1:{port}", "max_restarts": 1}
    with (
        launched(tmp_path, "nodes", **options, node_rank=0) as first,
        launched(tmp_path, "nodes", **options, node_rank=1) as second,
    ):
        assert (first.wait(), second.wait()) == (0, 0), first.output() + second.output()
        both = sorted(f"{first.output()}{second.output()}".splitlines())
        assert both == [
            "launcher: rank 1 was killed by SIGKILL",
            "launcher: restarting all processes (restart 1 of 1)",
            "rank 0 of 2 begins",
            "rank 0 of 2 resumes",
            "rank 1 of 2 begins",
            "rank 1 of 2 resumes",
        ]


@pytest.mark.parametrize("signaled", [True, False])
def test_a_launcher_whose_rendezvous_does_not_answer_ends(tmp_path: Path, signaled: bool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options: dict[str, Any] = {"nproc": 1, "nnodes": "2", "rdzv_endpoint": f"127.0.0.1:{port}", "test": "silent"}
    with (
        launched(tmp_path, "saves", **options, node_rank=0) as first,
        launched(tmp_path, "saves", **options, node_rank=1) as second,
    ):
        for command in (first, second):
            command.until("trains")
        first.send(signal.SIGSTOP)  # the store that it hosts no longer answers, as if the network were cut
        if signaled:
            second.send(signal.SIGTERM)
            assert second.wait() == 143, second.output()
            assert "saves after SIGTERM" in second.output()
        else:
            assert second.wait() == 1, second.output()
            assert (
                "DistributedError: the machine that hosts the rendezvous has not answered for 3 s: it is down, or "
                in (second.output())
            )
        assert second.processes() == []


@pytest.mark.parametrize("options", [{}, {"nnodes": "2", "node_rank": 0}])
def test_a_taken_port_is_refused_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        endpoint = f"127.0.0.1:{port}"
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = (sys.executable, "-m", "hookline", "train", "--nproc=2", f"--rdzv-endpoint={endpoint}", *words)
        with running(*command, cwd=tmp_path) as run:
            assert run.wait() == 6
            assert run.output() == (
                f"hookline: port {port} of this machine is in use, so --rdzv-endpoint {endpoint} cannot be created; "
                "choose another port, or end the process that uses it\n"
            )
