"""The capsule of a run that failed: `capsule.json` in its folder, with all that `hookline replay` needs to repeat it.

Each process of a run writes its own; the process of rank 1 writes `capsule-rank1.json`. A capsule is plain JSON of less
than 100 kB. Its checksum shows that it is as the run wrote it. It is removed once the run has passed the failed step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.common.escape import hidden
from hookline.common.files import regular, write_text
from hookline.errors import StorageError

NAME = "capsule.json"
#: The names of the capsules of all processes.
NAMES = re.compile(r"capsule(-rank[1-9][0-9]{0,5})?\.json")
#: What `hookline replay --triage` has found about the failure.
TRIAGE = "triage.json"
VERSION = 1
MOST_BYTES = 100_000
#: The entries that are left out of a capsule, one after the other, until it is small enough.
SPARE = ("events", "code", "batch", "notes")
LONGEST = 4000
#: The parts of a capsule, and their types.
FIELDS: dict[str, type | tuple[type, ...]] = {
    **{"rank": int, "processes": int, "step": int, "position": dict, "error": dict},
    **{"checkpoint": (dict, type(None)), "origin": dict, "environment": dict, "losses": dict, "notes": list},
    **{"batch": (dict, type(None)), "code": dict, "events": list, "samples": (int, type(None)), "seed": int},
}
INSIDE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "error": {"type": str, "text": str, "code": int, "relayed": bool, "where": str, "hook": str},
    "checkpoint": {"path": str, "sha256": str, "step": int},
    "position": {"epoch": int, "iter": int, "batch": int},
    "losses": {"first": int, "bits": list},
    "origin": {"kind": str, "file": str, "folder": str, "words": list, "starts_itself": bool},
}


@dataclass(frozen=True)
class Capsule:
    """What a process of a failed run has left."""

    path: Path
    data: Mapping[str, Any]

    @property
    def rank(self) -> int:
        """Return the rank of the process."""
        rank: int = self.data["rank"]
        return rank

    @property
    def step(self) -> int:
        """Return the step that failed: the number of an iteration, counted from 1."""
        step: int = self.data["step"]
        return step

    @property
    def checkpoint(self) -> Path | None:
        """Return the checkpoint that a replay starts from; None if it starts where the run did."""
        found = self.data["checkpoint"]
        return None if found is None else self.path.parent / found["path"]

    @property
    def is_relayed(self) -> bool:
        """Return whether the process only ended because another one had failed."""
        relayed: bool = self.data["error"]["relayed"]
        return relayed


def name_of(rank: int) -> str:
    """Return the name of the capsule of a process."""
    return NAME if rank == 0 else f"capsule-rank{rank}.json"


def write(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write the capsule of a process. If it is too large, leave out what a replay can do without."""
    data = _bounded({"version": VERSION, **content})
    for name in SPARE:
        if len(json.dumps(data)) < MOST_BYTES - 200:
            break
        data[name] = type(data[name])() if data[name] is not None else None
    path = folder / name_of(data["rank"])
    (folder / TRIAGE).unlink(missing_ok=True)  # it was about an earlier failure
    write_text(path, json.dumps({**data, "sha256": _checksum(data)}, indent=1) + "\n")
    return path


def read(path: Path) -> Capsule:
    """Read a capsule, which may come from anyone. Raise StorageError if it is not as a run has written it."""
    try:
        with open(path, "rb", opener=regular) as file:
            text = file.read(2 * MOST_BYTES + 1)
        data = json.loads(text)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is not a capsule: it is not valid JSON") from error
    if not isinstance(data, dict) or len(text) > 2 * MOST_BYTES:
        raise StorageError(f"{path} is not a capsule that a run has written")
    version, checksum = data.get("version"), data.pop("sha256", None)
    if version != VERSION:
        raise StorageError(f"{path} has the version {version!r}, but this hookline reads version {VERSION}")
    if checksum != _checksum(data):
        raise StorageError(
            f"{path} was changed after the run had written it, so the run cannot be compared with it; to run its steps "
            "again without it, use --steps"
        )
    if odd := malformed(data):
        raise StorageError(f"{path} is not a capsule that a run has written: {', '.join(odd)}")
    return Capsule(path, data)


def malformed(data: Mapping[str, Any]) -> list[str]:
    """Return the entries that are not of the type that a run writes."""
    odd = [name for name, kind in FIELDS.items() if name not in data or not isinstance(data[name], kind)]
    for name, fields in INSIDE.items():
        inner = data.get(name)
        if isinstance(inner, dict):
            odd += [f"{name}.{key}" for key, kind in fields.items() if not isinstance(inner.get(key), kind)]
    if not odd:
        odd += ["losses.bits"] * (not all(type(each) is int and 0 <= each < 1 << 64 for each in data["losses"]["bits"]))
        odd += ["origin.words"] * (not all(isinstance(each, str) for each in data["origin"]["words"]))
        odd += ["step"] * (not 0 < data["step"] < 1 << 53)
    return odd


def find(folder: Path) -> list[Path]:
    """Return the capsules in a folder, by rank."""
    try:
        names = [name for name in os.listdir(folder) if NAMES.fullmatch(name)]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=lambda name: (len(name), name))]


def first_failure(capsules: list[Capsule]) -> Capsule | None:
    """Return the capsule of the process that failed first: the others only ended because of it."""
    return next((each for each in capsules if not each.is_relayed), next(iter(capsules), None))


def forget(folder: Path, passed: int | None = None) -> None:
    """Remove the capsules of a folder whose steps the run has passed, or all of them if `passed` is not given."""
    for path in find(folder):
        if passed is None or (step := _step_in(path)) is None or step <= passed:
            with suppress(OSError):
                path.unlink(missing_ok=True)
                (folder / TRIAGE).unlink(missing_ok=True)


def _step_in(path: Path) -> int | None:
    try:
        return read(path).step
    except StorageError:
        return None


def kept_checkpoints(folder: Path) -> set[Path]:
    """Return the checkpoints that the capsules of a folder name, which must not be removed."""
    found = set()
    for path in find(folder):
        with suppress(StorageError):
            found.add(read(path).checkpoint)
    return {path for path in found if path is not None}


def _checksum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _bounded(value: Any) -> Any:
    """Return plain data without secrets and without very long texts."""
    if isinstance(value, Mapping):
        return {str(key): _bounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bounded(each) for each in value]
    if isinstance(value, str):
        value = hidden(value)
        return value[: LONGEST - 1] + "…" if len(value) > LONGEST else value
    if isinstance(value, float) and value != value:
        return None
    return value
