"""Folders that hookline did not write: TensorBoard's event files, CSV, lines of JSON."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from hookline.errors import ConfigError
from hookline.report.event_files import read_events
from hookline.report.foreign import find_other_runs
from hookline.report.gather import gather, gather_run, is_readable
from hookline.testing import toy_runner


def values_of(data: dict[str, Any]) -> dict[str, list[tuple[int, float | None]]]:
    return {each["name"]: list(zip(each["steps"], each["values"], strict=True)) for each in data["metrics"]}


def test_event_files_of_torch(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("loss/train", 1.0 / (step + 1), step)
            writer.add_scalar("new_style", step, step, new_style=True)
            writer.add_image("picture", np.full((3, 4, 4), step * 100, np.uint8), step)
        writer.add_histogram("weights", np.arange(9.0), 1)
        writer.add_text("note", "text", 1)
    data = gather_run(tmp_path)
    assert values_of(data) == {
        "loss/train": [(0, 1.0), (1, 0.5), (2, 0.333333)],
        "new_style": [(0, 0.0), (1, 1.0), (2, 2.0)],
    }
    assert (data["status"], data["sources"], data["loss"]) == ("foreign", ["TensorBoard"], "loss/train")
    ((images),) = data["images"]
    assert (images["name"], [each["step"] for each in images["items"]]) == ("picture", [0, 1, 2])
    assert images["items"][0]["source"].startswith("data:image/png;base64,iVBOR")


def test_event_files_in_several_folders_are_named_after_them(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        with SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_scalar("epoch_loss", 0.5, 1)
    data = gather_run(tmp_path)
    assert values_of(data) == {"train/epoch_loss": [(1, 0.5)], "validation/epoch_loss": [(1, 0.5)]}
    assert [(each["chart"], each["stage"]) for each in data["metrics"]] == [
        ("epoch_loss", "train"),
        ("epoch_loss", "val"),
    ]


def test_an_event_file_that_is_cut_off_or_damaged_is_read_up_to_there(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(5):
            writer.add_scalar("a", step, step)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    counts = []
    for size in range(0, len(whole), 7):
        file.write_bytes(whole[:size])
        counts.append(len(list(read_events(file))))
    assert counts == sorted(counts)
    assert counts[-1] == 4
    noise = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        for place in noise.integers(0, len(whole), 5):
            damaged[place] = noise.integers(0, 256)
        file.write_bytes(bytes(damaged))
        assert len(list(read_events(file))) <= 5 + 5
    file.write_bytes(struct.pack("<Q", 1 << 60) + b"xxxx")
    assert list(read_events(file)) == []


def test_the_images_of_a_run_with_a_tensorboard_writer(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run", writers=["jsonl", "tensorboard"])
    runner.on("after_val")(lambda runner: runner.writers.write_image("picture", np.zeros((4, 4)), runner.iter))
    runner.train()
    ((images),) = gather_run(tmp_path / "run")["images"]
    assert (images["name"], [each["step"] for each in images["items"]]) == ("picture", [4, 8])


@pytest.mark.parametrize("writer", ["csv", "tensorboard", {"type": "jsonl", "filename": "numbers.jsonl"}])
def test_a_run_without_metrics_jsonl_is_read_from_its_other_writers(writer: Any, tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path / "run", writers=[writer], default_hooks={"logger": {"interval": 1}}).train()
    data = gather_run(tmp_path / "run")
    assert data["status"] == "finished"
    assert [step for step, _ in values_of(data)["train/loss"]] == list(range(1, 9))


def test_a_csv_file_of_lightning(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,train_loss,val_loss\n0,49,2.1,\n0,49,,1.9\n1,99,1.5,\n")
    (tmp_path / "hparams.yaml").write_text("lr: 0.1\n")
    data = gather_run(tmp_path)
    assert values_of(data) == {"train_loss": [(49, 2.1), (99, 1.5)], "val_loss": [(49, 1.9)]}
    assert {each["chart"] for each in data["metrics"]} == {"loss"}
    assert (data["steps"], data["epochs"], data["verdict"]["kind"]) == (99, 1, "healthy")


def test_lines_of_json_in_files_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "vis_data").mkdir()
    (tmp_path / "vis_data" / "scalars.json").write_text('{"loss": 2.0, "step": 1}\n{"loss": 1.0, "step": 2}\n')
    (tmp_path / "vis_data" / "config.json").write_text(json.dumps({"loss": 5}, indent=2))
    assert values_of(gather_run(tmp_path)) == {"loss": [(1, 2.0), (2, 1.0)]}


def test_metrics_jsonl_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"global_step": 3, "eval": {"acc": 0.5}}\nhello\n')
    data = gather_run(tmp_path)
    assert values_of(data) == {"eval/acc": [(3, 0.5)]}
    assert data["status"] == "foreign"
    assert [each["text"] for each in data["warnings"]] == ["metrics.jsonl: 1 lines are not records, from line 2"]


def test_a_folder_with_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert not is_readable(tmp_path)
    with pytest.raises(ConfigError) as refused:
        gather_run(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} is not the folder of a run: it has no metrics.jsonl, no run.log and no checkpoint. It has no "
        "JSONL, CSV or TensorBoard files of another program, either"
    )
    with pytest.raises(ConfigError, match="does not exist"):
        gather_run(tmp_path / "missing")


def test_pipes_and_links_out_of_reach_are_no_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    os.symlink("/dev/zero", tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("step,loss\n1,2\n")
    data = gather_run(tmp_path)
    assert values_of(data) == {"loss": [(1, 2.0)]}
    assert len(data["warnings"]) == 2


def test_zeros_at_the_end_of_an_event_file_end_it(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("a", 1.0, 1)
    (file,) = tmp_path.iterdir()
    with open(file, "ab") as more:
        more.write(bytes(64) + file.read_bytes())
    assert [event.tag for event in read_events(file)] == ["a"]


def test_a_folder_of_runs_of_another_program_is_not_one_run(tmp_path: Path) -> None:
    for name in ("version_0", "version_1/tf/train", "version_1/tf/validation"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "version_0" / "extra").mkdir()
    (tmp_path / "version_0" / "extra" / "more.csv").write_text("step,x\n1,2\n")
    (tmp_path / "notes.txt").touch()
    inside = [tmp_path / "version_0", tmp_path / "version_1" / "tf"]
    assert find_other_runs(tmp_path) == inside
    assert [find_other_runs(run) for run in inside] == [[run] for run in inside]
    (tmp_path / "all.csv").write_text("step,loss\n1,2\n")
    assert find_other_runs(tmp_path) == [tmp_path]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("a/logs", "b/logs", "c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.csv").write_text("step,loss\n1,2\n")
    found = gather(*(tmp_path / name for name in ("a/logs", "b/logs", "c")))
    assert [run["name"] for run in found["runs"]] == ["a/logs", "b/logs", "c"]
    assert found["comparison"]["table"]["columns"][0]["cells"] == ["a/logs", "b/logs", "c"]


def test_a_file_that_is_too_large_for_a_plan_or_a_config_is_not_read(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    (tmp_path / "hooks.json").unlink()
    for name in ("plan.txt", "config.yaml"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(200 << 20)
    tracemalloc.start()
    data = gather_run(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (data["plan"], data["config"]) == (None, [])
    assert most < 50 << 20
