"""Sharded checkpoints: a folder is written completely or not at all, verified, and never unpickled."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hookline.checkpoint import folders, inspection, loading, seal, shard_files, shards, store
from hookline.checkpoint.names import NAMES
from hookline.checkpoint.retention import by_age, keep_newest
from hookline.errors import HooklineError, StorageError, exit_code_of
from hookline.hooks import EMAHook
from hookline.rundir.runs import read_checkpoints
from hookline.testing import toy_model, toy_runner
from tests.checkpoint.test_store import flip
from tests.distributed.alone import group_of_one
from tests.faults.children import command


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    with group_of_one():
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with two sharded checkpoints."""
    folder = tmp_path_factory.mktemp("shards") / "run"
    with group_of_one():
        toy_runner(work_dir=folder, strategy="fsdp", custom_hooks=[EMAHook(momentum=0.5)]).train()
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def resume(folder: Path, **parts: Any) -> Any:
    """Resume a run, which has nothing left to train, and return its runner."""
    runner = toy_runner(work_dir=folder, custom_hooks=[EMAHook(momentum=0.5)], **{"resume": True, **parts})
    runner.train()
    return runner


def weights(runner: Any) -> list[Any]:
    """Return the weights of a run that may be sharded."""
    return [
        each.full_tensor().tolist() if hasattr(each, "full_tensor") else each.tolist()
        for each in runner.model.parameters()
    ]


# --------------------------------------------------------------------------------------------------- one folder


def test_a_folder_has_the_contents_of_a_file(folder: Path) -> None:
    found = store.read(folder / "epoch_2.dcp", sealed=True)
    toy_runner(work_dir=folder.parent / "file", custom_hooks=[EMAHook(momentum=0.5)]).train()
    expected = store.read(folder.parent / "file" / "epoch_2.pth", sealed=True)
    assert list(found) == list(expected)
    for part in ("state_dict", "optimizer", "position", "param_schedulers"):
        assert str(found[part]) == str(expected[part])
    assert str(found["hooks"]["EMAHook"]) == str(expected["hooks"]["EMAHook"])
    assert seal.read_note(folder / "epoch_2.dcp") == seal.Note(8, 1, complete=True)


def test_only_tensors_are_given_to_torch_and_its_metadata_is_not_needed(folder: Path) -> None:
    path = folder / "epoch_2.dcp"
    description = loading.load(path / "checkpoint.pth")["shards"]
    assert sorted(description["files"]) == [".metadata", "__0_0.distcp"]
    paths = ["/".join(map(str, each[0])) for each in description["tensors"]]
    assert paths == [
        f"{top}/{name}" for top in ("state_dict", "hooks/EMAHook/averaged") for name in toy_model().state_dict()
    ]


def test_weights_are_read_when_they_are_needed_and_only_in_part(folder: Path) -> None:
    path = folder / "epoch_2.dcp"
    stored, expected = (store.read(path, sealed=True, whole=each)["state_dict"]["0.weight"] for each in (False, True))
    assert isinstance(stored, shards.Stored)
    assert (stored.shape, stored.dtype, stored.ndim, stored.numel(), stored.element_size()) == (
        *(expected.shape, expected.dtype, 2, 32),
        4,
    )
    assert stored.read([3, 1], [2, 3]).equal(expected[3:5, 1:4])
    assert stored.read([8, 0], [0, 4]).shape == (0, 4)


def test_a_tensor_in_several_parts_is_put_together_from_those_that_overlap(folder: Path) -> None:
    tensor = torch.arange(30.0).reshape(5, 6)
    parts = [([0, 0], [2, 6]), ([2, 0], [2, 4]), ([2, 4], [2, 2]), ([4, 0], [1, 6])]
    place, chunks = folder / "__0_0.distcp", []
    with open(place, "wb") as file:
        for (y, x), (height, width) in parts:
            begin = file.tell()
            torch.save(tensor[y : y + height, x : x + width].clone(), file)
            chunks.append([[y, x], [height, width], place.name, begin, file.tell() - begin])
    stored = shards.Stored(folder, [5, 6], "float32", chunks)
    assert stored.read().equal(tensor)
    assert stored.read([1, 3], [3, 2]).equal(tensor[1:4, 3:5])


@pytest.mark.parametrize("strategy", ["fsdp", "ddp", "single"])
def test_a_folder_is_resumed_and_loaded_by_every_strategy(
    folder: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if strategy == "single":
        monkeypatch.delenv("WORLD_SIZE")
    expected = [value.tolist() for value in store.read(folder / "epoch_2.dcp", sealed=True)["state_dict"].values()]
    resumed = resume(folder, strategy=strategy)
    assert (weights(resumed), resumed.iter) == (expected, 8)
    loaded = toy_runner(strategy=strategy, load_from=folder / "epoch_2.dcp", max_epochs=1)
    loaded.val()
    assert weights(loaded) == expected


def test_a_file_is_resumed_by_fsdp(tmp_path: Path) -> None:
    for strategy in ("ddp", "fsdp"):
        runner = toy_runner(work_dir=tmp_path, strategy=strategy, max_epochs=1 + (strategy == "fsdp"), resume=True)
        runner.train()
    straight = toy_runner()
    straight.train()
    assert weights(runner) == weights(straight)
    assert sorted(path.name for path in tmp_path.glob("epoch_*")) == ["epoch_1.pth", "epoch_2.dcp"]


# ------------------------------------------------------------------------------------------------------ damage


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize(
    ("name", "harm", "reason"),
    [
        ("__0_0.distcp", lambda path: flip(path, 700), "the bytes of its __0_0.distcp do not match their SHA-256"),
        ("__0_0.distcp", cut, "its __0_0.distcp has {} bytes instead of {}"),
        ("__0_0.distcp", Path.unlink, "its __0_0.distcp is missing"),
        ("checkpoint.pth", lambda path: flip(path, 700), "its bytes do not match its SHA-256"),
        (
            "checkpoint.pth",
            cut,
            "it does not end with a seal, so it was cut short, damaged, or written by something else",
        ),
        ("checkpoint.pth", Path.unlink, folders.FOREIGN),
    ],
)
def test_fault_14_damage_is_found_before_anything_is_loaded_and_the_older_folder_is_used(
    folder: Path, name: str, harm: Any, reason: str
) -> None:
    path = folder / "epoch_2.dcp"
    size = (path / name).stat().st_size
    harm(path / name)
    reason = reason.format(size - 1, size)
    assert seal.damage(path) == reason
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=False)
    assert (str(refused.value), exit_code_of(refused.value)) == (f"{path} cannot be used: {reason}", 5)
    with pytest.raises(StorageError, match="cannot be"):
        resume(folder, strategy="fsdp", resume=path)
    warned: list[str] = []
    assert store.newest_intact([folder], warned.append) == folder / "epoch_1.dcp"
    assert len(warned) == 1
    assert warned[0].endswith(reason)


class Hostile:
    """Runs code when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


def reseal(path: Path, change: Any) -> None:
    """Change the contents of the sealed file in a folder, with a valid seal."""
    inner = path / "checkpoint.pth"
    note = seal.read_note(path)
    assert note is not None
    found = loading.load(inner)
    change(found)
    inner.unlink()
    store.write(found, inner, note)


def test_a_hostile_metadata_is_not_unpickled_even_if_the_folder_is_sealed(folder: Path, tmp_path: Path) -> None:
    path, target = folder / "epoch_2.dcp", tmp_path / "was here"
    (path / ".metadata").write_bytes(pickle.dumps(Hostile(target)))
    with pytest.raises(StorageError, match=r"\.metadata has [0-9]+ bytes instead of [0-9]+"):
        store.read(path, sealed=True)
    about = [(path / ".metadata").stat().st_size, seal.digest(path / ".metadata")]
    reseal(path, lambda found: found["shards"]["files"].update({".metadata": about}))
    assert resume(folder, strategy="fsdp").iter == 8
    assert not target.exists()


def test_a_hostile_part_is_not_unpickled(folder: Path, tmp_path: Path) -> None:
    path, target = folder / "epoch_2.dcp", tmp_path / "was here"
    with open(path / "__0_0.distcp", "wb") as file:
        torch.save(Hostile(target), file)
    size = (path / "__0_0.distcp").stat().st_size
    about = [size, seal.digest(path / "__0_0.distcp")]

    def change(found: dict[str, Any]) -> None:
        found["shards"]["files"]["__0_0.distcp"] = about
        for *_, chunks in found["shards"]["tensors"]:
            chunks[0][3:] = [0, size]

    reseal(path, change)
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=True)
    assert str(refused.value).startswith(f"{path / '__0_0.distcp'} cannot be read: ")
    assert not target.exists()


def claim_terabytes(found: dict[str, Any]) -> None:
    found["shards"]["tensors"][0][1] = [1 << 40, 4]


def claim_chunk(found: dict[str, Any]) -> None:
    found["shards"]["tensors"][0][1] = found["shards"]["tensors"][0][3][0][1] = [1 << 40, 4]


def leave_the_folder(found: dict[str, Any]) -> None:
    files = found["shards"]["files"]
    files["../epoch_1.dcp/__0_0.distcp"] = files["__0_0.distcp"]


def use_unlisted_file(found: dict[str, Any]) -> None:
    found["shards"]["tensors"][0][3][0][2] = "../secret"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (claim_terabytes, "a tensor in it claims other data than its files have"),
        (claim_chunk, "a tensor in it claims other data than its files have"),
        (
            leave_the_folder,
            "it names the file '../epoch_1.dcp/__0_0.distcp', which is not one of a sharded checkpoint",
        ),
        (use_unlisted_file, "a tensor in it is in a file that it does not list"),
        (lambda found: found.pop("shards"), "its checkpoint.pth does not describe the files beside it"),
        (lambda found: found["shards"].pop("tensors"), "its checkpoint.pth does not describe its files"),
        (lambda found: found["shards"].update(files=3), "its checkpoint.pth does not describe the files beside it"),
        (lambda found: found["shards"]["tensors"][0].append(1), "its checkpoint.pth does not describe its files"),
        (
            lambda found: found["shards"]["tensors"][0].__setitem__(0, ["meta", "no", "such"]),
            "its checkpoint.pth does not describe its files",
        ),
    ],
)
def test_a_sealed_folder_with_a_wrong_description_is_refused(folder: Path, change: Any, reason: str) -> None:
    path = folder / "epoch_2.dcp"
    reseal(path, change)
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=True)
    assert str(refused.value) == f"{path} cannot be used: {reason}"


def test_a_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    foreign = tmp_path / "foreign"
    toy_runner(strategy="ddp", max_epochs=1).train()  # joins the group, which torch's save warns without
    save({"weight": torch.ones(3)}, checkpoint_id=foreign)
    reason = f"{foreign} cannot be used: {folders.FOREIGN}"
    for strategy in ("fsdp", "ddp"):
        with pytest.raises(HooklineError) as refused:
            toy_runner(strategy=strategy, load_from=foreign).train()
        assert (str(refused.value), exit_code_of(refused.value)) == (reason, 5)
    code, output = command("inspect", "foreign", cwd=tmp_path)
    assert (code, folders.FOREIGN in " ".join(output.split())) == (5, True)


# ------------------------------------------------------------------------------------------- the files of a run


def test_retention_and_lists_include_folders(folder: Path) -> None:
    assert [path.name for path in by_age(folder, NAMES)] == ["epoch_1.dcp", "epoch_2.dcp"]
    assert [(each.path.name, each.epoch, each.complete) for each in read_checkpoints(folder)] == [
        ("epoch_1.dcp", 1, True),
        ("epoch_2.dcp", 2, True),
    ]
    lines = inspection.describe_folder(folder).splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["epoch_1.dcp", "epoch_2.dcp"]
    assert all(line.endswith("intact") for line in lines[:2])
    assert lines[2] == "a run with --resume continues from epoch_2.dcp"
    keep_newest(1, NAMES, folder / "epoch_2.dcp")
    assert sorted(path.name for path in folder.iterdir() if ".dcp" in path.name) == ["epoch_2.dcp"]


def test_inspect_and_export_take_a_folder(folder: Path) -> None:
    code, output = command("inspect", "epoch_2.dcp", cwd=folder)
    assert code == 0, output
    rows = {line[:16].strip(): line[18:] for line in output.splitlines()}
    assert rows["folder"].startswith("epoch_2.dcp, ")
    assert rows["state_dict"] == "4 tensors, 58 numbers, 232 bytes"
    assert rows["use"] == "a run can resume from it"
    assert command("export", "epoch_2.dcp", "--out", "one.pth", cwd=folder)[0] == 0
    exported = torch.load(folder / "one.pth", weights_only=True)
    assert str(exported) == str(store.read(folder / "epoch_2.dcp", sealed=True))
    model = toy_model()
    model.load_state_dict(exported["state_dict"])
    code, output = command("export", "epoch_2.dcp", "--averaged", "--out", "one.pth", "--force", cwd=folder)
    assert (code, output.splitlines()[-1].endswith("but one.pth ends with .pth")) == (2, True)


def test_a_second_run_archives_folders_and_a_resume_from_an_earlier_one_moves_the_later(folder: Path) -> None:
    resume(folder, strategy="fsdp", resume=folder / "epoch_1.dcp", max_epochs=1)
    assert sorted(path.name for path in (folder / "old-1").glob("*.dcp")) == ["epoch_2.dcp"]
    toy_runner(work_dir=folder, strategy="fsdp", max_epochs=1).train()
    assert sorted(path.name for path in (folder / "old-2").glob("*.dcp")) == ["epoch_1.dcp"]


def test_a_folder_is_replaced_and_leftovers_are_swept(folder: Path) -> None:
    path, other = folder / "epoch_1.dcp", folder / "epoch_2.dcp"
    temporary = folders.begin(path)
    shutil.copytree(other, temporary, dirs_exist_ok=True)
    folders.put_in_place(temporary, path)
    assert seal.read_note(path) == seal.read_note(other)
    os.replace(path, folder / ".epoch_1.dcp.replaced.partial")  # killed between the two renames
    shutil.copytree(other, folder / ".epoch_1.dcp.partial")
    (folder / ".a.pth.partial").touch()
    store.sweep(folder)
    assert sorted(each.name for each in folder.iterdir() if "partial" in each.name or ".dcp" in each.name) == [
        "epoch_1.dcp",
        "epoch_2.dcp",
    ]
    assert seal.damage(path) == ""


def save_and_die(path: Path, owner: Any, name: str, number: int) -> None:
    """Replace a folder, and kill this process at the n-th call of a function."""
    original, calls = getattr(owner, name), []

    def dying(*given: Any, **more: Any) -> Any:
        calls.append(given)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*given, **more)

    setattr(owner, name, dying)
    warnings.simplefilter("ignore")  # torch's save warns that there is no group
    part = {"path": ["state_dict", "0.weight"], "shape": [2], "offsets": [0], "local": torch.ones(2)}
    checkpoint = {**store.read(path, sealed=True), "state_dict": {"0.weight": None}, "shards": [part]}
    writers = shard_files.Writers(0, None, lambda function: [function()])
    shard_files.write(checkpoint, path, seal.Note(9, 1, complete=True), writers)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("owner", "name", "number", "is_new"),
    [
        (folders, "begin", 1, False),
        (shard_files, "_write_parts", 1, False),
        (store, "write", 1, False),
        (folders, "put_in_place", 1, False),
        (os, "replace", 2, False),  # the first one is that of the sealed file
        (os, "replace", 3, False),  # the old folder was moved away
        (folders, "sync_folder", 2, True),
    ],
)
def test_fault_2_a_kill_at_any_moment_of_a_save_leaves_the_old_or_the_new_folder(
    folder: Path, owner: Any, name: str, number: int, is_new: bool
) -> None:
    path = folder / "epoch_2.dcp"
    child = os.fork()
    if child == 0:
        gc.disable()  # the process groups of earlier tests cannot be destroyed in a fork
        try:
            save_and_die(path, owner, name, number)
        finally:
            os._exit(0)  # an error must not continue the tests in this process
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store.sweep(folder)
    assert seal.damage(path) == ""
    assert seal.read_note(path) == seal.Note(9 if is_new else 8, 1, complete=True)
    assert sorted(each.name for each in folder.iterdir() if ".dcp" in each.name) == ["epoch_1.dcp", "epoch_2.dcp"]


def test_a_save_in_the_background_writes_the_state_of_its_moment(tmp_path: Path) -> None:
    steps: dict[int, list[Any]] = {}
    runner = toy_runner(
        work_dir=tmp_path,
        strategy="fsdp",
        default_hooks={"checkpoint": {"async_save": True, "by_epoch": False, "interval": 1}},
    )
    runner.on("after_train_iter", priority="LOWEST")(lambda runner: steps.update({runner.iter + 1: weights(runner)}))
    runner.train()
    for step, expected in steps.items():
        saved: dict[str, Tensor] = store.read(tmp_path / f"iter_{step}.dcp", sealed=True)["state_dict"]
        assert [value.tolist() for value in saved.values()] == expected
