"""Preparation: what is to be repeated, from which checkpoint, and what is different from when the run recorded it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hookline.checkpoint import seal
from hookline.common import worker_errors
from hookline.common.files import real_path
from hookline.common.version import VERSION
from hookline.errors import ConfigError, StorageError
from hookline.lifecycle import events
from hookline.rundir import capsule, loss_bits
from hookline.rundir.runs import load, read_checkpoints

if TYPE_CHECKING:
    from hookline.rundir.capsule import Capsule
    from hookline.rundir.runs import Run

#: How many steps later than in the run the death of a worker may be noticed.
READ_AHEAD = 16
#: How a run may have been started, if nothing is known about it.
UNKNOWN: dict[str, Any] = {"kind": "", "file": "", "folder": "", "words": [], "starts_itself": False}


@dataclass
class Task:
    """What is to be repeated."""

    folder: Path
    #: The checkpoint to start from, and its step; None and 0 to start where the run did.
    checkpoint: Path | None
    start: int
    #: The first and the last step that were asked for.
    first: int
    last: int
    #: The failure that is to be repeated; None if only steps are.
    capsule: Capsule | None
    processes: int
    #: How the run was started; see `hookline.lifecycle.events.origin`.
    origin: Mapping[str, Any]
    threads: int | None
    #: The versions and the machine of then, and the hashes of the files of code.
    environment: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, int] = field(default_factory=dict)
    #: The fingerprint of the data of then.
    data: Any = None
    #: What is different from when the run recorded it.
    warnings: list[str] = field(default_factory=list)
    #: The bundle that the folder was made from, and the folder that the code of the run trains in then.
    bundle: Path | None = None
    trains_in: Path | None = None

    @property
    def source(self) -> Path:
        """Return what was given: the folder of a run, or a bundle."""
        return self.folder if self.bundle is None else self.bundle

    @property
    def begins_at(self) -> str:
        """Return the name of the checkpoint, for people."""
        return "the start" if self.checkpoint is None else f"{self.checkpoint.name} (step {self.start})"


def prepare(folder: Path, steps: tuple[int, int] | None = None, from_start: bool = False) -> Task:
    """Return what is to be repeated of a run: its failure, or steps. Raise an error if this is not possible."""
    run = load(folder)
    given, folder = folder, real_path(run.path)
    failure = None if steps else _failure(given, folder)
    if failure is not None:
        data = failure.data
        first, last = failure.step, max(failure.step, data["position"]["iter"] + 1)  # where it was noticed
        last += READ_AHEAD * died_in_worker(failure)
        start = data
        environment, processes = data["environment"], data["processes"]
        checkpoint = None if from_start else _checkpoint_of(failure)
    else:
        assert steps is not None, "without a failure, there are steps"
        first, last = steps
        start = find_session(run.events, last)
        environment = start.get("environment") if isinstance(start.get("environment"), dict) else {}
        processes = start.get("processes", 1)
        processes = processes if type(processes) is int and processes > 0 else 1
        checkpoint = None if from_start else _checkpoint_before(folder, first, run.events)
    if checkpoint is None:
        _refuse_unknown_start(given, run.events, from_start)
    note = None if checkpoint is None else seal.read_note(checkpoint)
    origin = origin_of(given, run, start)
    threads = environment.get("threads")
    task = Task(
        *(folder, checkpoint, 0 if note is None else note.step, first, last, failure, processes),
        *(origin, threads if type(threads) is int and 0 < threads < 10_000 else None),
    )
    task.environment = environment
    task.code = failure.data["code"] if failure is not None else files_of(start)
    task.data = find_session(run.events, last).get("data")
    task.warnings += _differences(task)
    return task


def died_in_worker(failure: Capsule) -> bool:
    """Return whether a worker died. It reads ahead, so the step in which this is noticed differs from run to run."""
    return worker_errors.DIED in failure.data["error"]["text"]


def data_changes(then: Any, now: Any) -> str:
    """Return how the fingerprint of data differs from the one of then; empty if it does not, or if one is missing."""
    if not (isinstance(then, dict) and isinstance(now, dict)):
        return ""
    differing = [name for name in then if name in now and then[name] != now[name]]
    return ", ".join(f"{name} {then[name]} then, {now[name]} now" for name in differing)


def find_session(events: list[dict[str, Any]], step: int) -> dict[str, Any]:
    """Return the event with which the newest session began that has run a step; empty without one."""
    starts = [event for event in events if event["kind"] == "start" and event["step"] < step]
    return starts[-1] if starts else {}


def origin_of(given: Path, run: Run, start: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a run was started, from the event or the capsule that says so. Refuse what cannot be built again."""
    found = start.get("origin")
    origin: Mapping[str, Any] = found if isinstance(found, dict) and _is_origin(found) else UNKNOWN
    if run.has_config and origin["kind"] in ("", "config"):
        return {**origin, "kind": "config"}
    if not origin["kind"]:
        raise ConfigError(
            f"{given} cannot be replayed: it was started by code without a file, such as a notebook, or by an earlier "
            "version; put the code into a script"
        )
    return origin


def _failure(given: Path, folder: Path) -> Capsule:
    found = capsule.first_failure([capsule.read(path) for path in capsule.find(folder)])
    if found is None:
        raise ConfigError(
            f"{given} has no {capsule.NAME}, so there is no failure to repeat: the run has not failed, has passed the "
            "step since, or was ended by a signal; to run steps of it again, use --steps, such as --steps 100..120"
        )
    return found


def _checkpoint_of(failure: Capsule) -> Path | None:
    path = failure.checkpoint
    if path is None:
        return None
    told = failure.data["checkpoint"]
    if not path.exists():
        raise StorageError(
            f"{path}, from which the failure is repeated, does not exist; to repeat it from the first step of the run, "
            "use --from-start"
        )
    if (problem := seal.damage(path)) or seal.read_hash(path) != told["sha256"]:
        raise StorageError(
            f"{path} is not the checkpoint that the run had saved: {problem or 'it was written again since'}; to "
            "repeat the failure from the first step of the run, use --from-start"
        )
    return path


def _checkpoint_before(folder: Path, first: int, events: list[dict[str, Any]]) -> Path | None:
    """Return the newest intact checkpoint before a step; None if the run has none."""
    found = [each for each in read_checkpoints(folder) if each.complete and each.step is not None]
    paths = [each.path for each in found if each.step is not None and each.step < first]
    paths = [*_resumed_from(events, first), *paths]
    return next((path for path in reversed(paths) if not seal.damage(path)), None)


def _resumed_from(events: list[dict[str, Any]], first: int) -> list[Path]:
    """Return the checkpoint of another folder that a run began with, if it is still there."""
    start = next((event for event in events if event["kind"] == "start"), {})
    path = start.get("resumed_from")
    if not isinstance(path, str) or not Path(path).exists():
        return []
    note = seal.read_note(Path(path))
    return [Path(path)] if note is not None and note.complete and note.step < first else []


def _refuse_unknown_start(given: Path, events: list[dict[str, Any]], from_start: bool) -> None:
    start = next((event for event in events if event["kind"] == "start"), {})
    if start.get("resumed_from"):
        hint = "; leave out --from-start" if from_start else ""
        raise StorageError(
            f"{given} cannot be replayed from its start, because it was resumed from {start['resumed_from']}{hint}"
        )


def _is_origin(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("words"), list):
        return False
    texts = [*(value.get(name) for name in ("kind", "file", "folder")), *value["words"]]
    return all(isinstance(text, str) for text in texts) and isinstance(value.get("starts_itself"), bool)


def files_of(start: Mapping[str, Any]) -> dict[str, int]:
    """Return the files of code that a session has imported, with their hashes, from the event of its start."""
    recorded = start.get("sources")
    files = recorded.get("files") if isinstance(recorded, dict) else None
    return {file: found for file, found in files.items() if type(found) is int} if isinstance(files, dict) else {}


def _differences(task: Task) -> list[str]:
    """Return what is different now: versions, the folder of the command, files of code."""
    then = task.environment
    now = {"hookline": VERSION, "torch": torch.__version__, "python": platform.python_version()}
    found = [
        f"{name} is {version} here, and was {then[name]}: the bits may differ"
        for name, version in now.items()
        if name in then and then[name] != str(version)
    ]
    if task.origin["folder"] and real_path(Path(task.origin["folder"])) != real_path(Path.cwd()):
        found.append(f"the run was started in {task.origin['folder']}: relative paths may lead elsewhere here")
    return found + events.changed(task.code, "the run had begun" if task.capsule is None else "the run had failed")


def bits_of_run(task: Task) -> dict[int, int]:
    """Return the bits of the losses that the run has recorded, by step: of the process that failed, or the main one."""
    rank = 0 if task.capsule is None else task.capsule.rank
    found = dict(enumerate(loss_bits.read(task.folder, 1, task.last), 1)) if rank == 0 else {}
    return found | bits_of(task.capsule)


def bits_of(failure: Capsule | None) -> dict[int, int]:
    """Return the bits of the losses in a capsule, by step."""
    return {} if failure is None else dict(enumerate(failure.data["losses"]["bits"], failure.data["losses"]["first"]))


def parse_steps(text: str) -> tuple[int, int]:
    """Return the first and the last step of `100..120`, or of `120` alone.

    >>> parse_steps("100..120"), parse_steps("7")
    ((100, 120), (7, 7))
    """
    first, dots, last = text.partition("..")
    try:
        steps = int(first), int(last if dots else first)
    except ValueError:
        steps = 0, 0
    if not 1 <= steps[0] <= steps[1] < 1 << 53:
        raise ConfigError(
            f"--steps must be the number of an iteration, or of the first and the last one, such as 120 or 100..120, "
            f"not '{text}'"
        )
    return steps
