"""Bundles: a failure in one file, which a colleague repeats, and files of strangers, which run nothing."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline.errors import StorageError
from hookline.replay import bundle
from hookline.replay.packing import UnpackableError, pack, read_tensors, unpack, write_tensors
from tests.faults import children
from tests.faults.replays import CONFIG, PROJECT
from tests.replay.test_replay import train

pytestmark = pytest.mark.processes

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a project, a run that failed in step 7 with windows of two batches, and its bundle."""
    folder = tmp_path_factory.mktemp("packed")
    assert train(folder, hook="after_train_iter", accumulate=2, interval=4) == 1
    code, printed = children.command("replay", "run", "--bundle", "bug.hl", cwd=folder)
    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[0] == f"replayed {folder / 'run'} from iter_4.pth (step 4), steps 5 to 7"
    size = (folder / "bug.hl").stat().st_size / 1e3
    assert lines[-1] == f"wrote bug.hl ({size:.1f} kB): the state, and 1 batch"
    return folder


def elsewhere(packed: Path, folder: Path) -> Path:
    """Return a folder with the code and the bundle, and with data that cannot be read."""
    for name in ("project.py", "train.py", "bug.hl"):
        shutil.copy(packed / name, folder / name)
    text = (folder / "project.py").read_text()
    (folder / "project.py").write_text(text.replace("features = ", "raise OSError('no data'); features = ", 1))
    return folder


def test_a_colleague_repeats_the_failure_without_the_data(packed: Path, tmp_path: Path) -> None:
    folder = elsewhere(packed, tmp_path)
    before = sorted(folder.iterdir())
    code, printed = children.command("replay", "bug.hl", "--allow", "train.py", "--json", cwd=folder)
    found = json.loads(printed[printed.index("{") :])
    assert (code, found["same"], found["from"], found["reached"]) == (0, True, "iter_6.pth", 7)
    assert found["warnings"] == [f"{folder / 'project.py'} was changed since the run had failed"]
    assert found["error"] == found["replayed_error"]
    assert sorted(folder.iterdir()) == before


def test_a_script_runs_only_if_the_user_names_it(packed: Path, tmp_path: Path) -> None:
    folder = elsewhere(packed, tmp_path)
    (folder / "train.py").write_text("open('ran', 'w').close()")
    code, printed = children.command("replay", "bug.hl", cwd=folder)
    assert code == 2
    words = json.dumps({"interval": 4, "hook": "after_train_iter", "accumulate": 2})
    assert printed.startswith("hookline: bug.hl needs the script train.py of the working directory with the arguments")
    assert printed.endswith("if you want to run it, add --allow train.py\n"), words
    assert not (folder / "ran").exists()


def test_nothing_in_it_is_a_pickle_or_a_path_of_this_machine(packed: Path) -> None:
    with zipfile.ZipFile(packed / "bug.hl") as archive:
        assert archive.namelist() == ["bundle.json", "tensors.bin"]
        text = archive.read("bundle.json").decode()
        assert str(packed) not in text
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(archive.read("tensors.bin"))


def test_a_config_is_packed_without_the_values_of_variables(tmp_path: Path) -> None:
    hooks = json.dumps([{"type": "project:Fails", "at": 3}, {"type": "project:Holds", "token": "${oc.env:A_TOKEN}"}])
    holds = "\n\nclass Holds(Hook):\n    def __init__(self, token):\n        self.token = token\n"
    holds += "\n    def state_dict(self):\n        return {'token': self.token}\n"
    holds += "\n    def load_state_dict(self, state):\n        pass\n"
    (tmp_path / "project.py").write_text(PROJECT + holds)
    (tmp_path / "c.yaml").write_text(CONFIG.format(net="", at=7, data="", interval=2, hooks=hooks))
    secret = {"A_TOKEN": "hunter2-is-no-password"}
    assert children.command("train", "c.yaml", cwd=tmp_path, environment=secret)[0] == 1
    code, printed = children.command("replay", "run", "--bundle", "bug.hl", cwd=tmp_path, environment=secret)
    assert code == 0, printed
    with zipfile.ZipFile(tmp_path / "bug.hl") as archive:
        content = archive.read("bundle.json")
        assert b"hunter2" not in content + archive.read("tensors.bin")
    assert "${oc.env:A_TOKEN}" in json.loads(content)["config"]
    shutil.rmtree(tmp_path / "run")
    code, printed = children.command("replay", "bug.hl", "--json", cwd=tmp_path, environment={"A_TOKEN": "another"})
    assert (code, json.loads(printed)["same"]) == (0, True), printed


# -- bundles of strangers


def changed(packed: Path, path: Path, change: Change) -> Path:
    with zipfile.ZipFile(packed / "bug.hl") as archive:
        content, data = json.loads(archive.read("bundle.json")), archive.read("tensors.bin")
    change(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bundle.json", json.dumps(content))
        archive.writestr("tensors.bin", data)
    return path


def nested(content: dict[str, Any]) -> None:
    value: Any = 0
    for _ in range(300):
        value = [value]
    content["checkpoint"]["content"] = value


HOSTILE: dict[str, Change] = {
    "another format": lambda content: content.update(format=9),
    "no steps": lambda content: content.pop("steps"),
    "steps that are none": lambda content: content.update(steps=["a", 2]),
    "steps that end first": lambda content: content.update(steps=[7, 3]),
    "a huge step": lambda content: content.update(steps=[1, 1 << 60]),
    "a tensor outside": lambda content: content["tensors"][0].update(end=1 << 40),
    "a tensor of another size": lambda content: content["tensors"][0].update(shape=[1 << 30, 1 << 30]),
    "a negative shape": lambda content: content["tensors"][0].update(shape=[-1]),
    "an unknown type": lambda content: content["tensors"][0].update(kind="object"),
    "no tensor of this number": lambda content: content["checkpoint"].update(content={"T": 10**6}),
    "an unknown entry": lambda content: content["checkpoint"].update(content={"call": ["os.system", "id"]}),
    "a list as a key": lambda content: content["checkpoint"].update(content={"d": [[[1], 2]]}),
    "many levels": nested,
    "a checkpoint of a later step": lambda content: content["checkpoint"].update(step=99),
    "a checkpoint with a path": lambda content: content["checkpoint"].update(step="../../x"),
    "many processes": lambda content: [each.update(processes=10**6) for each in (content, content["capsule"])],
    "no process": lambda content: content.update(processes=0),
    "a folder with a zero byte": lambda content: content.update(trains_in="a\0b"),
    "a rank that is a path": lambda content: content["capsule"].update(rank="/../../x"),
    "losses that are none": lambda content: content.update(losses=[["a", "b"]]),
    "files of code that are none": lambda content: content.update(code=[1]),
    "a config that is none": lambda content: content.update(config=[1]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bundle_with_odd_content_is_refused_by_name(packed: Path, tmp_path: Path, name: str) -> None:
    path = changed(packed, tmp_path / "bad.hl", HOSTILE[name])
    with pytest.raises(StorageError) as caught:
        bundle.prepare_bundle(path, tmp_path / "run", None, False, ["train.py"])
    assert str(caught.value).startswith(f"{path} ")
    assert {each.name for each in tmp_path.iterdir()} <= {"bad.hl", "run"}


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x05\x06" + bytes(18), pickle.dumps({"a": 1}), b"{}" * 100],
    ids=["empty", "zip", "pickle", "text"],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.hl").write_bytes(content)
    with pytest.raises(StorageError, match="bad.hl is not a bundle of hookline replay --bundle: it has "):
        bundle.read(tmp_path / "bad.hl")


def test_compressed_and_further_entries_are_refused(packed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.hl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bundle.json", "{}")
        archive.writestr("tensors.bin", bytes(1 << 20))
    shutil.copy(packed / "bug.hl", tmp_path / "more.hl")
    with zipfile.ZipFile(tmp_path / "more.hl", "a") as archive:
        archive.writestr("../../evil.py", "raise SystemExit")
    for name in ("bomb.hl", "more.hl"):
        with pytest.raises(StorageError, match=f"{name} is not a bundle .*: it has other entries than a bundle has"):
            bundle.read(tmp_path / name)


@pytest.mark.parametrize("kind", ["os:system", "subprocess:run", "../evil:run"])
def test_a_config_in_a_bundle_selects_no_code(packed: Path, tmp_path: Path, kind: str) -> None:
    def change(content: dict[str, Any]) -> None:
        content["config"] = json.dumps({"model": {"type": kind, "command": "touch ran"}})
        for each in (content, content["capsule"]):
            each["origin"] = {**each["origin"], "kind": "config", "file": ""}

    (tmp_path / "evil.py").write_text("def run(command):\n    open('ran', 'w').close()\n")
    (tmp_path / "inside").mkdir()
    changed(packed, tmp_path / "inside" / "bad.hl", change)
    code, printed = children.command("replay", "bad.hl", cwd=tmp_path / "inside")
    assert code == 2, printed
    assert not [*tmp_path.rglob("ran")]


def test_steps_of_a_bundle_cannot_be_chosen(packed: Path) -> None:
    code, printed = children.command("replay", "bug.hl", "--steps", "1..2", cwd=packed)
    assert (code, printed) == (
        2,
        "hookline: bug.hl is a bundle, which has its steps and its start; leave out --steps and --from-start\n",
    )
    code, printed = children.command("replay", "run", "--bundle", "bug.hl", cwd=packed)
    assert (code, printed) == (2, "hookline: --bundle bug.hl exists already; choose another name\n")


# -- packing


def test_values_are_packed_to_the_bit() -> None:
    value = {
        "floats": [0.1, -0.0, math.inf, float("nan"), 1e-320],
        3: (1 << 100, True, None, b"\xff", 1 - 2j),
        (1, 2): OrderedDict(kind=torch.bfloat16, array=np.arange(3, dtype=np.int16)),
        "tensors": [torch.tensor(2.5), torch.arange(6.0).reshape(2, 3).T, torch.zeros(0, 4), torch.tensor([True])],
        "half": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    }
    tensors: list[torch.Tensor] = []
    plain = json.loads(json.dumps(pack(value, tensors)))
    found = unpack(plain, read_tensors(*write_tensors(tensors)))
    assert repr(found) == repr({**value, (1, 2): OrderedDict(value[(1, 2)])})  # type: ignore[arg-type]  # it is one
    assert type(found[(1, 2)]) is OrderedDict


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, lambda: 0, torch.zeros(2).to_sparse(), np.array([None]), np.array("a")]
)
def test_objects_that_are_no_plain_data_are_not_packed(value: Any) -> None:
    with pytest.raises(UnpackableError):
        pack(value, [])
