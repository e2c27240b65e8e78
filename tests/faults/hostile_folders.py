"""Folders that somebody else prepared: links that lead out of them, pipes, loops, folders in the place of files.

A run must not write through a link, wait for a pipe, or fail with a traceback. If it needs the file, it ends with exit
code 5. A run continues without the records of a writer, and a link that is only replaced does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.faults.cases import Case
from tests.faults.project import put_run, write

RUN = "runs/run"
TRAIN = ("train", "config.yaml")
#: A resume with something to do: the run in the folder has one epoch.
RESUME = ("train", "config.yaml", "train.max_epochs=2", "--resume")


def cases() -> list[Case]:
    """Return all cases."""
    return [*_links(), *_pipes(), *_folders(), *_loops()]


def _case(
    name: str, prepare: Callable[[Path], object], words: tuple[str, ...], code: int | None, *mentions: str
) -> Case:
    """Return a case that changes the folder of a finished run, and continues the run, or starts another one."""

    def put(project: Path) -> None:
        prepare(put_run(project))

    return Case(f"folder_{name}", code, mentions=mentions if code else (), words=words, prepare=put)


def _links() -> list[Case]:
    """Return cases with links in a folder that somebody else prepared."""

    def link(name: str, file: str, target: str, words: tuple[str, ...], code: int | None = 5) -> Case:
        def put(run: Path) -> None:
            write(run, "../../../elsewhere/precious", "precious")
            (run / file).unlink(missing_ok=True)
            (run / file).symlink_to(f"../../../elsewhere/{target}")

        return _case(name, put, words, code, "runs/run")

    found = []
    for file in (".writable", ".lock"):
        for name, words in (("train", TRAIN), ("resume", RESUME)):
            label = f"link_{file.strip('.')}_{name}"
            found += [
                link(label, file, "precious", words),
                link(f"{label}_to_nothing", file, "created", words),
            ]
    test = ("test", "config.yaml", "--checkpoint", f"{RUN}/epoch_1.pth")
    return [
        *found,
        link("link_lock_test", ".lock", "precious", test),
        link("link_partial", ".epoch_2.pth.partial", "precious", RESUME, None),
        link("link_partial_to_nothing", ".epoch_2.pth.partial", "created", RESUME, None),
        link("link_export", "epoch_1.safetensors", "created", ("export", f"{RUN}/epoch_1.pth", "--force"), None),
    ]


def _pipes() -> list[Case]:
    """Return cases with a pipe in the place of a file: opening it waits for somebody at its other end."""

    def pipe(name: str, file: str, words: tuple[str, ...] = RESUME, code: int | None = 5) -> Case:
        def put(run: Path) -> None:
            (run / file).unlink(missing_ok=True)
            os.mkfifo(run / file)

        return _case(f"pipe_{name}", put, words, code, "runs/run")

    return [
        pipe("pointer", "last_checkpoint"),
        pipe("pointer_inspect", "last_checkpoint", ("inspect", RUN), None),
        pipe("log", "run.log"),
        pipe("log_test", "run.log", ("test", "config.yaml", "--checkpoint", f"{RUN}/epoch_1.pth")),
        pipe("plan", "plan.txt"),
        pipe("journal", "events.jsonl"),
        pipe("records", "metrics.jsonl", code=None),
        pipe("lock", ".lock"),
        pipe("writable", ".writable"),
        pipe("checkpoint", "epoch_1.pth", ("train", "config.yaml", f"resume={RUN}/epoch_1.pth")),
        pipe("weights", "epoch_1.pth", ("train", "config.yaml", f"load_from={RUN}/epoch_1.pth")),
        pipe("checkpoint_inspect", "epoch_1.pth", ("inspect", f"{RUN}/epoch_1.pth")),
        pipe("checkpoint_export", "epoch_1.pth", ("export", f"{RUN}/epoch_1.pth")),
    ]


def _folders() -> list[Case]:
    """Return cases with a folder in the place of a file."""

    def folder(name: str, file: str, words: tuple[str, ...] = RESUME, code: int | None = 5) -> Case:
        def put(run: Path) -> None:
            (run / file).unlink(missing_ok=True)
            write(run / file, "inside", "")

        return _case(f"instead_of_{name}", put, words, code, "runs/run")

    return [
        folder("pointer", "last_checkpoint"),
        folder("log", "run.log"),
        folder("plan", "plan.txt"),
        folder("journal", "events.jsonl"),
        folder("config", "config.yaml"),
        folder("records", "metrics.jsonl", code=None),
        folder("lock", ".lock"),
        folder("writable", ".writable"),
        folder("partial", ".epoch_2.pth.partial"),
        folder("partial_pointer", ".last_checkpoint.partial"),
        folder("next_checkpoint", "epoch_2.pth"),
        folder("checkpoint", "epoch_1.pth", ("inspect", f"{RUN}/epoch_1.pth")),
        folder("export", "epoch_1.safetensors", ("export", f"{RUN}/epoch_1.pth", "--force")),
    ]


def _loops() -> list[Case]:
    """Return cases with links that lead to themselves."""

    def loop(name: str, file: str, words: tuple[str, ...], code: int | None = 5) -> Case:
        def put(project: Path) -> None:
            put_run(project)
            path = project / file
            if path.exists() and not path.is_dir():
                path.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(path.name)

        mentions = (Path(file).name,) if code else ()
        return Case(f"folder_loop_{name}", code, mentions=mentions, words=words, prepare=put)

    return [
        loop("work_dir", "runs/loop", (*TRAIN, "work_dir=runs/loop")),
        loop("below", "runs/loop", (*TRAIN, "work_dir=runs/loop/run")),
        loop("resume", "runs/loop", (*TRAIN, "work_dir=runs/loop", "--resume")),
        loop("pointer", f"{RUN}/last_checkpoint", RESUME, None),
        loop("checkpoint", f"{RUN}/epoch_1.pth", (*TRAIN, f"resume={RUN}/epoch_1.pth")),
        loop("weights", f"{RUN}/epoch_1.pth", (*TRAIN, f"load_from={RUN}/epoch_1.pth")),
        loop("inspect", f"{RUN}/epoch_1.pth", ("inspect", f"{RUN}/epoch_1.pth")),
        loop("inspect_folder", "runs/loop", ("inspect", "runs/loop")),
        loop("export", f"{RUN}/epoch_1.pth", ("export", f"{RUN}/epoch_1.pth")),
        loop("out", f"{RUN}/out.st", ("export", f"{RUN}/epoch_1.pth", "--out", f"{RUN}/out.st"), None),
        loop("log", f"{RUN}/run.log", RESUME),
        loop("config", "config.yaml", TRAIN, 2),
        loop("compare", "runs/loop", ("compare", "runs/run", "runs/loop"), None),
    ]
