"""The events of a session in the journal of the run: how it begins, with which code and data, and how it ends.

Others note what they do.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import read_bytes
from hookline.data.sources import fingerprint
from hookline.engine.run import Run
from hookline.errors import NumericsError, described, exit_code_of
from hookline.rundir.journal import NOWHERE, Journal
from hookline.rundir.names import CONFIG
from hookline.rundir.origin import PACKAGE
from hookline.state import snapshot

if TYPE_CHECKING:
    from hookline.resume.start import Source
    from hookline.state.host import Host, Verb


#: The most files of code whose hashes are kept.
MOST_FILES = 200
#: The most seconds to wait for git.
LONGEST_WAIT = 5


@contextmanager
def journaling(host: Host, verb: Verb) -> Iterator[Journal]:
    """Let the host note events inside the context, if it trains and is the main process."""
    position = host.position
    if verb == "train" and host.strategy.is_main:
        host.journal = Journal(lambda: (position.iter, position.epoch))
    try:
        yield host.journal
    finally:
        host.journal.close()
        host.journal = NOWHERE


def begin(host: Host, source: Source | None, continues: bool) -> None:
    """Note the start of a training. If it continues the run in the folder, the journal is opened later.

    A resume that is refused must not end up in the journal of a run that may have finished long ago.
    """
    (host.journal.check if continues else host.journal.open)(host.work_dir)
    resumed = source if source is not None and source.kind == "resume" else None
    host.journal.note(
        "start",
        **_saved_position(resumed),
        resumed_from=None if resumed is None else str(resumed.path),
        processes=host.strategy.world_size,
        environment=environment(host),
        origin=(started := origin(host)),
        sources={"files": code_of(started), **(revision_of(started["folder"]) or {})},
        config=config_of(host),
        data=data_of(host),
    )


def data_of(host: Host) -> dict[str, Any] | None:
    """Return the fingerprint of the data of a run."""
    loop = host.train_loop if isinstance(host, Run) else None
    return None if loop is None else {**fingerprint(loop.dataloader), "batches": loop.length}


def config_of(host: Host) -> int | None:
    """Return the hash of the config in the folder of a run; None if it has none."""
    path = host.work_dir / CONFIG
    return hash_of(path) if isinstance(host, Run) and host.config is not None and path.is_file() else None


def environment(host: Host) -> dict[str, Any]:
    """Return where a run trains: versions, machine and device."""
    found = snapshot.environment()
    return {
        **{name: found[name] for name in ("hookline", "torch", "python", "threads")},
        # `platform.platform()` would start a process.
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": socket.gethostname(),
        "device": str(getattr(host, "device", "")),
    }


def origin(host: Host) -> dict[str, Any]:
    """Return how a run was started, as far as its process knows.

    A run of `hookline train` is built from the config in its folder. Any other one is built by a script
    (`python train.py`) or a module (`python -m project.train`). A notebook, or code without a file, is neither.
    """
    main: Any = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    kind = "" if file is None else "script"
    if host.hints.command:
        given = getattr(host, "config_file", None)
        kind, file = "config", None if given is None else str(given)
    elif spec is not None and spec.name:
        kind, file = "module", spec.name.removesuffix(".__main__")
    return {
        "kind": kind,
        "file": file or "",
        "folder": os.getcwd(),
        "words": [str(word) for word in sys.argv],
        # as `hookline.launch` does: the code itself starts the processes of the run
        "starts_itself": multiprocessing.parent_process() is not None,
    }


def _saved_position(resumed: Source | None) -> dict[str, int]:
    """Return the position of a checkpoint, which is loaded later. It may be of any form: nothing has checked it yet."""
    position = resumed.checkpoint.get("position") if resumed is not None else None
    if not isinstance(position, dict):
        return {}
    found = {"step": position.get("iter"), "epoch": position.get("epoch")}
    return {name: count for name, count in found.items() if type(count) is int}


def end(host: Host, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    """Note how a training ended. This is an exit callback for `contextlib.ExitStack`."""
    journal = host.journal
    if host.loading.refused:
        return
    journal.open(host.work_dir)
    step = error.step if isinstance(error, NumericsError) else None
    if isinstance(error, Exception):
        text = "\n".join([described(error), *getattr(error, "__notes__", [])])
        journal.note("failure", step=step, text=text)
    journal.note("end", step=step, code=_exit_code(error) if error is not None else host.requests.exit_code)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 130 if isinstance(error, KeyboardInterrupt) else exit_code_of(error)


# -- the code of the user, so that a replay can name a file that was changed


def code_of(origin: dict[str, Any]) -> dict[str, int]:
    """Return the hash of each file of the user's code that this process has imported, by its path."""
    folder = Path(origin["folder"])
    beside = (folder / origin["file"]).parent if origin["kind"] in ("config", "script") and origin["file"] else folder
    roots = {os.path.abspath(folder), os.path.abspath(beside)}
    found = {}
    for file in sorted(_files_below(roots))[:MOST_FILES]:
        with suppress(OSError):
            state = os.stat(file)
            found[file] = _hash_of_version(file, state.st_mtime_ns, state.st_size)
    return found


@lru_cache(maxsize=1000)
def _hash_of_version(file: str, changed_at: int, size: int) -> int:
    return hash_of(Path(file))


def hash_of(file: Path) -> int:
    """Return the hash of a file of code. It is a number, and no text in which a secret would be looked for."""
    return int.from_bytes(hashlib.sha256(read_bytes(file)).digest()[:6], "big")


def changed(then: Mapping[str, int], since: str) -> list[str]:
    """Return the files of code that are not as they were, as lines. `since` says when that was."""
    found = []
    for file, before in then.items():
        try:
            what = "was changed" if hash_of(Path(file)) != before else ""
        except (OSError, ValueError):  # the name may come from anyone
            what = "is missing"
        found += [f"{file} {what} since {since}"] * bool(what)
    return found


def revision_of(folder: str) -> dict[str, Any] | None:
    """Return the git revision of a folder, and whether its files are as in it; None outside a repository."""
    for repository in (folder, *map(str, Path(folder).parents)):
        if os.path.exists(os.path.join(repository, ".git")):
            return _revision_of_repository(repository)
    return None


@cache
def _revision_of_repository(folder: str) -> dict[str, Any] | None:
    """Ask git once per process: the code that runs is as it was imported."""
    words = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        found = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):  # without git, or in a repository of others
        return None
    revision = next((line.split()[-1] for line in found if line.startswith("# branch.oid ")), "")
    return {"revision": revision, "clean": all(line.startswith("#") for line in found)}


def _files_below(roots: set[str]) -> Iterator[str]:
    own, others = tuple(root + os.sep for root in roots), (PACKAGE + os.sep, os.path.abspath(sys.prefix) + os.sep)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or "site-packages" in file:
            continue
        path = file if os.path.isabs(file) and ".." not in file else os.path.abspath(file)
        if path.startswith(own) and not path.startswith(others):
            yield path
