"""Links, pipes, sockets, devices and folders in the place of a run's files: refused, never followed or waited for."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hookline.testing import toy_runner
from tests.faults.children import command, running
from tests.faults.project import MYNET, config, put_run, write
from tests.faults.special_files import KINDS, attempt, put, refusals
from tests.run_files import USUAL, files_in

#: The files that a run writes, reads or replaces in its folder.
FILES = (
    *(".lock", "run.log", "plan.txt", "config.yaml", "last_checkpoint", "hooks.json", "profile.json", "report.html"),
    *("events.jsonl", "control.jsonl", "loss_bits.bin", "capsule.json"),
    *(".epoch_1.pth.partial", ".last_checkpoint.partial", ".run.log.partial"),
)
#: The files that may be links, because they are only read, or replaced as a whole.
CHECKPOINTS = ("epoch_1.pth", "iter_7.pth", "best_accuracy_epoch_1.pth")
#: The files and folders of writers.
RECORDS = {
    "jsonl": ("metrics.jsonl", "other.jsonl"),
    "csv": ("metrics.csv",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow.db", "mlflow.db-wal", "mlflow"),
    "wandb": ("wandb",),
}


def refused(name: str, kind: str, expected: str = "regular file") -> str:
    return (
        f"5 RUN/{name} must be a {expected} of this run, not {KINDS[kind]}; move it away, or choose another work_dir []"
    )


def outcome(function: Any, *arguments: Any) -> list[str]:
    """Return the lines that a function prints in a child, which must not hang."""
    with running(function, *arguments) as child:
        assert child.wait() == 0, child.output()
        return child.output().splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_refuses_whatever_is_not_a_regular_file_before_it_touches_anything(tmp_path: Path, kind: str) -> None:
    names = [*FILES, *(CHECKPOINTS if kind != "link" else ())]
    assert outcome(refusals, str(tmp_path), kind, names) == [refused(name, kind) for name in names]


def with_writers(root: str, kind: str) -> None:
    for writer, names in RECORDS.items():
        given = {"type": "jsonl", "filename": "other.jsonl"} if "other.jsonl" in names else writer
        refusals(str(Path(root, writer)), kind, list(names), writers=["jsonl", given] if writer == "jsonl" else [given])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
def test_the_records_of_every_writer_are_regular_files_or_folders(tmp_path: Path, kind: str) -> None:
    names = [name for each in RECORDS.values() for name in each]
    expected = [refused(name, kind, "regular file or a folder") for name in names]
    assert outcome(with_writers, str(tmp_path), kind) == expected


def evaluations(root: str, kind: str) -> None:
    for number, name in enumerate(("run.log", "metrics.jsonl", "epoch_1.pth", ".lock")):
        for verb in ("val", "test"):
            folder = Path(root, f"{verb}{number}", "run")
            put(kind, folder / name)
            print(attempt(folder, verb))


@pytest.mark.parametrize("kind", ["dangling", "pipe"])
def test_an_evaluation_refuses_them_as_training_does(tmp_path: Path, kind: str) -> None:
    expected = {"metrics.jsonl": "regular file or a folder"}
    names = ("run.log", "metrics.jsonl", "epoch_1.pth", ".lock")
    assert outcome(evaluations, str(tmp_path), kind) == [
        refused(name, kind, expected.get(name, "regular file")) for name in names for _ in ("val", "test")
    ]


def test_a_file_with_a_second_name_is_never_changed_in_place(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    toy_runner(work_dir=folder, max_epochs=1).train()
    for name in ("run.log", "metrics.jsonl", "events.jsonl", ".lock"):
        other.write_bytes((folder / name).read_bytes() if name != ".lock" else b"")
        (folder / name).unlink(missing_ok=True)
        os.link(other, folder / name)
        (line,) = outcome(attempt_again, str(folder))
        logs = ["run/events.jsonl", "run/hooks.json", "run/run.log"]  # they say how and why the run ended
        written = {"metrics.jsonl": logs, "events.jsonl": logs[-1:]}.get(name, [])
        assert line == (
            f"5 RUN/{name} must be a regular file of this run, not a file with 2 hard links; move it away, or choose "
            f"another work_dir {written}"
        )
        (folder / name).unlink()
        if name != ".lock":
            (folder / name).write_bytes(other.read_bytes())
        other.unlink()
    # These are replaced as a whole, so another name keeps the old content.
    for name in ("plan.txt", "last_checkpoint", "epoch_1.pth"):
        os.link(folder / name, tmp_path / name)
    old = {name: (tmp_path / name).read_bytes() for name in ("plan.txt", "last_checkpoint", "epoch_1.pth")}
    toy_runner(work_dir=folder, max_epochs=2, resume=True).train()
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    assert (folder / "last_checkpoint").read_bytes() != old["last_checkpoint"]


def attempt_again(folder: str) -> None:
    print(attempt(Path(folder), "train", resume=True))


def test_links_outside_of_the_files_of_a_run_keep_working(tmp_path: Path) -> None:
    """The folder itself may be a link, and so may a checkpoint that is only read."""
    real, elsewhere = tmp_path / "real", tmp_path / "elsewhere"
    toy_runner(work_dir=elsewhere, max_epochs=1).train()
    saved = (elsewhere / "epoch_1.pth").read_bytes()
    real.mkdir()
    (tmp_path / "run").symlink_to(real)
    (real / "epoch_1.pth").symlink_to(elsewhere / "epoch_1.pth")
    (tmp_path / "weights.pth").symlink_to(elsewhere / "epoch_1.pth")
    runner = toy_runner(work_dir=tmp_path / "run", resume=True)
    runner.train()
    assert runner.iter == 8
    assert files_in(real) == sorted(["epoch_1.pth", "epoch_2.pth", "resume.json", *USUAL])
    toy_runner(work_dir=tmp_path / "run", resume=tmp_path / "weights.pth").train()
    toy_runner(work_dir=tmp_path / "run", load_from=tmp_path / "weights.pth").train()
    assert os.readlink(real / "old-1" / "epoch_1.pth") == str(elsewhere / "epoch_1.pth")
    assert (elsewhere / "epoch_1.pth").read_bytes() == saved


# -- what a run reads


def project(tmp_path: Path) -> Path:
    write(tmp_path, "mynet.py", MYNET)
    write(tmp_path, "config.yaml", config())
    put_run(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_checkpoint_to_read_must_be_a_regular_file(tmp_path: Path, kind: str) -> None:
    here = project(tmp_path)
    put(kind, here / "given")
    (here / "through").symlink_to(here / "given")
    train = ("train", "config.yaml", "work_dir=runs/new")
    for name in ("given", "through"):
        says = f"hookline: {name} is {KINDS[kind]}, not a checkpoint\n"
        for words in (
            (*train, f"resume={name}"),
            (*train, f"load_from={name}"),
            ("test", "config.yaml", "--checkpoint", name),
            ("inspect", name),
            ("export", name),
        ):
            code, output = command(*words, cwd=here)
            assert (code, output[output.find("hookline: ") :]) == (5, says), words


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_config_must_be_a_regular_file(tmp_path: Path, kind: str) -> None:
    here = project(tmp_path)
    put(kind, here / "given.yaml")
    write(here, "over.yaml", "_base_: given.yaml\n")
    for words in (("train", "given.yaml"), ("plan", "given.yaml"), ("train", "over.yaml")):
        says = f"hookline: given.yaml: the file cannot be read: it is {KINDS[kind]}, not a regular file\n"
        assert command(*words, cwd=here) == (2, says)


def test_a_loop_of_links_is_refused_like_any_other_unreadable_path(tmp_path: Path) -> None:
    here = project(tmp_path)
    (here / "loop").symlink_to("loop")
    (here / "loop.yaml").symlink_to("loop.yaml")
    write(here, "over.yaml", "_base_: loop.yaml\n")
    too_many = "Too many levels of symbolic links"
    expected = {
        ("train", "config.yaml", "work_dir=loop"): (5, f"work_dir loop cannot be written: {too_many}"),
        ("train", "config.yaml", "work_dir=loop/run"): (5, f"work_dir loop/run cannot be written: {too_many}"),
        ("train", "config.yaml", "resume=loop"): (5, f"loop cannot be read: {too_many}"),
        ("train", "config.yaml", "load_from=loop"): (5, f"loop cannot be read: {too_many}"),
        ("train", "loop.yaml"): (2, f"loop.yaml: the file cannot be read: {too_many}"),
        ("train", "over.yaml"): (2, f"loop.yaml: the file cannot be read: {too_many}"),
        ("inspect", "loop"): (5, f"loop cannot be read: {too_many}"),
        ("export", "loop"): (5, f"loop cannot be read: {too_many}"),
        ("compare", "loop"): (2, "loop is a link to loop, which does not exist"),
    }
    for words, (code, says) in expected.items():
        ended, output = command(*words, cwd=here)
        assert (ended, output[output.find("hookline: ") :]) == (code, f"hookline: {says}\n"), words


# -- errors of the system


def with_little_room(root: str, *sizes: int) -> None:
    """Start runs that can write only files up to a size, as on a full disk."""
    for size in sizes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        line = attempt(Path(root, str(size), "run"), "train", config={"note": "x" * 5000})
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(line)


def test_an_error_while_a_run_opens_its_files_is_a_storage_error_that_names_the_file(tmp_path: Path) -> None:
    room = {0: ".lock", 10: "plan.txt", 500: "plan.txt", 4500: "config.yaml"}
    lines = outcome(with_little_room, str(tmp_path), *room)
    assert [line.partition(" [")[0] for line in lines] == [
        f"5 RUN/{name} cannot be written: File too large" for name in room.values()
    ]


def test_a_folder_that_not_even_root_can_write_is_refused_before_anything_else(tmp_path: Path) -> None:
    """Nobody can create files there, as in an immutable folder or one on a medium that is read-only."""
    here = project(tmp_path)
    code, output = command("train", "config.yaml", "work_dir=/proc/self/fdinfo", cwd=here)
    assert (code, output.splitlines()[-1].startswith("hookline: work_dir /proc/self/fdinfo cannot be written: ")) == (
        5,
        True,
    ), output


def test_a_path_with_two_thousand_levels_is_refused_by_every_command(tmp_path: Path) -> None:
    here, deep, too_long = project(tmp_path), "/".join(["abc"] * 2000), "File name too long"
    expected = {
        ("train", "config.yaml", f"work_dir={deep}"): (5, f"work_dir {deep} cannot be written: {too_long}"),
        ("train", "config.yaml", f"resume={deep}"): (5, f"{deep} cannot be read: {too_long}"),
        ("train", "config.yaml", f"load_from={deep}"): (5, f"{deep} cannot be read: {too_long}"),
        ("train", f"{deep}/config.yaml"): (2, f"{deep}/config.yaml: the file cannot be read: {too_long}"),
        ("inspect", deep): (5, f"{deep} cannot be read: {too_long}"),
        ("export", deep): (5, f"{deep} cannot be read: {too_long}"),
        ("compare", deep): (2, f"folder {deep} does not exist"),
        ("init", deep): (5, f"{deep} cannot be written: {too_long}"),
        ("run-as", "mmengine", deep): (2, f"script {deep} does not exist"),
    }
    for words, (code, says) in expected.items():
        ended, output = command(*words, cwd=here)
        assert (ended, output[output.find("hookline: ") :]) == (code, f"hookline: {says}\n"), words[0]
    assert not (here / "abc").exists()


def test_folders_are_created_at_any_depth_that_the_system_allows(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        deep = Path(*["a"] * 1500)  # more levels than Python calls functions inside one another
        toy_runner(work_dir=deep, max_epochs=1).train()
        assert (deep / "epoch_1.pth").is_file()
        subprocess.run(["rm", "-r", "a"], check=True)


# -- commands that read a run


SPECIAL = ("pipe", "socket", "device")


@pytest.mark.parametrize("kind", [*SPECIAL, "dangling", "loop", "folder"])
def test_commands_that_read_a_run_skip_what_is_not_a_file(tmp_path: Path, kind: str) -> None:
    here = project(tmp_path)
    plain = [command(word, "runs/run", cwd=here) for word in ("compare", "inspect")]
    for name in ("epoch_7.pth", "other.pth", ".lock", "plan.txt", "run.log"):
        (here / "runs" / "run" / name).unlink(missing_ok=True)
        put(kind, here / "runs" / "run" / name)
    assert [command(word, "runs/run", cwd=here) for word in ("compare", "inspect")] == plain


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_file_that_they_need_must_be_a_regular_file(tmp_path: Path, kind: str) -> None:
    here, reason = project(tmp_path), f"cannot be read: it is {KINDS[kind]}, not a regular file"
    for name in ("metrics.jsonl", "config.yaml"):
        kept = (here / "runs" / "run" / name).rename(here / "kept")
        put(kind, here / "runs" / "run" / name)
        expected = (5, f"hookline: runs/run/{name} {reason}\n")
        assert command("compare", "runs/run", "runs/run/../run", cwd=here) == expected
        (here / "runs" / "run" / name).unlink()
        kept.rename(here / "runs" / "run" / name)
