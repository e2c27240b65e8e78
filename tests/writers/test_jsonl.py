"""JsonlWriter: only complete lines, whatever happened to the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline.errors import StorageError, exit_code_of
from hookline.rundir import runs
from hookline.testing import toy_runner
from hookline.writers import Writers, cutting, jsonl
from hookline.writers.jsonl import JsonlWriter

if TYPE_CHECKING:
    from hookline import Runner


def begun(folder: Path, resuming: bool = False) -> Writers:
    together = Writers([JsonlWriter()])
    together.begin(folder, "x", resuming)
    return together


def text(folder: Path) -> str:
    return (folder / "metrics.jsonl").read_text()


def test_a_record_that_cannot_be_written_takes_no_other_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    together = begun(tmp_path)
    for step, value in ((1, 0.5), (2, object()), (3, 0.25)):
        together.deliveries[0].call("write_scalars", {"a": value}, step)
    assert together.state_dict() == {"JsonlWriter": {"size": 45}}
    together.close()
    assert text(tmp_path) == '{"step": 1, "a": 0.5}\n{"step": 3, "a": 0.25}\n'
    assert caplog.messages == [
        "JsonlWriter failed: TypeError: Object of type object is not JSON serializable; the run continues",
        "JsonlWriter is missing 1 of this run's records: TypeError: Object of type object is not JSON serializable",
    ]


def test_it_continues_after_the_last_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block, half in ((4, '{"step": 9, "epo'), (64, '{"step": 9, "epo'), (4, "")):
        monkeypatch.setattr(cutting, "BLOCK", block)
        for whole in ("", '{"step": 1, "a": 0.5}\n'):
            (tmp_path / "metrics.jsonl").write_text(whole + half)
            together = begun(tmp_path)
            together.write_scalars({"a": 0.25}, 2)
            together.close()
            assert text(tmp_path) == whole + '{"step": 2, "a": 0.25}\n'


def test_half_a_line_behind_the_checkpoint_is_cut_off_with_the_rest(tmp_path: Path) -> None:
    together = begun(tmp_path)
    together.write_scalars({"a": 0.5}, 1)
    state = together.state_dict()
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 3')
    resumed = begun(tmp_path, resuming=True)
    resumed.load_state_dict(state)
    resumed.write_scalars({"a": 0.125}, 2)
    assert resumed.state_dict() == {"JsonlWriter": {"size": 46}}
    resumed.close()
    assert text(tmp_path) == '{"step": 1, "a": 0.5}\n{"step": 2, "a": 0.125}\n'


def test_a_cut_in_the_middle_of_a_line_leaves_whole_ones(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "longer": 0.5}\n{"step": 2, "longer": 0.5}\n')
    resumed = begun(tmp_path, resuming=True)
    resumed.load_state_dict({"JsonlWriter": {"size": 44}})
    resumed.close()
    assert text(tmp_path) == '{"step": 1, "longer": 0.5}\n'


@pytest.mark.parametrize("interval", [1, 100])
def test_a_file_that_is_removed_during_a_run_is_reported_at_the_next_save_or_at_the_end(
    tmp_path: Path, interval: int
) -> None:
    checkpoint = {"interval": interval, "save_last": False}
    runner = toy_runner(max_epochs=3, work_dir=tmp_path, default_hooks={"checkpoint": checkpoint})

    @runner.on("before_train_iter")
    def remove(runner: Runner) -> None:
        if runner.iter == 5:
            (tmp_path / "metrics.jsonl").unlink()

    with pytest.raises(StorageError) as ended:
        runner.train()
    assert str(ended.value) == (
        f"{tmp_path}/metrics.jsonl was deleted, moved or replaced during the run, so its records are lost; put it back "
        "if you have it, and continue with resume=True, or hookline train --resume"
    )
    assert runner.iter == (8 if interval == 1 else 12)
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=True).train()


def test_a_failure_of_the_run_is_not_replaced_by_the_one_of_its_records(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)

    @runner.on("after_train_iter")
    def remove(runner: Runner) -> None:
        (tmp_path / "metrics.jsonl").unlink()
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine\n"):
        runner.train()
    assert "metrics.jsonl was deleted, moved or replaced during the run" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv"])
def test_a_folder_with_the_name_of_a_record_file_ends_a_resume_before_its_first_step(tmp_path: Path, name: str) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path, writers=["jsonl", "csv"]).train()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    resumed = toy_runner(max_epochs=2, work_dir=tmp_path, writers=["jsonl", "csv"], resume=True)
    with pytest.raises(StorageError) as refused:
        resumed.train()
    assert str(refused.value) == (
        f"{tmp_path / name} must be a regular file of this run, not a folder; move it away, or choose another work_dir"
    )
    assert (resumed.iter, exit_code_of(refused.value)) == (0, 5)


def test_records_that_are_gone_are_said_and_the_rest_can_be_read(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    path = tmp_path / "metrics.jsonl"
    first, second, third, _ = path.read_bytes().splitlines(keepends=True)  # validated after the last checkpoint
    path.write_bytes(first + second + third[:-10])
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=True).train()
    said = [line[21:] for line in (tmp_path / "run.log").read_text().splitlines() if " warning: " in line]
    left = len(first + second)
    size = left + len(third)
    assert said == [
        f"warning: {path} has lost records: found {left} of the {size} bytes that were there at the checkpoint"
    ]
    assert runs.load(tmp_path).metrics["step"].tolist() == [4, 4, 8, 12, 12]


def test_a_record_is_json_also_with_nan_in_it() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("before_train")(lambda runner: runner.writers.write_scalars({"a": float("nan"), "b": 1.0}, 0))
    runner.train()
    first = (runner.work_dir / "metrics.jsonl").read_text().splitlines()[0]
    assert first == '{"step": 0, "a": null, "b": 1.0}'


@pytest.mark.parametrize("name", ["", "..", "../x.jsonl", "/x.jsonl", "a/b.jsonl", "x\0.jsonl"])
def test_records_stay_in_the_folder_of_the_run(name: str) -> None:
    from hookline.errors import ConfigError
    from hookline.writers.jsonl import JsonlWriter

    with pytest.raises(
        ConfigError, match="^JsonlWriter: filename must be the name of a file in the run's folder, not "
    ):
        JsonlWriter(name)


def test_a_line_of_plain_numbers_is_the_one_that_json_writes() -> None:
    record = {"epoch": 3, "train/größe %d": 0.1, 'a "b"': -1e-300, "c\n": 1e22, "d": 0, "e": 12345678901234567890.0}
    assert jsonl.line_of(record, 7) == (json.dumps({"step": 7, **record}) + "\n").encode()
    for odd in (float("nan"), float("inf")):
        assert jsonl.line_of({"a": odd, "%": 1.5}, -1) == b'{"step": -1, "a": null, "%": 1.5}\n'
