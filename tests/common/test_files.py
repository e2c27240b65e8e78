from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import hookline
from hookline.common.files import owned, real_path, regular, replacing, storage_errors, write_text
from hookline.errors import StorageError
from tests.faults.special_files import CONTENT, KINDS, put

ADVICE = "move it away, or choose another work_dir"


@pytest.mark.parametrize("mode", ["rb", "r+b", "wb", "ab", "a+b"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
def test_a_file_of_a_run_is_never_anything_but_a_regular_file(tmp_path: Path, kind: str, mode: str) -> None:
    path = tmp_path / "run" / "file"
    put(kind, path)
    with pytest.raises(StorageError) as refused, open(path, mode, opener=owned):
        pass
    assert str(refused.value) == f"{path} must be a regular file of this run, not {KINDS[kind]}; {ADVICE}"
    assert not (tmp_path / "run.elsewhere").exists() or (tmp_path / "run.elsewhere").read_text() == CONTENT


@pytest.mark.parametrize("mode", ["r+b", "wb", "ab"])
def test_a_file_with_another_name_may_be_read_but_not_written(tmp_path: Path, mode: str) -> None:
    (tmp_path / "other").write_text(CONTENT)
    os.link(tmp_path / "other", tmp_path / "file")
    with open(tmp_path / "file", opener=owned) as file:
        assert file.read() == CONTENT
    with pytest.raises(StorageError) as refused, open(tmp_path / "file", mode, opener=owned):
        pass
    expected = f"{tmp_path / 'file'} must be a regular file of this run, not a file with 2 hard links; {ADVICE}"
    assert str(refused.value) == expected
    assert (tmp_path / "other").read_text() == CONTENT


def test_regular_files_are_created_emptied_and_continued_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mask = os.umask(0o022)
    try:
        with open(path, "wb", opener=owned) as file:
            file.write(b"one")
        assert path.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(mask)
    with open(path, "ab", opener=owned) as file:
        file.write(b" two")
    assert path.read_bytes() == b"one two"
    with open(path, "wb", opener=owned) as file:
        assert path.read_bytes() == b""
    with pytest.raises(FileNotFoundError), open(tmp_path / "none", opener=owned):
        pass
    for mode in ("rb", "ab"):
        with pytest.raises(IsADirectoryError), open(tmp_path, mode, opener=owned):
            pass


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_file_to_read_may_be_a_link_but_nothing_that_blocks(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run" / "file"
    put(kind, path)
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        with pytest.raises(OSError, match="^.*$") as refused, open(each, opener=regular):
            pass
        assert refused.value.strerror == f"it is {KINDS[kind]}, not a regular file"
    path.unlink()
    path.write_text(CONTENT)
    with open(tmp_path / "link", opener=regular) as file:
        assert file.read() == CONTENT
    with pytest.raises(IsADirectoryError), open(tmp_path, opener=regular):
        pass


def test_a_link_that_appears_in_the_last_moment_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_text(CONTENT)
    real = os.lstat

    def lstat_then_replace(given: str) -> os.stat_result:
        path.write_text("")
        found = real(given)
        path.unlink()
        path.symlink_to(other)
        return found

    monkeypatch.setattr(os, "lstat", lstat_then_replace)
    with pytest.raises(OSError, match="Too many levels of symbolic links"), open(path, "wb", opener=owned):
        pass
    assert other.read_text() == CONTENT


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(OSError, match="read"), replacing(path) as file:
        file.read()  # it is open for writing
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "old"}
    (tmp_path / "other").write_text(CONTENT)
    path.unlink()
    path.symlink_to(tmp_path / "other")
    write_text(path, "new")  # replaces the link
    assert (path.is_symlink(), path.read_text(), (tmp_path / "other").read_text()) == (False, "new", CONTENT)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("link", "dangling", "loop")])
def test_replacing_refuses_what_is_not_a_file_and_leaves_it(tmp_path: Path, kind: str) -> None:
    for name, placed in (("one", "one"), ("two", ".two.partial")):
        put(kind, tmp_path / "run" / placed)
        with pytest.raises(StorageError) as refused:
            write_text(tmp_path / "run" / name, "new")
        path = tmp_path / "run" / placed
        assert str(refused.value) == f"{path} must be a regular file of this run, not {KINDS[kind]}; {ADVICE}"
        assert os.path.lexists(path)


def test_an_error_of_the_system_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused, storage_errors(tmp_path, "used", inside=True):
        (tmp_path / "none").unlink()
    assert str(refused.value) == f"{tmp_path / 'none'} cannot be used: No such file or directory"
    with pytest.raises(StorageError) as refused, storage_errors(tmp_path / "mine"):
        (tmp_path / "none").unlink()
    assert str(refused.value) == f"{tmp_path / 'mine'} cannot be written: No such file or directory"


def test_the_real_path_of_a_loop_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert real_path(tmp_path / "loop" / "x").name == "x"


#: Functions that may open files in another way, because they are not files of a run.
ELSEWHERE = {
    "common/files.py": "the rule itself, and a folder, to sync it",
    "plan/registry.py": "hookline's own source files",
    "common/memory.py": "/proc",
    "strategies/stacks.py": "/proc",
    "replay/bundle.py": "the temporary folder of a replay",
    "replay/samples.py": "a temporary file of its own",
    "replay/trail.py": "the temporary folder of a replay",
    "replay/triage.py": "the temporary folder of a replay",
    "report/page.py": "hookline's own scripts and styles",
    "report/live/server.py": "hookline's own scripts and styles",
    "launching/agent.py": "temporary files of the launcher",
    "rundir/ownership.py": "the folder of the run, to see whether it is deleted",
    "writers/mlflow.py": "a temporary file of its own",
}


def test_every_file_of_a_run_is_opened_by_one_of_the_two_rules() -> None:
    source, found = Path(hookline.__file__).parent, set()
    for path in source.rglob("*.py"):
        name = path.relative_to(source).as_posix()
        if name.startswith(("cli/", "dialects/")):  # files that the user names
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _opens(node) and "devnull" not in ast.unparse(node):
                found.add(name)
    assert sorted(found) == sorted(ELSEWHERE)


def _opens(call: ast.Call) -> bool:
    """Return whether a call opens a file by its path, without an opener."""
    if any(keyword.arg == "opener" for keyword in call.keywords):
        return False
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    of_os = isinstance(function.value, ast.Name) and function.value.id == "os"
    by_path = ("read_text", "read_bytes", "write_bytes") if not of_os else ("open", "truncate")
    return function.attr in by_path
