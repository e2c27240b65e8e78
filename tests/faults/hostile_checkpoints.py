"""Checkpoints and pointers that try to execute code or to leave their folder."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.faults.cases import CANARY, Case
from tests.faults.project import checkpoint, in_zip, point, put_run, sealed, trained_run, write

SHELL = f"touch {CANARY}"


def cases() -> list[Case]:
    """Return all cases."""
    return [*_pickles(), *_pointers(), *_clean()]


class Calls:
    """An object whose pickle calls a function when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def payloads() -> dict[str, Any]:
    """Return objects that execute code when they are unpickled, by method."""
    inner = io.BytesIO()
    torch.save(Calls(os.system, SHELL), inner)
    return {
        "os_system": Calls(os.system, SHELL),
        "popen": Calls(subprocess.Popen, ["touch", CANARY]),
        "eval": Calls(eval, f"__import__('os').system('{SHELL}')"),
        "getattr": Calls(getattr, Calls(__import__, "os"), "system"),
        "bytes_of_torch": Calls(torch.storage._load_from_bytes, inner.getvalue()),
    }


def in_legacy(value: Any) -> bytes:
    """Return the bytes that torch wrote before version 1.6."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def in_pickle(value: Any) -> bytes:
    """Return the bytes of a bare pickle."""
    return pickle.dumps(value, protocol=2)


def in_bare_zip(value: Any) -> bytes:
    """Return the bytes of an archive built by hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


FORMATS: dict[str, Callable[[Any], bytes]] = {
    "sealed": lambda value: sealed({"state_dict": value}),
    "zip": in_zip,
    "legacy": in_legacy,
    "pickle": in_pickle,
    "bare_zip": in_bare_zip,
}

#: The commands that read a checkpoint, by the place that reads it.
PLACES = {
    "resume": ("train", "config.yaml", "resume=runs/run/epoch_1.pth"),
    "newest": ("train", "config.yaml", "--resume"),
    "load_from": ("train", "config.yaml", "load_from=runs/run/epoch_1.pth"),
    "test": ("test", "config.yaml", "--checkpoint", "runs/run/epoch_1.pth"),
}


def _pickles() -> list[Case]:
    """Return cases with hostile pickles: in every place that reads a checkpoint, every format and every part."""

    def hostile(name: str, place: str, content: Callable[[], bytes]) -> Case:
        return Case(
            f"fault_16_{place}_{name}",
            5,
            mentions=("epoch_1.pth",),
            words=PLACES[place],
            prepare=lambda project: put_run(project, epoch_1=content()),
        )

    call = Calls(os.system, SHELL)
    everywhere = [hostile(name, place, partial(pack, call)) for place in PLACES for name, pack in FORMATS.items()]
    parts = ("state_dict", "hooks", "rng", "message_hub", "position", "meta", "optimizer", "more")
    inside = [hostile(f"in_{key}", "newest", partial(with_entry, key, call)) for key in parts]
    ways = [
        hostile(f"by_{name}", "load_from", partial(with_entry, "more", value)) for name, value in payloads().items()
    ]
    return [*everywhere, *inside, *ways]


def with_entry(key: str, value: Any) -> bytes:
    """Return a good checkpoint with one entry replaced."""
    return sealed(checkpoint() | {key: value})


def _pointers() -> list[Case]:
    """Return cases with pointers that lead out of the folder, or nowhere.

    The only checkpoint next to them is cut short. The one outside, to which some of them point, is intact.
    """

    def pointer(name: str, content: str | bytes | None, prepare: Callable[[Path], object] | None = None) -> Case:
        def put(project: Path) -> None:
            run = put_run(project)
            write(run, "epoch_1.pth", trained_run()["epoch_1.pth"][:100])
            write(project, "../elsewhere/epoch_1.pth", trained_run()["epoch_1.pth"])
            (run / "inner").mkdir()
            if content is not None:
                write(run, "last_checkpoint", content)
            if prepare is not None:
                prepare(run)

        return Case(
            f"fault_19_pointer_{name}",
            5,
            mentions=("runs/run",),
            words=("train", "config.yaml", "--resume"),
            prepare=put,
        )

    def to(name: str) -> Callable[[Path], object]:
        return lambda run: point(run, name=name)

    def linked(run: Path) -> None:
        (run / "epoch_1.pth").unlink()
        write(run, "../../../elsewhere/evil.pth", in_zip(Calls(os.system, SHELL)))
        (run / "epoch_1.pth").symlink_to("../../../elsewhere/evil.pth")

    return [
        pointer("upwards", None, to("../../../elsewhere/epoch_1.pth")),
        pointer("through_a_folder", None, to("inner/../../../../elsewhere/epoch_1.pth")),
        pointer("absolute", None, lambda run: point(run, name=str(run.parents[2] / "elsewhere" / "epoch_1.pth"))),
        pointer("nul", None, to("epoch_1.pth\0.txt")),
        pointer("link", None, linked),
        pointer("long", None, to("x" * 5000)),
        pointer("empty_name", None, to("")),
        pointer("folder", None, to(".")),
        pointer("number", None, lambda run: point(run, name=5)),
        pointer("list", None, lambda run: point(run, name=["epoch_1.pth"], sha256=None)),
        pointer("is_a_list", "[1, 2, 3]"),
        pointer("no_json", b"\x80\x02cos\nsystem\n"),
        pointer("pickle", in_pickle(Calls(os.system, SHELL))),
        pointer("empty", b""),
        pointer("huge", '{"name": "' + "x" * 5_000_000 + '"}'),
        pointer("deep", "[" * 100_000),
    ]


def _clean() -> list[Case]:
    """Return clean checkpoints whose strings look like code, modules and paths; they must be treated as data."""

    def clean(name: str, change: Callable[[dict[str, Any]], object], *mentions: str) -> Case:
        def put(project: Path) -> None:
            changed = checkpoint()
            change(changed)
            put_run(project, epoch_1=sealed(changed))

        return Case(
            f"fault_17_{name}",
            0,
            mentions=mentions,
            words=("train", "config.yaml", "--resume", "train.max_epochs=2"),
            prepare=put,
        )

    code = f"__import__('os').system('{SHELL}')"
    scalar = {"values": torch.zeros(2, dtype=torch.float64), "fresh": 2}
    return [
        clean(
            "hook_names",
            lambda found: found["hooks"].update({"os:system": {"command": SHELL}, code: {"type": "os:system"}}),
            f"hook {code}: only in the checkpoint, so it is dropped, with its state\n",
        ),
        clean(
            "metric_names",
            lambda found: found["message_hub"]["scalars"].update(
                {"train/../../../elsewhere/x": scalar, "train//etc/x": scalar, f"train/{code}": scalar}
            ),
        ),
        clean(
            "facts", lambda found: found["message_hub"]["info"].update({"_target_": "os.system", "type": "os:system"})
        ),
        clean(
            "meta",
            lambda found: found["meta"].update(
                experiment_name="../../elsewhere/x", hookline=code, hooks=["os:system"], torch="9.9"
            ),
        ),
        clean("stopped_by", lambda found: found["position"].update(stopped=code, stopped_by="os:system")),
        clean("writers", lambda found: found.update(writers={"os:system": {"size": 1}, "../../x": {"filename": "x"}})),
        clean(
            "more_keys", lambda found: found.update({"imports": ["antigravity"], "../../x": code, "type": "os:system"})
        ),
    ]
