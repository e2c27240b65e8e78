"""CsvWriter: a table to which columns may be added."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import StorageError
from hookline.writers import Writers
from hookline.writers.csv import CsvWriter


def begun(folder: Path) -> Writers:
    together = Writers([CsvWriter()])
    together.begin(folder, "x")
    return together


def text(folder: Path) -> str:
    return (folder / "metrics.csv").read_text()


def test_a_new_name_is_a_new_column_and_cells_without_a_number_are_empty(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalars({"train/loss": 0.1, "epoch": 1}, 10)
    together.flush()
    together.write_scalars({"val/f1, macro": 1e-17, "epoch": 1}, 10)
    together.write_scalars({"train/loss": float("nan"), "other": float("-inf")}, 20)
    together.close()
    assert text(tmp_path) == ('step,train/loss,epoch,"val/f1, macro",other\n10,0.1,1,,\n10,,1,1e-17,\n20,nan,,,-inf\n')
    assert os.listdir(tmp_path) == ["metrics.csv"]


def test_if_adding_a_column_fails_the_file_stays_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    together = begun(tmp_path)
    together.write_scalars({"a": 1.0}, 1)
    together.flush()
    before = text(tmp_path)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        together.write_scalars({"b": 2.0}, 2)
        together.flush()
        together.flush()
        assert text(tmp_path) == before
        assert os.listdir(tmp_path) == ["metrics.csv"]
    together.write_scalars({"a": 3.0}, 3)
    together.close()
    assert text(tmp_path) == "step,a,b\n1,1.0,\n2,,2.0\n3,3.0,\n"
    assert caplog.messages == [f"{tmp_path / 'metrics.csv'} cannot be written: No space left on device; will try again"]


def test_a_row_that_was_cut_in_half_by_a_kill_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,a\n1,0.5\n2,0.2")
    together = begun(tmp_path)
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    assert text(tmp_path) == "step,a\n1,0.5\n2,0.25\n"


def test_columns_that_came_after_the_checkpoint_go_with_their_rows(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalars({"a": 1.0}, 1)
    state = together.state_dict()
    before = text(tmp_path)
    together.write_scalars({"b": 2.0}, 2)
    together.close()
    resumed = begun(tmp_path)
    resumed.load_state_dict(state)
    resumed.close()
    assert state == {"CsvWriter": {"rows": 1, "columns": 2}}
    assert text(tmp_path) == before


def test_a_file_that_could_not_be_cut_back_is_cut_back_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = begun(tmp_path)
    together.write_scalars({"a": 1.0}, 1)
    state = together.state_dict()
    together.write_scalars({"b": 2.0}, 2)
    together.close()
    resumed = begun(tmp_path)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        resumed.load_state_dict(state)
    resumed.write_scalars({"b": 2.5}, 2)
    resumed.write_scalars({"c": 3.0}, 3)
    resumed.close()
    assert text(tmp_path) == "step,a,b,c\n1,1.0,,\n2,,2.5,\n3,,,3.0\n"


def test_a_name_that_cannot_be_written_takes_no_other_with_it(tmp_path: Path) -> None:
    together = begun(tmp_path)
    for step, name in enumerate(("a", "\ud800", "a")):
        together.write_scalars({name: 0.5}, step)
    together.close()
    assert text(tmp_path) == "step,a\n0,0.5\n2,0.5\n"
    assert together.deliveries[0].missing == 1


def test_rows_that_are_gone_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,a\n1,0.5\n")
    resumed = begun(tmp_path)
    resumed.load_state_dict({"CsvWriter": {"rows": 3, "columns": 2}})
    resumed.close()
    assert text(tmp_path) == "step,a\n1,0.5\n"
    assert caplog.messages == [f"{path} has lost records: found 1 of the 3 rows that were there at the checkpoint"]


def test_rows_that_wait_for_a_column_are_saved_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = begun(tmp_path)
    together.write_scalars({"a": 1.0}, 1)
    together.flush()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        together.write_scalars({"b": 2.0}, 2)
        state = together.state_dict()
        together.close()  # the waiting rows are lost, as after a kill
    assert state == {"CsvWriter": {"rows": 1, "columns": 2, "waiting": [[{"b": 2.0}, 2]]}}
    resumed = begun(tmp_path)
    resumed.load_state_dict(state)
    resumed.write_scalars({"a": 3.0}, 3)
    resumed.close()
    assert text(tmp_path) == "step,a,b\n1,1.0,\n2,,2.0\n3,3.0,\n"


FORMULAS = ("=1+1", "+x", "-x", "@x", "\tx", "\rx", "=cmd|'/c calc'!A1,x", "'=x", "＝x", "+1", "-0.5")
HEADER = "step,'=1+1,'+x,'-x,'@x,'\tx,\"'\rx\",\"'=cmd|'/c calc'!A1,x\",''=x,'＝x,'+1,'-0.5,loss\n"


def test_no_name_is_a_formula_and_numbers_stay_as_they_are(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalars({**dict.fromkeys(FORMULAS, -0.5), "loss": float("-inf")}, 1)
    together.close()
    whole = (tmp_path / "metrics.csv").read_bytes().decode()
    assert whole == HEADER + "1," + "-0.5," * len(FORMULAS) + "-inf\n"


def test_names_that_are_quoted_keep_their_columns_in_a_resumed_run(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalars(dict.fromkeys(FORMULAS, 1.0), 1)
    state = together.state_dict()
    together.close()
    resumed = begun(tmp_path)
    resumed.load_state_dict(state)
    resumed.write_scalars({**dict.fromkeys(FORMULAS, 2.0), "loss": 0.5}, 2)
    resumed.close()
    whole = (tmp_path / "metrics.csv").read_bytes().decode()
    ones, twos = "1.0," * len(FORMULAS), "2.0," * len(FORMULAS)
    assert whole == f"{HEADER}1,{ones}\n2,{twos}0.5\n"


def test_a_formula_in_the_rows_of_an_existing_file_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,=a\n1,=1+1\n2,-0.5\n")
    together = begun(tmp_path)
    together.write_scalars({"=a": 3.0}, 3)
    together.close()
    assert text(tmp_path) == "step,'=a\n1,'=1+1\n2,-0.5\n3,3.0\n"


def write_now(together: Writers, name: str) -> None:
    together.write_scalar(name, 2.0, 2)
    together.flush()


def test_a_link_that_appears_during_the_run_ends_it_and_is_not_followed(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalar("a", 1.0, 1)
    together.flush()
    written = text(tmp_path)
    for name in ("metrics.csv", ".metrics.csv.partial"):
        kept = tmp_path / "kept"
        (tmp_path / "metrics.csv").rename(kept) if name == "metrics.csv" else kept.write_text(written)
        (tmp_path / name).symlink_to(kept)
        with pytest.raises(StorageError) as refused:
            write_now(together, f"new in {name}")
        assert str(refused.value) == (
            f"{tmp_path / name} must be a regular file of this run, not a symbolic link; move it away, or choose "
            "another work_dir"
        )
        assert kept.read_text() == written
        (tmp_path / name).unlink()
        kept.rename(tmp_path / "metrics.csv")
