from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hookline.checkpoint.retention import by_age
from hookline.errors import StorageError
from hookline.hooks.best import remove_others
from hookline.rundir.log_copies import LogCopies
from hookline.testing import toy_runner
from tests.faults.special_files import CONTENT, put


def test_old_checkpoints_that_cannot_be_removed_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        remove_others(re.compile("comm"), Path("/proc/self/saved"))  # not even root can remove files there
    assert re.fullmatch(
        r"/proc/self/comm cannot be removed: (Operation not permitted|Permission denied)", str(refused.value)
    )


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "dangling", "loop", "folder"])
def test_retention_does_not_take_something_else_for_a_checkpoint(tmp_path: Path, kind: str) -> None:
    toy_runner(work_dir=tmp_path / "run", max_epochs=1).train()
    put(kind, tmp_path / "run" / "epoch_0.pth")
    assert by_age(tmp_path / "run", re.compile(r"epoch_\d\.pth")) == [tmp_path / "run" / "epoch_1.pth"]


def test_copies_of_logs_follow_no_links(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, target = tmp_path / "run", tmp_path / "copies" / "run"
    folder.mkdir()
    (folder / "run.log").write_text("a line\n")
    os.utime(folder / "run.log", (1, 1))
    target.mkdir(parents=True)
    (tmp_path / "other").write_text(CONTENT)
    copies = LogCopies(tmp_path / "copies", (".log",), keep_local=True)
    (target / "run.log").symlink_to(tmp_path / "other")
    copies.copy(folder)
    assert ((target / "run.log").read_text(), (target / "run.log").lstat().st_mtime) == ("a line\n", 1)
    (target / ".run.log.partial").symlink_to(tmp_path / "other")
    copies.copy(folder)
    assert caplog.messages == [
        f"{folder / 'run.log'} could not be copied to {target}: {target / '.run.log.partial'} must be a regular file "
        "of this run, not a symbolic link; move it away, or choose another work_dir"
    ]
    assert (tmp_path / "other").read_text() == CONTENT
