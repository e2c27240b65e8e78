"""TensorboardWriter: events as TensorBoard itself reads them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, LegacyEventFileLoader
from tensorboard.util import tensor_util
from torch import nn

from hookline.errors import ConfigError, StorageError
from hookline.writers import Writers, tensorboard
from hookline.writers.tensorboard import TensorboardWriter

Begin = Callable[[], Writers]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    def start() -> Writers:
        together = Writers([TensorboardWriter()])
        together.begin(tmp_path, "x")
        return together

    return start


def files(folder: Path) -> list[Path]:
    return sorted((folder / "tensorboard").iterdir())


def events(folder: Path, loader: Any = LegacyEventFileLoader) -> list[Any]:
    return [event for file in files(folder) for event in loader(str(file)).Load()]


def steps(folder: Path, tag: str = "a") -> list[int]:
    reader = EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    return [event.step for event in reader.Scalars(tag)]


def test_all_numbers_of_a_step_are_one_event(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_scalars({"a": 0.5, "b": float("nan"), "c": float("inf")}, 1)
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    version, start, first, second = events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (0, start.session_log.START)
    assert [(value.tag, repr(value.simple_value)) for value in first.summary.value] == [
        ("a", "0.5"),
        ("b", "nan"),
        ("c", "inf"),
    ]
    assert (second.step, len(second.summary.value)) == (2, 1)


def test_a_file_is_made_when_there_is_something_to_write(tmp_path: Path, begin: Begin) -> None:
    begin().close()
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_was_cut_in_half_hides_nothing_that_comes_after(tmp_path: Path, begin: Begin) -> None:
    for step in (1, 2, 3):
        together = begin()
        together.write_scalars({"a": 0.5}, 10 * step)
        together.write_scalars({"a": 0.5}, 10 * step + 1)
        together.close()
        newest = files(tmp_path)[-1]
        newest.write_bytes(newest.read_bytes()[:-5])
    assert len(files(tmp_path)) == 3
    assert steps(tmp_path) == [10, 20, 30]


def test_files_are_read_in_the_order_in_which_they_were_written(
    tmp_path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    for step, process in enumerate((9, 10, 8)):  # sorted as text, 10 is before 8 and 9
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        together = begin()
        together.write_scalars({"a": 0.5}, step)
        together.close()
    assert [path.name.split(".")[-2] for path in files(tmp_path)] == ["9", "10", "8"]
    assert steps(tmp_path) == [0, 1, 2]


def test_a_tensorboard_that_is_watching_drops_the_steps_that_are_made_again(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_scalars({"a": 0.5}, 1)
    state = together.state_dict()
    together.write_scalars({"a": 0.5}, 2)
    together.write_scalars({"a": 0.5}, 3)
    together.flush()
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert [event.step for event in reader.Scalars("a")] == [1, 2, 3]
    together.close()
    resumed = begin()
    resumed.load_state_dict(state)
    resumed.write_scalars({"a": 0.25}, 2)
    resumed.close()
    reader.Reload()
    assert [(event.step, event.value) for event in reader.Scalars("a")] == [(1, 0.5), (2, 0.25)]
    assert [(event.step, event.value) for event in fresh(tmp_path)] == [(1, 0.5), (2, 0.25)]


def fresh(folder: Path) -> list[Any]:
    reader = EventAccumulator(str(folder / "tensorboard"), purge_orphaned_data=False)
    reader.Reload()
    return list(reader.Scalars("a"))


def test_files_of_others_are_left_alone(tmp_path: Path, begin: Begin) -> None:
    (tmp_path / "tensorboard").mkdir()
    other = tmp_path / "tensorboard" / "events.out.tfevents.1700000000.host"
    other.write_bytes(b"theirs")
    together = begin()
    together.write_scalars({"a": 0.5}, 1)
    together.load_state_dict({"TensorboardWriter": {"sizes": {"../../x": 0}, "step": 0}})
    together.close()
    assert [path.name for path in files(tmp_path)] == [other.name]
    assert other.read_bytes() == b"theirs"


def test_a_link_in_the_place_of_a_file_is_not_truncated(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_scalar("a", 1.0, 1)
    together.close()
    (file,) = files(tmp_path)
    content = file.read_bytes()
    moved = file.rename(tmp_path / "elsewhere")
    file.symlink_to(moved)
    resumed = begin()
    with pytest.raises(StorageError) as refused:
        resumed.load_state_dict({"TensorboardWriter": {"sizes": {file.name: 3}, "step": 0}})
    assert str(refused.value) == (
        f"{file} must be a regular file of this run, not a symbolic link; move it away, or choose another work_dir"
    )
    assert moved.read_bytes() == content


def test_texts_tables_and_captions_are_what_its_plugins_show(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_text("note", "warm-up *over*", 3)
    together.write_table("confusion", ["true", "pred"], [[1, 2]], 4)
    together.write_image("grid", np.zeros((4, 6), np.uint8), 5, caption="pred 3, true 5")
    together.close()
    values = [value for event in events(tmp_path, EventFileLoader) for value in event.summary.value]
    assert [(value.tag, value.metadata.plugin_data.plugin_name) for value in values] == [
        ("note", "text"),
        ("confusion", "text"),
        ("grid", "images"),
    ]
    assert tensor_util.make_ndarray(values[0].tensor).tolist() == [b"warm-up *over*"]
    assert tensor_util.make_ndarray(values[1].tensor).tolist() == [b"| true | pred |\n| --- | --- |\n| 1 | 2 |"]
    assert values[2].metadata.summary_description == "pred 3, true 5"
    assert tensor_util.make_ndarray(values[2].tensor).tolist()[:2] == [b"6", b"4"]


def test_a_histogram_counts_every_value(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_histogram("weights", torch.linspace(-1, 1, 1000), 3)
    together.close()
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    (event,) = reader.Histograms("weights")
    found = event.histogram_value
    assert (event.step, found.num, sum(found.bucket), found.min, found.max) == (3, 1000, 1000, -1, 1)
    assert len(found.bucket) == len(found.bucket_limit) == 64
    assert found.bucket_limit == sorted(found.bucket_limit)


def test_the_graph_is_torchs_and_tracing_changes_neither_model_nor_run(tmp_path: Path, begin: Begin) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    before = [value.clone() for value in model.state_dict().values()]
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    together = begin()
    together.write_graph("model", model, torch.zeros(3, 4))
    together.close()
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert all(map(torch.equal, before, model.state_dict().values()))
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    operations = {node.op for node in reader.Graph().node}
    assert {"aten::linear", "aten::batch_norm"} <= operations
    assert together.deliveries[0].failures == 0


def test_records_are_framed_as_tensorflow_does(tmp_path: Path, begin: Begin) -> None:
    together = begin()
    together.write_scalars({"a": 0.5}, 1)
    together.close()
    data = files(tmp_path)[0].read_bytes()
    lengths = []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        lengths.append(length)
        data = data[12 + length + 4 :]
    assert len(lengths) == 3


@pytest.mark.parametrize("missing", ["tensorboard", "google_crc32c"])
def test_the_error_for_a_missing_library_says_how_to_install_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError) as refused:
        TensorboardWriter()
    expected = f"TensorboardWriter needs {missing}, which is not installed: pip install 'hookline[tensorboard]'"
    assert str(refused.value) == expected


@pytest.mark.parametrize("folder", ["", "..", ".", "a/b", "/x", "x\0"])
def test_events_stay_in_the_folder_of_the_run(folder: str) -> None:
    with pytest.raises(
        ConfigError, match="^TensorboardWriter: folder must be the name of a folder in the run's folder, not "
    ):
        TensorboardWriter(folder)


def test_numbers_are_encoded_as_protobuf_encodes_them() -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    cases: list[tuple[dict[str, float], int]] = [
        ({"train/loss": 0.25, "epoch": 3}, 120),
        ({"ünïcode/名前": -1e-30, "zero": 0.0, "n" * 300: 1.5}, 1 << 40),
        ({"nan": float("nan"), "inf": float("inf"), "large": 1e300, "small": -1e300, "int": 1 << 60}, -5),
        ({f"name_{number}": number / 7 for number in range(200)}, 0),
    ]
    for scalars, step in cases:
        data = tensorboard.encode_numbers(12.5, step, scalars)
        event = Event(wall_time=12.5, step=step)
        for name, value in scalars.items():
            event.summary.value.add(tag=name, simple_value=value)
        found = Event.FromString(data)
        assert found.SerializeToString() == event.SerializeToString()
        assert len(data) - len(event.SerializeToString()) == (2 if step == 0 else 0)  # protobuf leaves out a zero


def test_events_are_in_order_when_numbers_wait_to_be_encoded(tmp_path: Path) -> None:
    writer = TensorboardWriter()
    writer.begin(tmp_path, "run")
    writer._flushed = float("inf")  # nothing is due
    writer.write_scalars({"a": 1.0}, 1)
    writer.write_text("t", "text", 2)
    writer.write_scalars({"a": 3.0}, 3)
    writer.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    loader = LegacyEventFileLoader(str(file))
    events = [(event.step, event.summary.value[0].tag) for event in loader.Load() if event.summary.value]
    assert events == [(1, "a"), (2, "t"), (3, "a")]
