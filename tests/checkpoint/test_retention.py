from __future__ import annotations

import re
from pathlib import Path

from hookline.checkpoint import store
from hookline.checkpoint.retention import by_age, clean_up, keep_newest
from hookline.checkpoint.seal import Note
from hookline.testing import toy_runner

NAMES = re.compile(r"step_[0-9]+\.pth")


def saved(folder: Path, *places: tuple[int, int]) -> list[Path]:
    paths = [folder / f"step_{step}{validations}.pth" for step, validations in places]
    for path, place in zip(paths, places, strict=True):
        store.write({"state_dict": {}}, path, Note(*place))
    return paths


def test_checkpoints_are_in_the_order_of_the_run_and_other_files_are_left_out(tmp_path: Path) -> None:
    ninth, tenth, validated = saved(tmp_path, (9, 0), (10, 0), (10, 1))
    saved(tmp_path, (11, 0))[0].rename(tmp_path / "best.pth")
    (tmp_path / "step_12.pth").write_bytes(b"written by something else")
    assert by_age(tmp_path, NAMES) == [ninth, tenth, validated]


def test_only_the_newest_and_the_one_that_was_just_saved_are_kept(tmp_path: Path) -> None:
    first, second, third, fourth = saved(tmp_path, (1, 0), (2, 0), (3, 0), (4, 0))
    (tmp_path / "step_0.pth").touch()
    keep_newest(2, NAMES, fourth)
    assert by_age(tmp_path, NAMES) == [third, fourth]
    assert (tmp_path / "step_0.pth").exists()
    saved(tmp_path, (1, 0))
    keep_newest(2, NAMES, first)
    assert by_age(tmp_path, NAMES) == [first, third, fourth]
    keep_newest(1, NAMES, fourth)
    assert by_age(tmp_path, NAMES) == [fourth]
    assert not second.exists()


def test_leftovers_of_a_killed_run_are_removed_except_the_resumed_checkpoint(tmp_path: Path) -> None:
    first, second, third = saved(tmp_path, (1, 0), (2, 0), (3, 0))
    clean_up(2, NAMES, tmp_path, resumed=tmp_path / "elsewhere" / "step_30.pth")
    assert by_age(tmp_path, NAMES) == [second, third]
    saved(tmp_path, (1, 0))
    clean_up(1, NAMES, tmp_path, resumed=tmp_path / "." / first.name)
    assert by_age(tmp_path, NAMES) == [first, third]
    clean_up(1, re.compile("none"), tmp_path, resumed=first)
    assert by_age(tmp_path, NAMES) == [first, third]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_the_file_just_saved_stays_also_beside_newer_numbers(tmp_path: Path) -> None:
    toy_runner(max_epochs=4, work_dir=tmp_path).train()
    hooks = {"checkpoint": {"max_keep_ckpts": 1}}
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=tmp_path / "epoch_1.pth", default_hooks=hooks).train()
    assert "epoch_2.pth" in checkpoints(tmp_path)
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=True).train()
