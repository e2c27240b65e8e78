"""RAW: no input makes a command hang, take much memory, fail with a traceback, or print control characters."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults import hostile, raw_inputs, silent
from tests.faults.cases import Case, run
from tests.faults.children import running
from tests.faults.project import config
from tests.faults.raw import FORGED, MEMORY, find_raw
from tests.faults.watching import give_up_power, read_log, watched_command


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in raw_inputs.cases()])
def test_an_odd_input_is_used_or_refused_properly(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    assert (outcome.touched, outcome.raw) == ([], []), outcome.output


def test_every_case_has_a_unique_name() -> None:
    names = [case.id for table in (hostile, silent, raw_inputs) for case in table.cases()]
    assert len(set(names)) == len(names)


# The tests below check the tests above: what they look for is found.


@pytest.mark.parametrize(
    ("code", "shown", "found"),
    [
        (0, b"done\n", []),
        (5, b"hookline: no space\n", []),
        (2, b"Error: No such command\n", []),
        (1, b"hookline: the step returned None\n", []),
        (130, b"", []),
        (0, "gr\u00f6\u00dfe \u5b9f\u9a13\tx\n".encode(), []),
        (1, b"some text: hookline: x\n", ["its exit code is 1, without a message"]),
        (-signal.SIGSEGV, b"", ["it was ended by SIGSEGV"]),
        (
            1,
            b"Traceback (most recent call last):\n",
            ["it printed 'Traceback (most recent call last)'", "its exit code is 1, without a message"],
        ),
        (0, b"Exception ignored in: x\n", ["it printed 'Exception ignored in'"]),
        (0, b"a\x1b[31m", ["it printed the control character '\\x1b'"]),
        (0, b"a\rb", ["it printed the control character '\\r'"]),
        (0, "a\x9b2J".encode(), ["it printed the control character '\\x9b'"]),
        (0, b"a\x9b2J", ["it printed the control character '\\udc9b'"]),
        (0, f"x\n{FORGED}y\n".encode(), ["it printed a line that is part of a text"]),
        (0, f"x {FORGED}y\n".encode(), []),
    ],
)
def test_output_that_no_user_should_see_is_found(code: int, shown: bytes, found: list[str]) -> None:
    assert find_raw(code, shown, raises=False, memory=MEMORY) == found


def test_a_hang_and_too_much_memory_are_found() -> None:
    assert find_raw(-signal.SIGKILL, b"", raises=False, memory=MEMORY + (1 << 20), hung_for=20.0) == [
        "it did not end within 20 s",
        "it took 257 MB of memory",
    ]


def test_the_traceback_of_user_code_is_expected() -> None:
    assert find_raw(1, b"Traceback (most recent call last):\n", raises=True, memory=0) == []


def test_the_memory_of_a_command_is_measured(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "mine.py").write_text("import torch\nkept = torch.ones(100 << 18)\nraise SystemExit(1)\n")
    (tmp_path / "config.yaml").write_text(config(imports="[mine]"))
    with running(watched_command, ("train", "config.yaml"), str(tmp_path), {}, str(log)) as child:
        assert child.wait() == 2, child.output()
    _, memory = read_log(log)
    assert 100 << 20 < memory < 200 << 20


def write_where_it_is_forbidden(folder: str) -> None:
    give_up_power()
    os.mkdir(f"{folder}/inside")


def test_modes_hold_for_a_powerless_command(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with running(write_where_it_is_forbidden, str(tmp_path)) as child:
            assert child.wait() == 1
            assert child.output().endswith(f"PermissionError: [Errno 13] Permission denied: '{tmp_path}/inside'\n")
    finally:
        tmp_path.chmod(0o755)
