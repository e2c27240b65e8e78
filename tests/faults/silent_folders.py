"""Folders and files that cannot be written or read: because of their modes, their depth, or the file system."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.faults.cases import Case
from tests.faults.project import config, put_run

RUN = "runs/run"
TRAIN = ("train", "config.yaml")
RESUME = ("train", "config.yaml", "train.max_epochs=2", "--resume")
#: More levels than Python's recursion allows, but a shorter path than the system allows.
DEEP = f"runs/{'/'.join(['d'] * 2000)}"
#: More levels than the system allows.
TOO_DEEP = f"runs/{'/'.join(['d'] * 2500)}"


def cases() -> list[Case]:
    """Return the cases in which the command cannot succeed."""
    return [case for case in (*_deep_paths(), *_modes()) if case.code is not None]


def possible_cases() -> list[Case]:
    """Return the cases in which the command may succeed or fail, but must do it properly."""
    return [case for case in (*_deep_paths(), *_modes()) if case.code is None]


def _deep_paths() -> list[Case]:
    """Return cases with paths of many levels."""

    def remove(project: Path) -> None:
        # Python removes a tree by recursion, which does not reach this deep.
        subprocess.run(["rm", "-rf", str(project / "runs")], check=True)

    def deep(name: str, words: tuple[str, ...], code: int | None = 5, **given: Any) -> Case:
        mentions = ("File name too long",) if code else ()
        return Case(f"folder_deep_{name}", code, mentions=mentions, words=words, prepare=put_run, tidy=remove, **given)

    return [
        deep("work_dir", (*TRAIN, f"work_dir={DEEP}"), None),
        deep("work_dir_too_deep", (*TRAIN, f"work_dir={TOO_DEEP}")),
        deep("resume", (*TRAIN, f"work_dir={TOO_DEEP}", "--resume")),
        deep("checkpoints", TRAIN, config=config(default_hooks=f"{{checkpoint: {{out_dir: {TOO_DEEP}}}}}")),
        deep("load_from", (*TRAIN, f"load_from={TOO_DEEP}/x.pth")),
        deep("inspect", ("inspect", f"{TOO_DEEP}/x.pth")),
        deep("export", ("export", f"{RUN}/epoch_1.pth", "--out", f"{TOO_DEEP}/x.safetensors")),
        deep("export_deep", ("export", f"{RUN}/epoch_1.pth", "--out", f"{DEEP}/x.safetensors"), None),
        deep("config", ("train", f"{TOO_DEEP}/config.yaml"), None),
        deep("compare", ("compare", TOO_DEEP, RUN), None),
        deep("init", ("init", f"{TOO_DEEP}/project")),
    ]


def _modes() -> list[Case]:
    """Return cases with folders and files whose modes forbid to write or to read them, and with folders in /proc."""

    def protected(name: str, file: str, mode: int, words: tuple[str, ...], code: int | None = 5) -> Case:
        def put(project: Path) -> None:
            put_run(project)
            (project / "runs" / "empty").mkdir()
            (project / file).chmod(mode)

        def restore(project: Path) -> None:
            (project / file).chmod(0o755)

        return Case(
            f"folder_mode_{name}",
            code,
            mentions=(file,) if code else (),
            words=words,
            prepare=put,
            tidy=restore,
            powerless=True,
        )

    def unwritable(name: str, *words: str, **given: Any) -> Case:
        return Case(f"folder_proc_{name}", 5, mentions=("/proc",), words=words, prepare=put_run, **given)

    resume = (*TRAIN, f"resume={RUN}/epoch_1.pth", "train.max_epochs=2")
    return [
        protected("work_dir", RUN, 0o555, TRAIN),
        protected("resume", RUN, 0o555, RESUME),
        protected("test", RUN, 0o555, ("test", "config.yaml", "--checkpoint", f"{RUN}/epoch_1.pth")),
        protected("empty", "runs/empty", 0o555, (*TRAIN, "work_dir=runs/empty")),
        protected("below", "runs/empty", 0o555, (*TRAIN, "work_dir=runs/empty/run")),
        protected("hidden", "runs/empty", 0o000, (*TRAIN, "work_dir=runs/empty/run")),
        protected("not_listed", RUN, 0o333, RESUME),
        protected("inspect_folder", RUN, 0o000, ("inspect", RUN), None),
        protected("checkpoint", f"{RUN}/epoch_1.pth", 0o000, resume),
        protected("newest", f"{RUN}/epoch_1.pth", 0o000, RESUME),
        protected("weights", f"{RUN}/epoch_1.pth", 0o000, (*TRAIN, f"load_from={RUN}/epoch_1.pth")),
        protected("inspect", f"{RUN}/epoch_1.pth", 0o000, ("inspect", f"{RUN}/epoch_1.pth"), None),
        protected("inspect_in_folder", f"{RUN}/epoch_1.pth", 0o000, ("inspect", RUN), None),
        protected("log", f"{RUN}/run.log", 0o000, RESUME),
        protected("records", f"{RUN}/metrics.jsonl", 0o000, RESUME, None),
        protected("pointer", f"{RUN}/last_checkpoint", 0o000, RESUME, None),
        protected("export", RUN, 0o555, ("export", f"{RUN}/epoch_1.pth")),
        protected(
            "export_elsewhere", "runs/empty", 0o555, ("export", f"{RUN}/epoch_1.pth", "--out", "runs/empty/x.st")
        ),
        protected("export_below", "runs/empty", 0o555, ("export", f"{RUN}/epoch_1.pth", "--out", "runs/empty/x/y.st")),
        protected("init", "runs/empty", 0o555, ("init", "runs/empty/mine")),
        unwritable("work_dir", *TRAIN, "work_dir=/proc"),
        unwritable("work_dir_of_a_process", *TRAIN, "work_dir=/proc/self/task"),
        unwritable("export", "export", f"{RUN}/epoch_1.pth", "--out", "/proc/x.safetensors"),
        unwritable("export_below", "export", f"{RUN}/epoch_1.pth", "--out", "/proc/x/x.safetensors"),
        unwritable("init", "init", "/proc/mine"),
        unwritable("schema", "schema", "--out", "/proc/schema.json"),
        unwritable("checkpoints", *TRAIN, config=config(default_hooks="{checkpoint: {out_dir: /proc}}")),
    ]
