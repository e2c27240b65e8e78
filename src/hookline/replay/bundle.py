"""A bundle: what a colleague needs to repeat a failure, in one file that holds no pickle and no code.

    bundle.json    the capsule, the config, the structure of the checkpoint and of the batches (see `packing`)
    tensors.bin    the bytes of all tensors

It has the state of the run before the step that failed, with the generators, and the batches from there on. The code is
the user's own: a bundle only says which config, script or module it needs, as a run does.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from hookline.checkpoint import seal, store
from hookline.checkpoint.inspection import format_size
from hookline.common.escape import escaped, hidden
from hookline.common.files import read_bytes, real_path, regular, replacing
from hookline.common.numbers import count
from hookline.data.sources import as_resumable
from hookline.data.transfer import to_device
from hookline.errors import ConfigError, StorageError
from hookline.replay.packing import UnpackableError, pack, read_tensors, unpack, write_tensors
from hookline.replay.preparation import bits_of_run, prepare
from hookline.rundir import capsule, journal, loss_bits
from hookline.rundir.names import CONFIG, PLAN
from hookline.rundir.runs import read_checkpoints
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    import torch

    from hookline.replay.preparation import Task
    from hookline.runner.runner import Runner

FORMAT = 1
#: The files in a bundle.
CONTENT, TENSORS = "bundle.json", "tensors.bin"
#: The files with batches that a packing replay writes.
BATCHES = "batch-*.json"
#: The most processes that a bundle may start.
MOST_PROCESSES = 1024
#: The most bytes of the plain part of a bundle.
MOST_BYTES = 1 << 28


# -- packing


class Packer(Hook):
    """Saves the state before a step, and the batches from there on, in a scratch folder.

    Args:
        folder: The scratch folder.
        first: The step.
    """

    priority = "HIGHEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(self, folder: Path, first: int) -> None:
        self.folder, self.first = folder, first

    def _is_near(self, runner: Runner) -> bool:
        """Return whether the newest state before the step, where no accumulation window is open, is here or was."""
        return runner.iter + 1 >= self.first - max(optim.accumulate for optim in runner.optims.values())

    def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
        """Keep the batch."""
        if not self._is_near(runner):
            return
        batches, number, tensors = runner._host.training.batches, runner.position.batch, list["torch.Tensor"]()
        known = None if batches is None else batches.identify(number)
        content: dict[str, Any] = {"step": runner.iter + 1, "rank": runner.rank, "epoch": runner.epoch}
        content["ids"] = None if known is None or known[0] != "samples" else known[1]
        try:
            content["batch"] = pack(data_batch, tensors)
        except UnpackableError as error:
            content["unpackable"], tensors = str(error), []
        table, data = write_tensors(tensors)
        name = f"batch-{runner.rank}-{runner.iter + 1}"
        (self.folder / f"{name}.bin").write_bytes(data)
        (self.folder / f"{name}.json").write_text(json.dumps({**content, "tensors": table}), encoding="utf-8")

    def after_train_iter(self, runner: Runner) -> None:
        """Save, if the step comes next or soon, unless an accumulation window is open."""
        if runner.iter + 1 < self.first and self._is_near(runner) and not runner._host.windows.accumulating:
            runner.request_save(folder=self.folder, together=True)


def make_packer(folder: Path, first: int, runner: Runner) -> Packer:
    """Return the watcher that packs a bundle."""
    return Packer(folder, first)


def write(path: Path, task: Task, scratch: Path) -> list[str]:
    """Write the bundle of a replay with a `Packer`. Return what it does not hold, as lines."""
    saved = [each.path for each in read_checkpoints(scratch) if each.complete and (each.step or 0) < task.first]
    state = saved[-1] if saved else task.checkpoint
    if state is not None and state.is_dir():
        raise StorageError(f"{state.name} is a sharded checkpoint, which a bundle cannot hold")
    note = None if state is None else seal.read_note(state)
    step = 0 if note is None else note.step
    tensors: list[torch.Tensor] = []
    checkpoint = None
    if state is not None:
        checkpoint = {"step": step, "content": pack(store.read(state, sealed=True), tensors)}
    batches, missing = _batches(scratch, step, tensors)
    bits = {place: each for place, each in bits_of_run(task).items() if place > step}
    folder, file = task.origin["folder"], task.origin["file"]
    file = os.path.relpath(file, folder) if folder and os.path.isabs(file) else file
    origin = {**task.origin, "folder": "", "file": file}
    inside = folder and task.folder.is_relative_to(folder)
    own = {"origin": origin, "environment": {name: each for name, each in task.environment.items() if name != "host"}}
    content = {
        "format": FORMAT,
        "steps": [task.first, task.last],
        "processes": task.processes,
        "threads": task.threads,
        **own,
        "trains_in": os.path.relpath(task.folder, folder) if inside else str(task.folder),
        "code": {os.path.relpath(file, folder): each for file, each in task.code.items()} if folder else {},
        "capsule": None if task.capsule is None else {**task.capsule.data, "events": [], "code": {}, **own},
        "config": read_bytes(task.folder / CONFIG).decode("utf-8") if task.origin["kind"] == "config" else None,
        "losses": sorted(bits.items()),
        "checkpoint": checkpoint,
        "batches": batches,
    }
    table, data = write_tensors(tensors)
    text = json.dumps(_without_secrets({**content, "tensors": table}))
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(CONTENT, text)
        archive.writestr(TENSORS, data)
    held = "the state" if state is not None else "no state"
    return [
        *missing,
        f"wrote {path} ({format_size(path.stat().st_size)}): {held}, and {count(len(batches), 'batch', 'batches')}",
    ]


def _batches(scratch: Path, step: int, tensors: list[torch.Tensor]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the batches after a step, as they are packed, and those that could not be packed, as lines."""
    found, missing = [], []
    for file in sorted(scratch.glob(BATCHES)):
        content = json.loads(file.read_text(encoding="utf-8"))
        own = read_tensors(content.pop("tensors"), file.with_suffix(".bin").read_bytes())
        if content["step"] <= step:
            continue
        if "unpackable" in content:
            missing.append(
                f"the batch of step {content['step']} has {content['unpackable']}, so a replay reads the data"
            )
            continue
        found.append({**content, "batch": pack(unpack(content["batch"], own), tensors)})
    return found, missing


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_secrets(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(each) for each in value]
    return hidden(value) if isinstance(value, str) else value


# -- unpacking


def read(path: Path) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Read a bundle, which may come from anyone. Nothing in it is run."""
    try:
        with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if sorted(entries) != [CONTENT, TENSORS] or any(info.compress_type for info in entries.values()):
                raise UnpackableError("other entries than a bundle has")
            if entries[CONTENT].file_size > MOST_BYTES:
                raise UnpackableError(f"more than {MOST_BYTES >> 20} MiB of plain data")
            content = json.loads(archive.read(CONTENT))
            data = archive.read(TENSORS)
        if not isinstance(content, dict):
            raise UnpackableError("no content")
        if content.get("format") != FORMAT:
            raise StorageError(f"{path} has the format {content.get('format')!r}, but this hookline reads {FORMAT}")
        if odd := [name for name, kind in _FIELDS.items() if not isinstance(content.get(name), kind)]:
            raise UnpackableError(f"no valid {', '.join(odd)}")
        return content, read_tensors(content["tensors"], data)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (
        UnpackableError,
        ValueError,
        RecursionError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise StorageError(f"{path} is not a bundle of hookline replay --bundle: it has {_why(error)}") from error


_NONE = type(None)
_FIELDS: dict[str, type | tuple[type, ...]] = {
    **{"steps": list, "processes": int, "environment": dict, "origin": dict, "trains_in": str, "code": dict},
    **{"capsule": (dict, _NONE), "config": (str, _NONE), "losses": list, "checkpoint": (dict, _NONE), "batches": list},
}


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, UnpackableError) else "no content that can be read"


def prepare_bundle(
    path: Path, folder: Path, steps: tuple[int, int] | None, from_start: bool, allow: Sequence[str]
) -> Task:
    """Return what is to be repeated of a bundle, whose files are written into a folder."""
    if steps is not None or from_start:
        raise ConfigError(f"{path} is a bundle, which has its steps and its start; leave out --steps and --from-start")
    content, _ = read(path)
    chosen = write_folder(path, folder)
    task = prepare(folder, chosen if content["capsule"] is None else None)
    refuse_script(path, task.origin, allow)
    task.bundle = path
    if task.origin["kind"] != "config":
        task.trains_in = real_path(Path.cwd() / content["trains_in"])
    return task


def write_folder(path: Path, folder: Path) -> tuple[int, int]:
    """Write what is in a bundle as the folder of a run, and return its steps. No name of a file is taken from it."""
    content, tensors = read(path)
    try:
        return _write_folder(content, tensors, folder)
    except StorageError:
        raise
    except (UnpackableError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise StorageError(f"{path} is not a bundle of hookline replay --bundle: its content is none") from error


def _write_folder(content: dict[str, Any], tensors: Sequence[torch.Tensor], folder: Path) -> tuple[int, int]:
    first, last = content["steps"]
    if not all(type(step) is int for step in (first, last)) or not 1 <= first <= last < 1 << 53:
        raise ValueError(content["steps"])
    several = {content["processes"], (content["capsule"] or content)["processes"]}
    if not several <= set(range(1, MOST_PROCESSES + 1)) or "\0" in content["trains_in"]:
        raise ValueError(several)
    folder.mkdir()
    (folder / PLAN).write_text("", encoding="utf-8")
    if content["config"] is not None:
        (folder / CONFIG).write_text(content["config"], encoding="utf-8")
    saved, named = content["checkpoint"], None
    if saved is not None:
        if type(saved["step"]) is not int or not 0 <= saved["step"] < first:
            raise ValueError(saved["step"])
        name, note = f"iter_{saved['step']}.pth", seal.Note(step=saved["step"], complete=True)
        store.write_verified(unpack(saved["content"], tensors), folder / name, note)
        named = {"path": name, "sha256": seal.read_hash(folder / name), "step": saved["step"]}
    code = {os.path.abspath(file): each for file, each in content["code"].items()}
    start = {name: content[name] for name in ("processes", "environment", "origin")}
    event = {
        "time": 0,
        "step": 0,
        "epoch": 0,
        "kind": "start",
        "resumed_from": None,
        **start,
        "sources": {"files": code},
    }
    (folder / journal.NAME).write_text(json.dumps(event) + "\n", encoding="utf-8")
    data = None if content["capsule"] is None else {**content["capsule"], "checkpoint": named, "code": code}
    if data is not None:
        if odd := capsule.malformed(data):
            raise ValueError(odd)
        capsule.write(folder, data)
    losses = {int(place): int(bits) for place, bits in content["losses"]}
    _write_losses(folder, losses, 0 if saved is None else saved["step"])
    return first, last


def _write_losses(folder: Path, bits: Mapping[int, int], step: int) -> None:
    """Write the losses after a step, as far as they follow each other. The ones before are unknown."""
    known: list[bytes] = []
    while (number := step + 1 + len(known)) in bits:
        known.append(int(bits[number]).to_bytes(loss_bits.SIZE, "little"))
    if step < 1 << 27 and (file := loss_bits.open_at(folder, step)) is not None:
        os.pwrite(file, b"".join(known), step * loss_bits.SIZE)
        os.close(file)


# -- replaying with the batches of a bundle


class Recorded:
    """Stands for the data of a loader: the batches of a bundle by their samples, and otherwise the data itself."""

    def __init__(self, batches: Mapping[tuple[int, tuple[int, ...]], Any], data: Any) -> None:
        self.batches, self.data = batches, data

    def __len__(self) -> int:
        return len(self.data.dataset)

    def __getitems__(self, keys: list[tuple[int, int, int]]) -> Any:
        found = self.batches.get((keys[0][1], tuple(index for _, _, index in keys)))
        return self.data.__getitems__(keys) if found is None else found


class Feeds(Hook):
    """Gives the batches of a bundle to the steps of a loader that controls its own order."""

    priority = "HIGHEST"
    draws_random_numbers = False

    def __init__(self, batches: Mapping[int, Any]) -> None:
        self.batches = batches

    def before_train_iter(self, runner: Runner) -> None:
        """Replace the batch."""
        if runner.iter + 1 in self.batches:
            runner.data_batch = to_device(self.batches[runner.iter + 1], runner.device)


def make_feeds(path: Path, runner: Runner) -> Feeds:
    """Let the loader of a run return the batches of a bundle, without reading data if its order is known."""
    content, tensors = read(path)
    own = [each for each in content["batches"] if isinstance(each, dict) and each.get("rank") == runner.rank]
    resumable = as_resumable(runner.train_loop.dataloader)
    if resumable is None:
        return Feeds({each["step"]: unpack(each.get("batch"), tensors) for each in own})
    known = {(each.get("epoch"), tuple(each.get("ids") or ())): unpack(each.get("batch"), tensors) for each in own}
    inner = resumable.inner
    options: dict[str, Any] = {"collate_fn": inner.collate_fn, "generator": inner.generator}
    resumable._loader = DataLoader(Recorded(known, inner.dataset), batch_sampler=resumable.order, **options)  # type: ignore[arg-type]  # it has items by keys
    return Feeds({})


def refuse_script(path: Path, origin: Mapping[str, Any], allow: Sequence[str]) -> None:
    """Refuse to run a script, or a module, that a bundle names, unless the user has named it, too."""
    if origin["kind"] == "config" or origin["file"] in allow:
        return
    words, file = escaped(" ".join(origin["words"][1:])), escaped(origin["file"])
    with_words = f" with the arguments '{words}'" if words else ""
    raise ConfigError(
        f"{path} needs the {escaped(origin['kind'])} {file} of the working directory{with_words}; if you want to run "
        f"it, add --allow {file}"
    )
