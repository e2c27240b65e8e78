"""CODE: a hostile config, override, checkpoint or pointer is only read; nothing in it is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from tests.faults import hostile, hostile_checkpoints
from tests.faults.cases import CANARY, Case, run
from tests.faults.children import running
from tests.faults.project import config, write


@pytest.mark.parametrize("case", hostile.cases(), ids=lambda case: case.id)
def test_a_hostile_input_is_read_and_not_executed(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    assert (outcome.touched, outcome.seen, outcome.raw) == ([], [], []), outcome.output
    assert case.code in (None, outcome.code), outcome.output
    if case.code == 0:
        assert "resumed from runs/run/epoch_1.pth: epoch 1, iteration 2\n" in outcome.output
    elif outcome.code != 0:
        assert outcome.output.count("hookline: ") == 1
        assert case.says in ("", outcome.message)
    for part in case.mentions:
        assert part in outcome.output


def test_every_case_has_a_unique_name() -> None:
    names = [case.id for case in hostile.cases()]
    assert len(set(names)) == len(names)
    assert len(names) >= 60


# The tests below check the test above: the same inputs do execute code if someone allows it.


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        (f'{{type: "os:system", command: touch {CANARY}}}', "os"),
        (f'{{type: "subprocess:Popen", args: [touch, {CANARY}]}}', "subprocess"),
        (f'{{type: "torch.utils.collect_env:run", command: touch {CANARY}}}', "torch.utils.collect_env"),
    ],
)
def test_the_watch_sees_what_the_person_at_the_command_line_allows(model: str, allowed: str, tmp_path: Path) -> None:
    words = ("train", "config.yaml", "--allow", allowed)
    outcome = run(Case("control", 2, words=words, config=config(model=model)), tmp_path)
    assert outcome.code == 2  # it does not create a model
    assert any(line.startswith(("os.system", "subprocess.Popen")) for line in outcome.seen)


def test_the_watch_sees_files_that_are_written_outside(tmp_path: Path) -> None:
    own = "open('../elsewhere/x', 'w').close()\n"
    outcome = run(Case("control", 0, config=config(imports="[mine]"), files={"mine.py": own}), tmp_path)
    assert (outcome.code, outcome.touched) == (0, ["elsewhere/x"])
    assert [line.split(",")[0] for line in outcome.seen] == ["open ('../elsewhere/x'"]


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        ("O_CREAT", ["open ('runs/link'", "open ('runs/deep/../link'"]),
        ("O_CREAT | os.O_NOFOLLOW", []),
        ("O_CREAT | os.O_EXCL", []),
    ],
)
def test_the_watch_sees_what_is_written_through_a_link(flags: str, seen: list[str], tmp_path: Path) -> None:
    own = f"""
import os
for name in ("runs/link", "runs/deep/../link"):
    try:
        os.close(os.open(name, os.O_WRONLY | os.{flags}))
    except OSError:
        pass
os.rename("runs/link", "runs/deep/link")
os.remove("runs/deep/link")
"""

    def put(project: Path) -> None:
        (project / "runs" / "deep").mkdir(parents=True)
        (project / "runs" / "link").symlink_to("../../elsewhere/created")

    case = Case("control", 0, config=config(imports="[mine]"), files={"mine.py": own}, prepare=put)
    outcome = run(case, tmp_path)
    assert outcome.code == 0, outcome.output
    assert [line.split(",")[0] for line in outcome.seen] == seen
    assert outcome.touched == (["elsewhere/created"] if seen else [])


def unpickle(folder: str, content: bytes) -> None:
    os.chdir(folder)
    pickle.loads(content)


def load_with_torch(folder: str, file: str) -> None:
    os.chdir(folder)
    torch.load(file, weights_only=False)


@pytest.mark.parametrize("name", ["os_system", "popen", "eval", "bytes_of_torch"])
def test_every_payload_runs_code_when_it_is_unpickled(name: str, tmp_path: Path) -> None:
    with running(unpickle, str(tmp_path), pickle.dumps(hostile_checkpoints.payloads()[name])) as child:
        assert child.wait() == 0, child.output()
        for _ in range(200):  # Popen does not wait for its process
            if (tmp_path / CANARY).exists():
                break
            with running(unpickle, str(tmp_path), pickle.dumps(None)) as pause:
                pause.wait()
    assert (tmp_path / CANARY).exists()


@pytest.mark.parametrize("name", ["zip", "legacy"])
def test_every_format_runs_code_when_torch_trusts_it(name: str, tmp_path: Path) -> None:
    call = hostile_checkpoints.Calls(os.system, f"touch {CANARY}")
    file = write(tmp_path, "evil.pth", hostile_checkpoints.FORMATS[name](call))
    with running(load_with_torch, str(tmp_path), str(file)) as child:
        assert child.wait() == 0, child.output()
    assert (tmp_path / CANARY).exists()
