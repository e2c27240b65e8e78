"""A process that hangs is named, with its stack, before the timeout of the group ends the run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookline.strategies import stacks
from hookline.strategies.stays import ENOUGH, FACTOR, FLOOR, Place, Stays
from tests.distributed.processes import Command, running
from tests.distributed.ranks import run

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
MODULE = "hanging"
ENDS = "  The run ends if it does not continue within {} seconds."


@contextmanager
def hanging(folder: Path, *arguments: Any) -> Iterator[Command]:
    """Start two processes, one of which hangs."""
    words = (*TORCHRUN, "-m", f"tests.distributed.{MODULE}", "hang", str(folder), json.dumps(arguments))
    with running(*words, cwd=folder, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as command:
        yield command


def warning(command: Command, rank: int) -> list[str]:
    """Return the lines of the warning about a process, without the numbers."""
    text = command.output()
    found = re.search(rf"^warning: (rank {rank} .*(?:\n  .*)*)", text, re.MULTILINE)
    assert found is not None, text
    return re.sub(r"\d+ s\b", "n s", found[1]).splitlines()


@pytest.mark.parametrize("rank", [0, 1])
def test_fault_7_a_stopped_process_is_named_and_the_run_continues_with_it(tmp_path: Path, rank: int) -> None:
    with hanging(tmp_path, "stop", rank) as command:
        command.until(f"warning: rank {rank}")
        first, last = warning(command, rank)
        known = re.sub(r"; last seen in .*", "", first)  # unless it was stopped before its first note was read
        assert known == f"rank {rank} does not answer for n s: it is stopped"
        assert last == ENDS.format(300)
        stopped = re.search(r"stops (\d+)", command.output())
        assert stopped is not None
        os.kill(int(stopped[1]), signal.SIGCONT)
        command.until(f"warning: rank {rank} continues")
        assert command.wait() == 0, command.output()


def test_fault_7_a_process_in_which_a_thread_holds_the_gil_is_named_with_its_stack(tmp_path: Path) -> None:
    with hanging(tmp_path, "hold_gil", 1) as command:
        assert command.wait() == 0, command.output()
        first, *stack, last = warning(command, 1)
        assert first == "rank 1 does not answer for n s: a thread of it holds the GIL"
        assert re.fullmatch(r'  File ".*/tests/distributed/hanging\.py", line \d+ in hold_gil', stack[-1])
        assert re.fullmatch(r'  File ".*/tests/distributed/hanging\.py", line \d+ in act', stack[-2])
        assert re.fullmatch(r'  File ".*/tests/distributed/cases\.py", line \d+ in after_train_iter', stack[-3])
        assert last == ENDS.format(300)


def test_fault_7_a_hook_that_loops_is_named_with_its_stack_and_again_when_the_timeout_ends_the_run(
    tmp_path: Path,
) -> None:
    with hanging(tmp_path, "loop", 1, 6.0) as command:
        command.until((tmp_path / "rank_0.json").exists)
        (tmp_path / "continue").touch()
        assert command.wait() == 1
        first, *stack, last = warning(command, 1)
        assert first == "rank 1 hangs in hook At at after_train_iter, iteration 6, for n s"
        assert re.fullmatch(r'  File ".*/tests/distributed/hanging\.py", line \d+ in wait_for', stack[-1])
        assert re.fullmatch(r'  File ".*/tests/distributed/hanging\.py", line \d+ in loop', stack[-2])
        assert last == ENDS.format(6)
        ended = json.loads((tmp_path / "rank_0.json").read_text())
        assert (ended["error"], ended["code"]) == ("DistributedError", 6)
        lines = re.sub(r"\d+ s\b", "n s", ended["message"]).splitlines()
        assert lines == [first, *stack, "  seen by rank 0"]
        logged = (tmp_path / "run" / "run.log").read_text()
        assert f"warning: {first[:60]}" in logged
        assert f"ended: {first[:60]}" in logged


def test_a_process_that_waits_for_the_others_in_the_wrong_place_is_named(tmp_path: Path) -> None:
    with hanging(tmp_path, "exchange", 1, 12.0) as command:
        command.until("warning: rank")
        assert " waits in " in command.output()
        assert command.wait() == 1
        assert " continues" not in command.output()
        ended = [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
        assert [found["code"] for found in ended] == [6, 6]
        assert all(re.search(r"rank \d waits in .*, iteration 6, for \d+ s\n", found["message"]) for found in ended)


def test_a_slow_save_of_the_main_process_does_not_end_the_run_and_is_not_named_before_it_is_known(
    tmp_path: Path,
) -> None:
    done = run("slow_save", tmp_path, module=MODULE)
    assert done.code == 0, done.output
    assert "hangs" not in done.output


def test_a_stay_is_too_long_after_several_times_its_usual_duration() -> None:
    found = Stays(unknown=30.0)
    place = Place("the step", frequent=True)
    assert found.limit(place) == 30.0
    for step in range(ENOUGH):
        found.add(Place("reading a batch", step=step), 0.1, steps=1)
    assert found.limit(place) == FLOOR  # every iteration has passed it, too fast to be seen
    assert found.limit(Place("a save")) == 30.0  # none has happened yet
    for seconds in (2.0, 4.0, 3.0):
        found.add(Place("a save"), seconds, steps=0)
    assert found.limit(Place("a save")) == FACTOR * 4.0
    assert found.limit(Place("a save", waits=True)) == 30.0  # waiting for the save of another process is another stay
    for _ in range(300):
        found.add(Place("a save"), 0.1, steps=0)
    assert found.limit(Place("a save")) == FLOOR  # the three long ones are less than one percent


def test_the_state_of_a_process_comes_from_the_system() -> None:
    assert stacks.state(os.getpid()) == "R"
    assert stacks.state(2**22 + 1) == ""  # above the largest number of a process
