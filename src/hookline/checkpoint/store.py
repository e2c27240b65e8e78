"""Writing and reading checkpoints so that, at every moment, either the old or the new one is complete on the disk.

A checkpoint is written in this order: write a temporary file in the same folder and hash the data, prove that it can be
loaded, fsync, rename, fsync the folder (`write`), read the file back and compare (`verify`). Only then may older files
be removed. `last_checkpoint` is JSON with a name relative to its folder, so a run can still resume after its folder was
moved.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch

from hookline.checkpoint import folders as sharded
from hookline.checkpoint.hashing import LARGE
from hookline.checkpoint.loading import load, prove_loadable
from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, SealingFile, damage, read_note
from hookline.checkpoint.zip_entries import UnreadableError
from hookline.common import files, plain, worker_errors
from hookline.common.files import real_path, regular
from hookline.errors import StorageError

POINTER = "last_checkpoint"
#: Where a checkpoint was saved that has all parts but cannot be resumed.
HALF_STEP = "in the middle of a step"
#: The parts that a run needs to resume, with their names for people.
NEEDED = {
    "optimizer": "optimizer",
    "param_schedulers": "schedulers",
    "position": "position",
    "rng": "random generators",
}


# -- writing


@worker_errors.put_off()
def write(checkpoint: Mapping[str, Any], path: Path, note: Note) -> str:
    """Write a checkpoint completely or not at all, and return the SHA-256 of the file. It is not verified yet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    survey = _Survey(dict(checkpoint))
    if survey.has_no_data:
        raise StorageError(f"{path} was not written: a tensor for it is on the device 'meta', so it has no data")
    with replacing(path) as file:
        sealing = SealingFile(file, lasting=survey.memory)
        try:
            torch.save(dict(checkpoint), cast("IO[bytes]", sealing))
            sha256 = sealing.seal(note)
        except BaseException:
            sealing.abandon()
            if sealing.failure is not None:
                raise sealing.failure from None
            raise
        file.flush()
        try:
            prove_loadable(Path(file.name), always=survey.has_large_int)
        except UnreadableError as error:
            raise StorageError(f"{path} was not written, because it could not be loaded again: {error}") from error
    return sha256


class _Survey:
    """Facts about the values of a checkpoint that are needed to write it."""

    def __init__(self, value: Any) -> None:
        #: The addresses of the large tensors that torch writes from where they are. It copies all others first.
        self.memory: set[int] = set()
        #: True if there is an int that is so large that torch does not load it.
        self.has_large_int = False
        #: True if there is a tensor that torch stores without any data.
        self.has_no_data = False
        for values, kinds in plain.batches(value):
            if int in kinds:
                self.has_large_int |= not plain.ints_fit(values)
            tensors = {kind for kind in kinds if issubclass(kind, torch.Tensor)}
            for each in values if tensors else ():
                if type(each) in tensors:
                    self._note_tensor(each)

    def _note_tensor(self, value: torch.Tensor) -> None:
        self.has_no_data |= value.is_meta
        is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if is_plain and value.is_cpu and value.nbytes >= LARGE:
            self.memory.add(value.untyped_storage().data_ptr())


@worker_errors.put_off()
def verify(path: Path) -> None:
    """Read a checkpoint that was just written, and refuse it if its bytes are not those that were written."""
    if problem := damage(path):
        raise StorageError(f"{path} was written, but reading it back shows damage: {problem}; check the disk")


def write_verified(checkpoint: Mapping[str, Any], path: Path, note: Note) -> str:
    """Write a checkpoint completely or not at all, verify it, and return the SHA-256 of the file."""
    sha256 = write(checkpoint, path, note)
    verify(path)
    return sha256


def point_to(path: Path, folder: Path, sha256: str, step: int) -> None:
    """Write the name of a checkpoint into `last_checkpoint` of its folder."""
    record = {"name": os.path.relpath(path, folder), "sha256": sha256, "step": step}
    with replacing(folder / POINTER) as file:
        file.write(json.dumps(record).encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once it is complete and on the disk; a failure leaves nothing."""
    try:
        with files.replacing(path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    files.sync_folder(path.parent)


def sweep(folder: Path) -> None:
    """Remove the files and folders that a process left behind when it was killed during a save."""
    sharded.sweep(folder)


# -- reading


@worker_errors.put_off()
def read(path: Path, *, sealed: bool, verified: bool = False, whole: bool = True) -> dict[str, Any]:
    """Read a checkpoint without running any code in the file; refuse a damaged one.

    Files of other programs have no seal. They are accepted unless `sealed` is true. `verified` skips the check of the
    seal, for a file that was already checked. If not `whole`, the weights and optimizer states of a sharded checkpoint
    are not read yet (`shards.Stored`).
    """
    if not sharded.exists(path):
        raise StorageError(_why_no_file(path))
    in_folder = sharded.is_sharded(path)
    own = sealed or in_folder or read_note(path) is not None
    if own and not verified and (problem := damage(path)):
        raise StorageError(f"{path} cannot be used: {problem}")
    try:
        checkpoint = load(sharded.sealed_file(path))
    except UnreadableError as error:
        raise StorageError(f"{path} cannot be read as a checkpoint: {error}") from error
    if problem := _find_oddity(checkpoint):
        raise StorageError(f"{path} {problem}")
    if not own and _is_ours(checkpoint):
        raise StorageError(f"{path} cannot be used: it has lost its seal, so it is damaged")
    if in_folder:
        from hookline.checkpoint import shards  # it imports this module

        return shards.join(checkpoint, path, whole=whole)
    return cast("dict[str, Any]", checkpoint)


def _why_no_file(path: Path) -> str:
    try:
        return f"{path} is {files.kind_of(os.stat(path))}, not a checkpoint"
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a NUL in the path
        return f"there is no checkpoint {path}; to list a run's checkpoints: hookline inspect FOLDER"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"


def _find_oddity(found: Any) -> str:
    """Return why a value is not a checkpoint of any program; empty if it has names, and weights with names, if any."""
    if not isinstance(found, dict):
        return f"holds a {type(found).__name__}, not a checkpoint"
    weights = found.get("state_dict", {})
    if not isinstance(weights, dict):
        return f"cannot be used: its 'state_dict' must be a dict of names and tensors, not {type(weights).__name__}"
    for where, part in (("it", found), ("its 'state_dict'", weights)):
        if odd := [key for key in part if not isinstance(key, str)]:
            return f"cannot be used: {where} must have text as keys, not {odd[0]!r:.50}"
    return ""


def _is_ours(checkpoint: Mapping[str, Any]) -> bool:
    meta = checkpoint.get("meta")
    return isinstance(meta, Mapping) and "hookline" in meta


def newest_intact(folders: Iterable[Path], warn: Callable[[str], None], names: re.Pattern[str] = NAMES) -> Path | None:
    """Return the checkpoint to resume from: the intact one with the highest step; None without any checkpoints.

    `warn` is called with the reason for every checkpoint that is skipped. If there are checkpoints but none is intact,
    the resume is refused. A file without a seal counts as a checkpoint only if its name matches `names`.
    """
    passed_over: list[str] = []
    incomplete: list[Path] = []
    pointers: list[str] = []
    found: list[tuple[Note, Path]] = []
    for folder in folders:
        if problem := find_pointer_problem(folder):
            passed_over.append(problem)
        elif (folder / POINTER).exists():
            pointers.append(f"{folder / POINTER} names a file that cannot be used")
        for path in sharded.find_all(folder):
            note = read_note(path) if sharded.exists(path) else None
            if note is not None and note.complete:
                found.append((note, path))
            elif note is None and names.fullmatch(path.name) and (reason := _why_broken(path)):
                passed_over.append(f"{path}: {reason}")
            elif note is not None:
                incomplete.append(path)
    for _, path in sorted(found, key=lambda each: each[0].order, reverse=True):
        if not (problem := damage(path)):
            for each in passed_over:
                warn(each)
            return path
        passed_over.append(f"{path} is damaged: {problem}")
    if reasons := passed_over + [f"{path}: it was saved {find_gap(path)}" for path in incomplete] or pointers:
        raise StorageError("cannot resume: there is no intact checkpoint to continue from:\n  " + "\n  ".join(reasons))
    return None


def find_gap(path: Path) -> str:
    """Return why a run cannot resume from an intact checkpoint that is not complete, for messages: `without ...`."""
    try:
        return describe_gap(load(sharded.sealed_file(path), mmap=True))
    except UnreadableError as error:
        return f"so that it cannot be read: {error}"


def describe_gap(checkpoint: Mapping[str, Any]) -> str:
    """Return which parts a checkpoint lacks."""
    missing = [name for key, name in NEEDED.items() if key not in checkpoint]
    if not missing:
        return HALF_STEP
    return f"without its {' and '.join(filter(None, [', '.join(missing[:-1]), missing[-1]]))}"


def find_pointer_problem(folder: Path) -> str:
    """Return what is wrong with the `last_checkpoint` of a folder; empty if it is valid or missing."""
    pointer = folder / POINTER
    if not os.path.lexists(pointer):
        return ""
    try:
        with open(pointer, "rb", opener=regular) as file:
            content = file.read(1 << 16)
        if os.path.isfile(content.strip()):  # other programs write just the path
            return ""
        record = json.loads(content)
        path = folder / str(record["name"])
        if not real_path(path).is_relative_to(real_path(folder)):
            return f"{pointer} points outside its folder, to {str(record['name'])!r}"
        return "" if sharded.exists(path) else f"{pointer} names {path.name}, which does not exist"
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        return f"{pointer} cannot be read: {type(error).__name__}: {error}"


def _why_broken(path: Path) -> str:
    """Return why a file without a seal counts as a broken checkpoint; empty if another program wrote it."""
    try:
        read(path, sealed=False)
    except StorageError as error:
        return str(error).removeprefix(f"{path} ")
    return ""
