from __future__ import annotations

import errno
import hashlib
import json
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hookline.checkpoint import hashing, loading, seal, store
from hookline.checkpoint.seal import Note
from hookline.errors import StorageError

CHECKPOINT = {"meta": {"hookline": "0"}, "state_dict": {"weight": torch.arange(5000.0), "empty": torch.zeros(0)}}


def written(folder: Path, name: str = "a.pth", step: int = 3, validations: int = 0, complete: bool = True) -> Path:
    path = folder / name
    store.write(CHECKPOINT, path, Note(step, validations, complete))
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


# ------------------------------------------------------------------------------------------------------- seal


def test_a_checkpoint_ends_with_a_note_and_the_hash_of_everything_before(tmp_path: Path) -> None:
    data = written(tmp_path, step=120, validations=2).read_bytes()
    note = b'{"step": 120, "validations": 2, "complete": true} sha256:'
    expected = hashlib.sha256(data[:-64]).hexdigest().encode()
    assert data.endswith(note + expected)


def test_torch_and_zip_tools_can_read_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    for mmap in (False, True):
        assert torch.load(path, weights_only=True, mmap=mmap)["state_dict"]["weight"].equal(torch.arange(5000.0))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b'{"step": 3')


def test_writing_returns_the_sha256_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    sha256 = store.write(CHECKPOINT, path, Note())
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == seal.digest(path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_note_is_read_without_the_rest_and_files_of_other_programs_have_none(tmp_path: Path) -> None:
    assert seal.read_note(written(tmp_path, step=7, validations=1, complete=False)) == Note(7, 1, False)
    torch.save({}, tmp_path / "torch.pth")
    (tmp_path / "short.pth").write_bytes(b"x")
    (tmp_path / "odd.pth").write_bytes(b"PK\5\6" + b"\0" * 18 + b'{"step": "x"} sha256:' + b"0" * 64)
    assert [seal.read_note(tmp_path / f"{name}.pth") for name in ("torch", "short", "odd")] == [None, None, None]


def test_every_flipped_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    assert seal.damage(path) == ""
    places = [*range(0, len(whole), 997), *range(len(whole) - 200, len(whole))]
    for at in places:
        flip(path, at)
        assert seal.damage(path) != "", at
        with pytest.raises(StorageError, match="cannot be used|cannot be read"):
            store.read(path, sealed=True)
        path.write_bytes(whole)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 65, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert seal.damage(path) != "", length
    path.write_bytes(whole + b"x")
    assert seal.damage(path) != ""


def test_the_two_kinds_of_damage_have_different_messages(tmp_path: Path) -> None:
    path = written(tmp_path)
    flip(path, 1000)
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=True)
    assert str(refused.value) == f"{path} cannot be used: its bytes do not match its SHA-256"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=True)
    assert str(refused.value) == (
        f"{path} cannot be used: it does not end with a seal, so it was cut short, damaged, or written by something "
        "else"
    )


def test_a_checkpoint_that_lost_its_seal_is_not_mistaken_for_a_file_of_another_program(tmp_path: Path) -> None:
    path = written(tmp_path)
    flip(path, len(path.read_bytes()) - 70)  # inside the word sha256
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=False)
    assert str(refused.value) == f"{path} cannot be used: it has lost its seal, so it is damaged"
    torch.save({"state_dict": {}}, path)
    assert store.read(path, sealed=False) == {"state_dict": {}}


# ---------------------------------------------------------------------------------------------------- writing


def test_a_failed_write_is_reported_and_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    before = path.read_bytes()

    def full(self: seal.SealingFile, data: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(seal.SealingFile, "_put", full)
    with pytest.raises(StorageError) as refused:
        written(tmp_path)
    assert str(refused.value) == f"{path} cannot be written: No space left on device"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_returns_other_bytes_is_detected_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.replace", lambda old, new: Path(new).write_bytes(Path(old).read_bytes()[:-1] + b"x"))
    with pytest.raises(StorageError, match="was written, but reading it back shows damage: .*; check the disk"):
        store.write_verified(CHECKPOINT, tmp_path / "a.pth", Note())


def test_large_data_is_hashed_and_written_at_the_same_time_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    start = threading.Thread.start

    def note_and_start(self: threading.Thread) -> None:
        threads.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", note_and_start)
    weights = {f"{number}": torch.randn(hashing.LARGE // 2) for number in range(3)}
    path = tmp_path / "a.pth"
    sha256 = store.write_verified({"state_dict": weights, "small": torch.ones(3)}, path, Note())
    assert threads == ["hookline-hash"]
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_hashing_is_only_waited_for_at_the_end_if_torch_writes_from_the_memory_of_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    wait = hashing.Hash.wait

    def note_and_wait(self: hashing.Hash) -> None:
        waits.append(1)
        wait(self)

    monkeypatch.setattr(hashing.Hash, "wait", note_and_wait)
    large = torch.ones(hashing.LARGE)

    def count_waits(value: Any) -> int:
        waits.clear()
        store.write_verified({"state_dict": {"a": [(value,)]}}, tmp_path / "a.pth", Note())
        return len(waits)

    assert [count_waits(value) for value in (large, large[5:], torch.nn.Parameter(large), large.to_sparse())] == [
        0,
        0,
        0,
        2,
    ]


@pytest.mark.processes
def test_a_large_pickle_is_hashed_before_torch_frees_its_memory(tmp_path: Path) -> None:
    code = """if True:
        import sys, time
        from pathlib import Path
        from hookline.checkpoint import hashing, store
        from hookline.checkpoint.seal import Note
        run = hashing.Hash._run
        hashing.Hash._run = lambda self: (time.sleep(0.2), run(self))
        store.write_verified({"text": "x" * (1 << 26)}, Path(sys.argv[1]), Note())
    """
    command = [sys.executable, "-c", code, str(tmp_path / "a.pth")]
    assert subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True).stderr == ""
    assert seal.damage(tmp_path / "a.pth") == ""


def test_a_write_that_fails_waits_for_the_hash_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open(tmp_path / "a", "wb") as file:
        sealing = seal.SealingFile(file)
        monkeypatch.setattr(sealing, "_file", SimpleNamespace(write=full))
        data = bytes(4 * hashing.LARGE)
        with pytest.raises(OSError, match="No space left"):
            sealing._put(data)
        assert sealing._hash._sha256.digest() == hashlib.sha256(data).digest()
        sealing.abandon()


NOT_LOADABLE = (
    "was not written, because it could not be loaded again: it holds more than tensors and plain data, and hookline "
    "never runs code from a file"
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**3000, NOT_LOADABLE),
        (len, NOT_LOADABLE),
        (b"", NOT_LOADABLE),
        (torch.ones(2, device="meta"), "was not written: a tensor for it is on the device 'meta', so it has no data"),
    ],
    ids=["int", "function", "bytes", "meta"],
)
def test_a_checkpoint_that_cannot_be_loaded_again_never_gets_its_name(tmp_path: Path, value: Any, reason: str) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError) as refused:
            store.write({"state_dict": {}, "more": value}, path, Note())
        assert str(refused.value) == f"{path} {reason}"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_that_cannot_map_files_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = torch.load

    def without_mmap(path: Path, *, mmap: bool, **options: Any) -> Any:
        if mmap:
            raise RuntimeError(f"unable to mmap 1000 bytes from file <{path}>: No such device (19)")
        return load(path, **options)

    monkeypatch.setattr(loading, "_proven", set())
    monkeypatch.setattr(loading, "_looked", set())
    monkeypatch.setattr(torch, "load", without_mmap)
    assert store.read(written(tmp_path), sealed=True).keys() == CHECKPOINT.keys()


def test_sweep_removes_the_leftovers_of_a_kill_and_nothing_else(tmp_path: Path) -> None:
    for name in (".epoch_3.pth.partial", ".last_checkpoint.partial", ".mine", "epoch_1.pth", "a.partial"):
        (tmp_path / name).write_bytes(b"")
    store.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "a.partial", "epoch_1.pth"]


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([1], "holds a list, not a checkpoint"),
        ({"state_dict": [1]}, "cannot be used: its 'state_dict' must be a dict of names and tensors, not list"),
        ({"state_dict": None}, "cannot be used: its 'state_dict' must be a dict of names and tensors, not NoneType"),
        ({"state_dict": {"a": 1, 3: 1}}, "cannot be used: its 'state_dict' must have text as keys, not 3"),
        ({("a",): 1}, "cannot be used: it must have text as keys, not ('a',)"),
    ],
)
def test_content_without_names_is_not_a_checkpoint(tmp_path: Path, content: Any, problem: str) -> None:
    path = tmp_path / "a.pth"
    torch.save(content, path)
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=False)
    assert str(refused.value) == f"{path} {problem}"


@pytest.mark.parametrize(
    ("parts", "gap"),
    [
        ({"optimizer", "param_schedulers", "position", "rng"}, "in the middle of a step"),
        ({"optimizer", "position", "rng"}, "without its schedulers"),
        ({"param_schedulers", "position", "rng"}, "without its optimizer"),
        ({"position", "rng"}, "without its optimizer and schedulers"),
        (set(), "without its optimizer, schedulers, position and random generators"),
    ],
)
def test_the_missing_parts_of_an_incomplete_checkpoint_are_named(tmp_path: Path, parts: set[str], gap: str) -> None:
    path = tmp_path / "iter_3.pth"
    store.write(dict.fromkeys(parts), path, Note(3))
    assert store.find_gap(path) == gap
    with pytest.raises(StorageError) as refused:
        newest(tmp_path)
    assert str(refused.value).splitlines()[1:] == [f"  {path}: it was saved {gap}"]


# ------------------------------------------------------------------------------------------- the newest intact


def newest(*folders: Path) -> tuple[str | None, list[str]]:
    warnings: list[str] = []
    found = store.newest_intact(folders, warnings.append)
    return (found.name if found is not None else None), warnings


def test_newest_is_by_step_and_then_by_validations_and_not_by_name_or_time(tmp_path: Path) -> None:
    for name, step, validations in [("z.pth", 5, 9), ("b.pth", 12, 0), ("c.pth", 12, 1), ("d.pth", 9, 3)]:
        written(tmp_path, name, step, validations)
    assert newest(tmp_path) == ("c.pth", [])
    assert newest(tmp_path / "none", tmp_path) == ("c.pth", [])


def test_damaged_checkpoints_are_skipped_with_a_warning(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        written(tmp_path, f"iter_{step}.pth", step)
    flip(tmp_path / "iter_4.pth", 500)
    (tmp_path / "iter_3.pth").write_bytes((tmp_path / "iter_3.pth").read_bytes()[:900])
    name, warnings = newest(tmp_path)
    assert name == "iter_2.pth"
    assert len(warnings) == 2
    assert warnings[0] == f"{tmp_path / 'iter_3.pth'}: cannot be read as a checkpoint: it was cut short or damaged"
    assert warnings[1] == f"{tmp_path / 'iter_4.pth'} is damaged: its bytes do not match its SHA-256"


def test_other_names_of_checkpoints_can_be_passed(tmp_path: Path) -> None:
    written(tmp_path, "save_1.pth", 1)
    (tmp_path / "save_2.pth").write_bytes((tmp_path / "save_1.pth").read_bytes()[:900])
    assert newest(tmp_path) == ("save_1.pth", [])
    warnings: list[str] = []
    assert store.newest_intact([tmp_path], warnings.append, re.compile("save_[0-9]+.pth")) == tmp_path / "save_1.pth"
    assert warnings == [f"{tmp_path / 'save_2.pth'}: cannot be read as a checkpoint: it was cut short or damaged"]


def test_with_checkpoints_but_none_intact_it_refuses_and_lists_them(tmp_path: Path) -> None:
    written(tmp_path, "epoch_1.pth", complete=False)
    flip(written(tmp_path, "epoch_2.pth"), 500)
    with pytest.raises(StorageError) as refused:
        newest(tmp_path)
    assert str(refused.value).splitlines() == [
        "cannot resume: there is no intact checkpoint to continue from:",
        f"  {tmp_path / 'epoch_2.pth'} is damaged: its bytes do not match its SHA-256",
        f"  {tmp_path / 'epoch_1.pth'}: it was saved without its optimizer, schedulers, position and random generators",
    ]


def test_a_pointer_of_another_program_is_just_a_path_and_is_not_followed(tmp_path: Path) -> None:
    elsewhere = written(tmp_path, "iter_9.pth")
    folder = tmp_path / "run"
    folder.mkdir()
    written(folder, "iter_3.pth")
    (folder / "last_checkpoint").write_text(f"{elsewhere}\n")
    assert newest(folder) == ("iter_3.pth", [])


def test_files_of_other_programs_are_ignored(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "pretrained.pth")
    assert newest(tmp_path) == (None, [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"name": "gone.pth"}', "names gone.pth, which does not exist"),
        ('{"name": "../a.pth"}', "points outside its folder, to '../a.pth'"),
        ('{"name": "/etc/passwd"}', "points outside its folder, to '/etc/passwd'"),
        ("{", "cannot be read: JSONDecodeError: "),
        ("[1]", "cannot be read: TypeError: "),
        ("{}", "cannot be read: KeyError: 'name'"),
        ('{"name": "a\\u0000b"}', "cannot be read: ValueError: "),
        ("[" * 30000, "cannot be read: RecursionError: "),
    ],
)
def test_an_invalid_pointer_is_reported_and_never_followed(tmp_path: Path, content: str, problem: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    written(tmp_path)
    (folder / "last_checkpoint").write_text(content)
    with pytest.raises(StorageError) as refused:
        newest(folder)
    assert f"{folder / 'last_checkpoint'} {problem}" in str(refused.value)
    written(folder, "iter_3.pth")
    name, warnings = newest(folder)
    assert name == "iter_3.pth"
    assert [problem in each for each in warnings] == [True]


def test_the_pointer_is_json_with_a_relative_name(tmp_path: Path) -> None:
    store.point_to(written(tmp_path), tmp_path, "ab", 3)
    assert json.loads((tmp_path / "last_checkpoint").read_text()) == {"name": "a.pth", "sha256": "ab", "step": 3}
    assert store.find_pointer_problem(tmp_path) == ""


def test_notes_are_read_without_torch() -> None:
    code = "import sys, hookline.checkpoint.seal; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
