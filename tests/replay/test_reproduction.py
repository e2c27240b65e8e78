"""A run that is run again in a new folder, and what has changed since."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from hookline.data import ResumableLoader
from hookline.data.sources import BLOCKS, MOST_BYTES, _places, fingerprint, hash_of
from hookline.errors import ConfigError
from hookline.lifecycle import events
from hookline.replay.reproduction import choose_folder
from hookline.rundir import journal
from tests.faults import children, differences


def command(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    status, printed = children.command(*words, "--json", cwd=folder)
    return status, json.loads(printed[printed.index("{") :])


@pytest.mark.processes
def test_the_result_is_the_same_and_the_run_is_only_read(tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    status, found = command(tmp_path, "reproduce", "run")
    assert (status, found["same"], found["changes"], found["steps"]) == (0, True, [], [1, 12])
    assert found["compared"] == {"losses": 12, "checkpoints": 3}
    assert found["unchanged"][-1] == "data"
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert (tmp_path / "run-again" / "iter_12.pth").exists()
    status, printed = children.command("reproduce", "run", cwd=tmp_path)
    assert (status, printed) == (
        2,
        f"hookline: {tmp_path / 'run-again'} exists already; choose a new folder with --out\n",
    )


@pytest.mark.processes
def test_changes_are_named_and_the_steps_are_replayed_twice(tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    project, config = tmp_path / "project.py", tmp_path / "run" / "config.yaml"
    project.write_text(
        project.read_text().replace("randn(4) / 10", "randn(4) / 11").replace("flipped=-1", "flipped=-2")
    )
    config.write_text(config.read_text() + "\n# edited\n")
    status, found = command(tmp_path, "reproduce", "run", "--out", "new")
    assert (status, found["same"], found["equal_until"], found["differs_at"]) == (1, False, 0, 1)
    assert (found["deterministic"], found["first"]) == (True, None)
    assert found["changes"][:2] == [
        f"{project} was changed since the run had begun",
        f"{tmp_path / 'run' / 'config.yaml'} was changed since the run had begun",
    ]
    assert found["changes"][2].startswith("the data: hash ")


@pytest.mark.processes
def test_a_run_that_is_not_deterministic_is_said_to_be_so(tmp_path: Path) -> None:
    noisy = differences.PROJECT.replace("return self.last(x.relu())", "return self.last(x.relu()) * (1 + NOISE)")
    noise = "import os\n\nNOISE = int.from_bytes(os.urandom(2), 'big') / 1e6\n"
    (tmp_path / "project.py").write_text(noisy + noise)
    (tmp_path / "c.yaml").write_text(json.dumps(differences.CONFIG))
    assert children.command("train", "c.yaml", "work_dir=run", cwd=tmp_path)[0] == 0
    status, found = command(tmp_path, "reproduce", "run")
    assert (status, found["same"], found["deterministic"]) == (1, False, False)
    assert (found["first"]["step"], found["first"]["kind"]) == (1, "module output")


@pytest.mark.processes
def test_a_run_without_records_of_its_steps_is_refused(tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    (tmp_path / "run" / "loss_bits.bin").unlink()
    assert children.command("reproduce", "run", cwd=tmp_path) == (
        2,
        "hookline: run cannot be run again: it has no loss_bits.bin, in which a run records its steps\n",
    )


# -- what is recorded at the start


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.processes
def test_the_revision_of_the_code_is_recorded_with_whether_it_was_clean(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "project.py").write_text(differences.PROJECT)
    git(tmp_path, "add", "project.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    differences.train(tmp_path, "run")
    (start,) = (event for event in journal.read(tmp_path / "run") if event["kind"] == "start")
    assert (len(start["sources"]["revision"]), start["sources"]["clean"]) == (40, True)
    assert start["sources"]["files"] == {str(tmp_path / "project.py"): events.hash_of(tmp_path / "project.py")}
    (tmp_path / "project.py").write_text(differences.PROJECT + "\n")
    asked = events._revision_of_repository.__wrapped__(str(tmp_path))
    assert asked == {"revision": start["sources"]["revision"], "clean": False}


def test_a_folder_outside_of_a_repository_has_no_revision(tmp_path: Path) -> None:
    assert events.revision_of(str(tmp_path)) is None


class Files:
    """A data set of files, which knows its own fingerprint."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        raise AssertionError("no sample is read")


def test_a_fingerprint_shows_changed_data_and_reads_no_sample() -> None:
    values = torch.arange(8.0)
    before = fingerprint(ResumableLoader(TensorDataset(values), 2))
    assert (before["type"], before["samples"]) == ("TensorDataset", 8)
    assert fingerprint(ResumableLoader(TensorDataset(values.clone()), 2)) == before
    values[3] += 1
    assert fingerprint(ResumableLoader(TensorDataset(values), 2))["hash"] != before["hash"]
    files = [fingerprint(ResumableLoader(Files(names), 1))["hash"] for names in (["a", "b"], ["a", "b"], ["b", "a"])]
    assert (files[0] == files[1], files[1] == files[2]) == (True, False)


def test_a_data_set_can_have_its_own_fingerprint() -> None:
    class Versioned(Files):
        def fingerprint(self) -> str:
            return "2026-11"

    assert fingerprint(ResumableLoader(Versioned(["a"]), 1))["hash"] == "2026-11"


def test_a_fingerprint_of_much_data_takes_a_part_of_it() -> None:
    large = torch.zeros(1 << 24, dtype=torch.uint8)
    before = hash_of(large)
    large[::2] += 1
    assert hash_of(large) != before
    assert hash_of(list(range(10_000))) == hash_of(list(range(10_000)))


def test_the_parts_of_much_data_are_a_few_blocks_in_any_layout() -> None:
    (places,) = _places((1 << 40,), 2)
    assert (places[0], places[-1], len(places)) == (0, (1 << 40) - 1, MOST_BYTES // 2)
    assert np.count_nonzero(np.diff(places) != 1) == BLOCKS - 1
    array = np.arange(3_000_000).reshape(1000, 3000)
    hashes = {hash_of(each) for each in (array, np.asfortranarray(array))}
    tensor = torch.from_numpy(array)
    hashes |= {hash_of(each) for each in (tensor, tensor.T.contiguous().T)}
    assert len(hashes) == 2  # one of arrays, and one of tensors
    array[-1, -1] = 0
    assert hashes.isdisjoint({hash_of(array), hash_of(tensor)})


def test_a_generator_has_no_size() -> None:
    found = fingerprint(number for number in range(3))
    assert (found["type"], found["samples"]) == ("generator", None)


def test_a_folder_in_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is in the folder of the run, which is only read"):
        choose_folder(tmp_path, tmp_path / "inside")
