"""Replays of runs: the same steps again, in a scratch folder, and what is said about them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import ConfigError, StorageError
from hookline.replay.outcome import compare
from hookline.replay.preparation import parse_steps, prepare
from hookline.replay.running import find_code
from hookline.rundir import capsule
from tests.faults import children
from tests.faults.replays import PROJECT, SCRIPT, run_script

pytestmark = pytest.mark.processes


def train(folder: Path, **options: Any) -> int:
    """Run the script of the project of the fault tests, and return its exit code."""
    (folder / "project.py").write_text(PROJECT)
    (folder / "train.py").write_text(SCRIPT)
    with children.running(run_script, str(folder), {"interval": 2, **options}) as child:
        return child.wait()


def replay(folder: Path, *words: str) -> tuple[int, str]:
    return children.command("replay", "run", *words, cwd=folder)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a project and a run that failed in step 7."""
    folder = tmp_path_factory.mktemp("failed")
    assert train(folder, hook="after_train_iter") == 1
    return folder


@pytest.fixture
def copy(failed: Path, tmp_path: Path) -> Path:
    """Return a copy of the project in which tests may change files."""
    shutil.copytree(failed, tmp_path / "copy")
    path = tmp_path / "copy" / "run" / "capsule.json"
    text = path.read_text().replace(str(failed), str(tmp_path / "copy"))
    data = json.loads(text)
    del data["sha256"]
    path.write_text(json.dumps({**data, "sha256": capsule._checksum(data)}))
    return tmp_path / "copy"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_failure_is_repeated_from_the_checkpoint_and_the_run_is_only_read(failed: Path) -> None:
    before = contents(failed / "run")
    samples = ", ".join(map(str, capsule.read(failed / "run" / "capsule.json").data["batch"]["ids"]))
    assert replay(failed) == (
        0,
        f"replayed {failed / 'run'} from iter_6.pth (step 6), steps 7 to 7\n"
        "then: RuntimeError: planned at after_train_iter (step 7, hook Fails at after_train_iter)\n"
        "now:  RuntimeError: planned at after_train_iter (step 7, hook Fails at after_train_iter)\n"
        "there are no losses to compare\n"
        "the failure was repeated\n"
        f"samples of step 7: {samples}\n",
    )
    assert contents(failed / "run") == before


def test_it_is_repeated_from_the_start_with_the_same_bits(failed: Path) -> None:
    code, printed = replay(failed, "--from-start", "--json")
    found = json.loads(printed)
    assert (code, found["same"], found["from"], found["start"]) == (0, True, None, 0)
    assert found["bits"] == {"compared": 6, "differ_at": None}
    assert found["error"] == found["replayed_error"]


def test_steps_are_run_again_without_a_failure(failed: Path) -> None:
    code, printed = replay(failed, "--steps", "5..6", "--json")
    found = json.loads(printed)
    assert (code, found["same"], found["from"], found["reached"]) == (0, True, "iter_4.pth", 6)
    assert (found["bits"], found["replayed_error"]) == ({"compared": 2, "differ_at": None}, None)


def test_losses_that_differ_are_named_with_their_step(copy: Path) -> None:
    path = copy / "run" / "loss_bits.bin"
    data = bytearray(path.read_bytes())
    data[8 * 4] ^= 1  # the lowest bit of the loss of step 5
    path.write_bytes(bytes(data))
    code, printed = replay(copy, "--steps", "1..6")
    assert code == 1
    assert re.search(r"the losses differ from step 5: (\S+) then, (\S+) now", printed), printed


def test_changed_data_is_named(copy: Path) -> None:
    project = copy / "project.py"
    project.write_text(PROJECT.replace("return 32", "return 31"))
    _, printed = replay(copy)
    assert "\nwarning: the data is not as it was when the run began: samples 32 then, 31 now" in printed


def test_changed_code_is_named_and_what_it_changes_is_found(copy: Path) -> None:
    project = copy / "project.py"
    project.write_text(project.read_text().replace("lr=0.01", "lr=0.02"))
    code, printed = replay(copy, "--from-start")
    lines = printed.splitlines()
    assert code == 1
    assert lines[0] == f"warning: {project} was changed since the run had failed"
    assert [line for line in lines if line.startswith("the losses differ from step 2: ")]
    assert lines[-2] == "the failure was not repeated"


def test_code_that_was_mended_does_not_fail(copy: Path) -> None:
    project = copy / "project.py"
    project.write_text(project.read_text().replace("raise RuntimeError", "RuntimeError"))
    code, printed = replay(copy)
    assert (code, "now:  no error" in printed, "the failure was not repeated" in printed) == (1, True, True)


def test_the_debugger_opens_where_the_run_failed(failed: Path) -> None:
    with children.running(debug, str(failed)) as child:
        assert (child.wait(), "-> raise RuntimeError" in child.output()) == (0, True), child.output()


def debug(folder: str) -> None:
    """Replay with a debugger that gets `w` and `q`; called in a child."""
    import io
    import sys

    os.chdir(folder)
    sys.stdin = io.StringIO("w\nq\n")
    children.run_command(("replay", "run", "--pdb"), folder, {})


def test_a_run_without_a_failure_needs_steps(tmp_path: Path) -> None:
    assert train(tmp_path) == 0
    code, printed = replay(tmp_path)
    assert code == 2
    assert printed == (
        "hookline: run has no capsule.json, so there is no failure to repeat: the run has not failed, has passed the "
        "step since, or was ended by a signal; to run steps of it again, use --steps, such as --steps 100..120\n"
    )
    code, printed = replay(tmp_path, "--steps", "23..24", "--json")
    assert (code, json.loads(printed)["bits"]) == (0, {"compared": 2, "differ_at": None})


def test_a_failure_of_a_hook_is_not_blamed_on_numbers(copy: Path) -> None:
    assert replay(copy, "--triage") == (1, "no NaN or Inf was found in steps 7 to 7\n")


@pytest.mark.parametrize("option", ["--bundle", "--trail"])
def test_a_file_in_a_missing_folder_is_refused_before_the_replay(copy: Path, option: str) -> None:
    problem = f"hookline: {option} gone/file must be a file in a folder that exists\n"
    assert replay(copy, option, "gone/file") == (2, problem)


def test_a_failure_of_several_processes_is_compared_with_the_first_one_of_the_replay(copy: Path) -> None:
    task, scratch = prepare(copy / "run"), copy / "scratch"
    scratch.mkdir()
    data = {name: each for name, each in capsule.read(copy / "run" / "capsule.json").data.items() if name != "sha256"}
    other = {"step": 6, "error": {**data["error"], "type": "DistributedError", "relayed": True, "hook": ""}}
    capsule.write(scratch, {**data, **other, "processes": 2})
    capsule.write(scratch, {**data, "rank": 1, "processes": 2})
    assert compare(task, scratch).same


def test_a_missing_checkpoint_is_named_and_the_start_is_offered(copy: Path) -> None:
    (copy / "run" / "iter_6.pth").unlink()
    code, printed = replay(copy)
    assert (code, printed) == (
        5,
        f"hookline: {copy / 'run' / 'iter_6.pth'}, from which the failure is repeated, does not exist; to repeat it "
        "from the first step of the run, use --from-start\n",
    )
    assert replay(copy, "--from-start")[0] == 0


def test_another_checkpoint_in_its_place_is_refused(copy: Path) -> None:
    shutil.copy(copy / "run" / "iter_4.pth", copy / "run" / "iter_6.pth")
    with pytest.raises(StorageError, match="is not the checkpoint that the run had saved: it was written again since"):
        prepare(copy / "run")


def test_a_capsule_that_was_edited_is_refused(copy: Path) -> None:
    path = copy / "run" / "capsule.json"
    path.write_text(path.read_text().replace('"step": 7', '"step": 6', 1))
    with pytest.raises(StorageError, match="was changed after the run had written it"):
        prepare(copy / "run")


def test_code_elsewhere_is_not_run_because_a_capsule_says_so(failed: Path, tmp_path: Path) -> None:
    code, printed = children.command("replay", str(failed / "run"), cwd=tmp_path)
    assert code == 2
    lines = printed.splitlines()
    assert lines[0].startswith(f"warning: the run was started in {failed}: relative paths may lead elsewhere here")
    assert lines[1] == (
        f"hookline: the run was started by the script train.py in {failed}, which is not below the working directory "
        f"({tmp_path}), so it is not run without your word; change the directory first: cd {failed}"
    )


@pytest.mark.parametrize("file", ["../outside.py", __file__, "link.py"], ids=["up", "absolute", "link"])
def test_a_script_outside_of_the_working_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.py").write_text("raise SystemExit(99)")
    (inside / "link.py").symlink_to(tmp_path / "outside.py")
    monkeypatch.chdir(inside)
    with pytest.raises(ConfigError, match="is not run without your word"):
        find_code({"kind": "script", "file": file, "folder": str(inside), "words": [], "starts_itself": False})


@pytest.mark.parametrize("folder", ["", ".", "/gone"])
def test_a_script_that_is_not_in_the_folder_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="change to the folder with the code first$"):
        find_code({"kind": "script", "file": "train.py", "folder": folder, "words": [], "starts_itself": False})


def test_a_run_of_code_without_a_file_cannot_be_replayed(copy: Path) -> None:
    path = copy / "run" / "capsule.json"
    data = json.loads(path.read_text())
    del data["sha256"]
    data["origin"]["kind"] = ""
    path.write_text(json.dumps({**data, "sha256": capsule._checksum(data)}))
    with pytest.raises(ConfigError, match="it was started by code without a file, such as a notebook"):
        prepare(copy / "run")


def test_a_script_that_trains_another_run_first_is_refused_before_it_writes(copy: Path) -> None:
    script = copy / "train.py"
    script.write_text(script.read_text().replace("    case = ", "    from first import go; go()\n    case = "))
    (copy / "first.py").write_text(
        "from hookline.testing import toy_runner\n\n\ndef go():\n    toy_runner(work_dir='other').train()\n"
    )
    code, printed = replay(copy)
    assert (code, "the code of this run uses another run first, in other" in printed) == (1, True), printed
    assert not (copy / "other").exists()


def test_a_process_that_a_replayed_script_starts_does_not_train_for_real(copy: Path) -> None:
    script = copy / "train.py"
    text = script.read_text().replace("    case = ", "    import subprocess\n    case = ")
    again = "    subprocess.run([sys.executable, 'again.py', sys.argv[1]], check=False)\n"
    (copy / "again.py").write_text(script.read_text())
    script.write_text(text.replace("    call = ", again + "    call = ", 1))
    before = contents(copy / "run")
    code, printed = replay(copy)
    assert "a replay cannot follow the code of this run into a new process" in printed
    assert (code, contents(copy / "run")) == (0, before)


@pytest.mark.parametrize("text", ["", "0..3", "5..4", "a..b", "1..", "-1", "1.5"])
def test_steps_that_are_no_steps_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"such as 120 or 100\.\.120, not '{re.escape(text)}'"):
        parse_steps(text)
