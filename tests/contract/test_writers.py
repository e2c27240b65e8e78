"""One contract suite over all built-in writers.

Each writer is created from YAML and writes through its real library. That library also reads the result back.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from hookline import Runner, Writer
from hookline.common import rng
from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.plain import check_plain
from hookline.common.yaml_text import parse
from hookline.plan.registry import WRITERS
from hookline.testing import toy_runner
from hookline.writers import Writers
from hookline.writers.mlflow import MlflowWriter
from hookline.writers.wandb import WandbWriter
from tests.faults.runs import digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
NAMES = [name for name in WRITERS if WRITERS.origin(name) == "hookline"]

# Each writer as in a config: by name, or with parameters.
YAML = {
    "console": "{type: console, stream: stdout}",
    "csv": "{type: csv, filename: metrics.csv}",
    "jsonl": "jsonl",
    "memory": "memory",
    "mlflow": "{type: mlflow, experiment: digits, tags: {team: vision}}",
    "tensorboard": "tensorboard",
    "wandb": "{type: wandb, project: digits, mode: offline, tags: [small]}",
}
CONFIG = {"model": {"type": "Net", "hidden": 64}, "train": {"max_epochs": 2, "betas": [0.9, 0.999]}, "seed": 0}
# Writers that support images.
WITH_IMAGES = ("jsonl", "memory", "mlflow", "tensorboard", "wandb")

Records = list[tuple[int, dict[str, float]]]


def create_writer(name: str) -> Writer:
    """Return the writer of a config with only this one."""
    found = plain(parse(f"writers: [{YAML[name]}]", lambda line, column: Mark("test", line, column)))
    assert isinstance(found, dict)
    runner = Runner.from_config(BASE | found)
    (writer,) = runner.writers.all
    return writer


BASE: dict[str, Any] = {
    "model": {"type": "DigitsNet", "width": 4},
    "train": {"dataloader": {"dataset": {"type": "Digits"}}, "step": "cross_entropy", "max_epochs": 1},
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
    "device": "cpu",
}


@pytest.fixture(scope="module", autouse=True)
def _tear_down_wandb() -> Iterator[None]:
    yield
    import wandb

    wandb.teardown()


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(variable)


# ------------------------------------------------------------------------------------- reading back with the library


def read_console(folder: Path, writer: Any, out: str) -> Records:
    found = []
    for line in out.splitlines():
        parts = line.split("  ")
        if " an image of " not in line and not parts[1].startswith("config "):
            values = {name: float(value) for name, value in (part.rsplit(" ", 1) for part in parts[1:])}
            found.append((int(parts[0].removeprefix("step ")), values))
    return found


def read_csv(folder: Path, writer: Any, out: str) -> Records:
    if not (folder / "metrics.csv").exists():
        return []
    with open(folder / "metrics.csv", newline="") as file:
        return [
            (int(row.pop("step")), {name: float(cell) for name, cell in row.items() if cell != ""})
            for row in csv.DictReader(file)
        ]


def read_jsonl(folder: Path, writer: Any, out: str) -> Records:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(record.pop("step"), record) for record in found]


def read_memory(folder: Path, writer: Any, out: str) -> Records:
    return [
        (record["step"], {name: value for name, value in record.items() if name != "step"}) for record in writer.records
    ]


def mlflow_run(folder: Path) -> tuple[Any, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    return client, run


def read_mlflow(folder: Path, writer: Any, out: str) -> Records:
    client, run = mlflow_run(folder)
    found: dict[int, dict[str, float]] = {}
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            assert name not in found.get(metric.step, {}), "this step was written twice"
            found.setdefault(metric.step, {})[name] = metric.value
    return sorted(found.items())


def tensorboard_events(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    files = sorted((folder / "tensorboard").iterdir())
    return [event for file in files for event in LegacyEventFileLoader(str(file)).Load()]


def read_tensorboard(folder: Path, writer: Any, out: str) -> Records:
    found = []
    for event in tensorboard_events(folder):
        values = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
        if values:
            found.append((event.step, values))
    return found


def wandb_logs(folder: Path, writer: Any) -> list[Path]:
    from hookline.writers.wandb_log import logs_of, wait_for_end

    found = logs_of(folder / "wandb", writer.id)
    for log in found:
        wait_for_end(log)
    return found


def read_wandb(folder: Path, writer: Any, out: str) -> Records:
    from hookline.writers.wandb_log import history

    found = []
    for path in wandb_logs(folder, writer):
        for step, row in history(path):
            values = {name: value for name, value in row.items() if name[0] != "_" and not isinstance(value, dict)}
            found.append((step, values))
    return [(step, values) for step, values in found if values]


READ: dict[str, Callable[[Path, Any, str], Records]] = {
    "console": read_console,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "memory": read_memory,
    "mlflow": read_mlflow,
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
}


def image_of(name: str, folder: Path, writer: Any) -> NDArray[np.uint8]:
    """Return the one image that a writer has kept."""
    from PIL import Image

    if name == "memory":
        ((_, image, _, _),) = writer.images
        return np.asarray(image)
    if name == "jsonl":
        (line,) = (folder / "images.jsonl").read_text().splitlines()
        file: Any = io.BytesIO(base64.b64decode(json.loads(line)["png"]))
    elif name == "mlflow":
        client, run = mlflow_run(folder)
        file = client.download_artifacts(run.info.run_id, "images/val/grid/00000007.png")
    elif name == "tensorboard":
        values = [each for event in tensorboard_events(folder) for each in event.summary.value]
        (found,) = [each.image for each in values if each.HasField("image")]
        file = io.BytesIO(found.encoded_image_string)
    else:
        (log,) = wandb_logs(folder, writer)
        (file,) = (log.parent / "files" / "media" / "images").rglob("*.png")
    with Image.open(file) as image:
        return np.asarray(image)


def config_of(name: str, folder: Path, writer: Any, out: str) -> Any:
    """Return the config that a writer has kept."""
    if name == "memory":
        ((_, config, _),) = writer.configs
        return config
    if name == "console":
        return [line.split("config ")[1] for line in out.splitlines() if "  config " in line]
    if name == "mlflow":
        client, run = mlflow_run(folder)
        with open(client.download_artifacts(run.info.run_id, "config.json")) as file:
            return run.data.params, json.load(file)
    if name == "tensorboard":
        values = [each for event in tensorboard_events(folder) for each in event.summary.value if each.tag == "config"]
        (text,) = [each.tensor.string_val[0].decode() for each in values]
        return json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
    if name == "wandb":
        from hookline.writers.wandb_log import records

        (log,) = wandb_logs(folder, writer)
        updates = [update for record in records(log) for update in record.config.update]
        return {update.key: json.loads(update.value_json) for update in updates if update.key in CONFIG}
    return plain(parse((folder / "config.yaml").read_text(), lambda line, column: Mark("test", line, column)))


FLAT = {
    "model.type": "Net",
    "model.hidden": "64",
    "train.max_epochs": "2",
    "train.betas.0": "0.9",
    "train.betas.1": "0.999",
    "seed": "0",
}
CONFIG_READ = dict.fromkeys(NAMES, CONFIG) | {
    "console": [f"{path}={value}" for path, value in FLAT.items()],
    "mlflow": (FLAT, CONFIG),
}


@pytest.fixture(scope="module", autouse=True)
def _database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let MLflow create a database, only once because that takes seconds."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    DATABASE.append(path)
    yield
    DATABASE.clear()


DATABASE: list[Path] = []


def own_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return hookline's own warnings."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "hookline" and record.levelno >= logging.WARNING
    ]


def begin_writing(writer: Writer, folder: Path) -> Writers:
    folder.mkdir(exist_ok=True)
    if "mlflow.db" in writer.files():
        shutil.copy(DATABASE[0], folder)
    together = Writers([writer])
    together.begin(folder, "digits")
    return together


# ------------------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_numbers_are_read_back_in_order(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = create_writer(name)
    together = begin_writing(writer, tmp_path / "run")
    wanted: Records = [(step, {"train/loss": 1 / 2**step, "train/lr": 0.5}) for step in range(1, 51)]
    for step, scalars in wanted:
        together.write_scalars(scalars, step)
    together.close()
    found = READ[name](tmp_path / "run", writer, capsys.readouterr().out)
    if name == "console":  # it shows four digits
        wanted = [(step, {name: float(shown(value)) for name, value in values.items()}) for step, values in wanted]
    assert found == wanted


def shown(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-3 else f"{value:.2e}"


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_an_image_is_read_back_pixel_by_pixel(name: str, tmp_path: Path) -> None:
    wanted = np.random.default_rng(0).integers(0, 256, (12, 17, 3), np.uint8)
    writer = create_writer(name)
    together = begin_writing(writer, tmp_path / "run")
    together.write_image("val/grid", torch.from_numpy(wanted).permute(2, 0, 1), 7, caption="pred 3 | true 5")
    together.close()
    assert image_of(name, tmp_path / "run", writer).tolist() == wanted.tolist()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_IMAGES])
def test_a_writer_without_images_still_writes_all_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    writer = create_writer(name)
    together = begin_writing(writer, tmp_path / "run")
    together.write_scalars({"a": 0.5}, 1)
    together.write_image("val/grid", np.zeros((2, 2)), 1)
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    found = READ[name](tmp_path / "run", writer, capsys.readouterr().out)
    assert found == [(1, {"a": 0.5}), (2, {"a": 0.25})]
    assert own_warnings(caplog) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_config_of_a_run_is_written(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    begin_writing(writer, folder).close()
    runner = toy_runner(max_iters=2, writers=[writer], config=CONFIG, work_dir=folder)
    runner.train()
    assert config_of(name, folder, writer, capsys.readouterr().out) == CONFIG_READ[name]


@pytest.mark.parametrize("name", NAMES)
def test_it_accepts_every_kind_of_record(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    together = begin_writing(create_writer(name), tmp_path / "run")
    together.write_scalar("a", 0.5, 1)
    together.write_histogram("weights", torch.randn(100), 1)
    together.write_text("note", "warm-up is <over>", 1)
    together.write_table("confusion", ["true", "pred"], [[1, 2], [3, "x"]], 1)
    together.write_graph("model", torch.nn.Linear(2, 1), torch.zeros(1, 2))
    together.flush()
    together.close()
    assert own_warnings(caplog) == []
    assert [(each.failures, each.missing) for each in together.deliveries] == [(0, 0)]


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_no_random_numbers(name: str, tmp_path: Path) -> None:
    writer = create_writer(name)
    before = rng.state()
    together = begin_writing(writer, tmp_path / "run")
    together.write_config("config", CONFIG, 0)
    together.write_scalars({"a": 0.5}, 1)
    together.write_image("b", np.zeros((2, 2)), 1)
    together.write_histogram("c", [1.0, 2.0], 1)
    together.write_table("d", ["e"], [[1]], 1)
    together.close()
    assert digest(rng.state()) == digest(before)


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_closed_twice_and_begun_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    writer.close()
    writer.flush()
    together = begin_writing(writer, folder)
    together.write_scalars({"a": 0.5}, 1)
    together.close()
    together.close()
    writer.close()
    together.begin(folder, "digits")
    together.begin(folder, "digits")
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    assert READ[name](folder, writer, capsys.readouterr().out) == [(1, {"a": 0.5}), (2, {"a": 0.25})]
    assert own_warnings(caplog) == []


FILES: dict[str, set[str]] = {
    "console": set(),
    "csv": {"metrics.csv"},
    "jsonl": {"metrics.jsonl", "images.jsonl"},
    "memory": set(),
    "mlflow": {"mlflow.db", "mlflow"},
    "tensorboard": {"tensorboard"},
    "wandb": {"wandb"},
}


@pytest.mark.parametrize("name", NAMES)
def test_it_creates_only_the_files_that_it_declares(name: str, tmp_path: Path) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    together = begin_writing(writer, folder)
    together.write_scalars({"a": 0.5}, 1)
    together.write_image("b", np.zeros((2, 2)), 1)
    together.close()
    created = {path.name for path in folder.iterdir()}
    assert created == FILES[name]
    assert created <= set(writer.files())


@pytest.mark.parametrize("name", NAMES)
def test_its_state_is_plain_data_and_restores_its_position(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    together = begin_writing(writer, folder)
    together.write_scalars({"a": 0.5}, 1)
    together.write_scalars({"a": 0.25}, 2)
    together.flush()
    state = together.state_dict()
    check_plain(state, "the state")
    assert json.loads(json.dumps(state)) == state
    assert bool(state) == (name != "console")
    together.write_scalars({"a": 0.125, "b": 1.0}, 3)
    together.close()
    other = writer if name == "memory" else create_writer(name)
    continued = Writers([other])
    continued.begin(folder, "digits", resuming=True)
    continued.write_scalars({"a": 7.0}, 2)  # by a hook, before the checkpoint is restored
    continued.load_state_dict(state)
    for step in (3, 4):
        continued.write_scalars({"a": 0.125, "b": 1.0}, step)
    continued.close()
    found = READ[name](folder, other, capsys.readouterr().out)
    again = [(3, {"a": 0.125, "b": 1.0})] if name == "console" else []  # lines on a screen cannot be removed
    rest = [(step, {"a": 0.125, "b": 1.0}) for step in (3, 4)]
    assert found == [(1, {"a": 0.5}), (2, {"a": 0.25}), *again, *rest]


# ----------------------------------------------------------------------------------------------------- failures


class Broken(io.StringIO):
    """A pipe without a reader, until `broken` is set to False."""

    broken = True

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def obstruct(name: str, folder: Path, writer: Any) -> Callable[[], None]:
    """Make a writer fail; return the function that makes it work again."""
    if name == "console":
        writer.stream = Broken()
        return lambda: setattr(writer.stream, "broken", False)
    obstacle: Path = folder / next(iter(writer.files()))
    if name == "tensorboard":
        obstacle.write_bytes(b"")
        return obstacle.unlink
    obstacle.mkdir()
    return obstacle.rmdir


# Lists in memory cannot fail, and in W&B everything that can fail happens in its own process.
CAN_FAIL = [name for name in NAMES if name not in ("memory", "wandb")]
WARNINGS = {
    "console": "ConsoleWriter failed: BrokenPipeError: [Errno 32] Broken pipe; will try again, and the run continues",
    "csv": "CsvWriter failed: IsADirectoryError: [Errno 21] Is a directory: '{}/metrics.csv'; will try again, "
    "and the run continues",
    "jsonl": "JsonlWriter#2 failed: IsADirectoryError: [Errno 21] Is a directory: '{}/metrics.jsonl'; will try again, "
    "and the run continues",
    "tensorboard": "{}/tensorboard cannot be written: File exists; will try again",
}
MISSING = {
    "console": "ConsoleWriter is missing 6 of this run's records: BrokenPipeError: [Errno 32] Broken pipe",
    "csv": "CsvWriter is missing 6 of this run's records: IsADirectoryError: [Errno 21] Is a directory: "
    "'{}/metrics.csv'",
    "jsonl": "JsonlWriter#2 is missing 6 of this run's records: IsADirectoryError: [Errno 21] Is a directory: "
    "'{}/metrics.jsonl'",
    "tensorboard": "{}/tensorboard is missing its last 6 records",
}


def obstructed_run(name: str, folder: Path, writer: Writer, recovers: bool) -> list[str]:
    """Train a run of six records in which a writer cannot write, or only at the end; return the warnings."""
    whole = {"type": "jsonl", "filename": "whole.jsonl"}
    runner = toy_runner(
        max_iters=6,
        val=None,
        writers=[whole, writer],
        default_hooks={"logger": {"interval": 1}, "checkpoint": None},
        work_dir=folder,
    )
    begin = runner.writers.begin

    def begin_with_obstacle(work_dir: Path, *args: Any) -> None:
        remove_obstacle = obstruct(name, work_dir, writer)
        if recovers:
            runner.on("after_run")(remove_obstacle)
        begin(work_dir, *args)

    runner.writers.begin = begin_with_obstacle  # type: ignore[method-assign, assignment]
    runner.train()
    assert runner.iter == 6
    steps = [json.loads(line)["step"] for line in (folder / "whole.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    lines = [line[21:] for line in (folder / "run.log").read_text().splitlines()]
    return [line.removeprefix("warning: ").replace(str(folder), "{}") for line in lines if line.startswith("warning: ")]


@pytest.mark.parametrize("name", [name for name in CAN_FAIL if name != "mlflow"])
def test_a_run_continues_if_the_writer_fails_and_the_end_reports_what_is_missing(name: str, tmp_path: Path) -> None:
    assert obstructed_run(name, tmp_path / "run", create_writer(name), recovers=False) == [
        WARNINGS[name],
        MISSING[name],
    ]


def test_a_run_continues_if_the_mlflow_server_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    writer = MlflowWriter(tracking_uri=address)  # the port is closed now
    runner = toy_runner(
        max_iters=6, val=None, writers=["jsonl", writer], default_hooks={"logger": {"interval": 1}}, work_dir=tmp_path
    )
    runner.train()
    assert runner.iter == 6
    warnings = [line[21:] for line in (tmp_path / "run.log").read_text().splitlines() if " warning: " in line]
    first, last = warnings
    assert first.startswith(f"warning: MlflowWriter failed: MlflowException: API request to {address}/api/2.0/mlflow/")
    assert first.endswith("; will try again, and the run continues")
    assert last.startswith("warning: MlflowWriter is missing 6 of this run's records: MlflowException: API request to ")


@pytest.mark.parametrize("name", CAN_FAIL)
def test_nothing_is_missing_once_it_can_write_again(name: str, tmp_path: Path) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    warnings = obstructed_run(name, folder, writer, recovers=True)
    assert warnings == [WARNINGS[name]] if name in WARNINGS else warnings == []
    out = writer.stream.getvalue() if name == "console" else ""  # type: ignore[attr-defined]
    assert [step for step, _ in READ[name](folder, writer, out)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["csv", "jsonl", "tensorboard"])
def test_a_temporarily_full_disk_loses_nothing(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    together = begin_writing(writer, folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step in range(1, 201):
        if step == 50:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
        try:
            together.write_scalars({"train/loss": 1 / step, "train/lr": 0.5}, step)
            together.flush()
        finally:
            if step >= 150:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    state = together.state_dict()
    together.close()
    assert [step for step, _ in READ[name](folder, writer, "")] == list(range(1, 201))
    assert [message.partition(" cannot")[2] for message in own_warnings(caplog)] == [
        " be written: File too large; will try again"
    ]
    if name == "tensorboard":
        ((file, size),) = state["TensorboardWriter"]["sizes"].items()
        assert (folder / "tensorboard" / file).stat().st_size == size


@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_numbers_that_a_full_disk_rejected_survive_a_kill(name: str, tmp_path: Path) -> None:
    writer, folder = create_writer(name), tmp_path / "run"
    together = begin_writing(writer, folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1001, limits[1]))  # in the middle of a record
    try:
        for step in range(1, 101):
            together.write_scalars({"train/loss": 1 / step, "train/lr": 0.5}, step)
        state = together.state_dict()
        together.write_scalars({"train/loss": 7.0}, 101)
        together.close()  # the waiting records are lost, as after a kill
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (saved,) = state.values()
    check_plain(saved, "the state")
    assert 0 < len(saved["waiting"]) < 100
    resumed = create_writer(name)
    continued = Writers([resumed])
    continued.begin(folder, "digits", resuming=True)
    continued.load_state_dict(state)
    continued.write_scalars({"train/loss": 0.25}, 101)
    continued.close()
    found = READ[name](folder, resumed, "")
    assert [step for step, _ in found] == list(range(1, 102))
    assert found[-1] == (101, {"train/loss": 0.25})


@pytest.mark.parametrize("name", ["csv", "jsonl", "memory", "tensorboard", "wandb"])
def test_if_it_could_not_begin_before_a_checkpoint_later_records_are_dropped_on_resume(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("away")

    writer, folder = create_writer(name), tmp_path / "run"
    method = "_start" if name == "wandb" else "begin"
    with monkeypatch.context() as patched:
        patched.setattr(type(writer), method, fail)
        together = begin_writing(writer, folder)
        together.write_scalars({"a": 0.5}, 1)
        state = together.state_dict()
    (saved,) = state.values()
    assert saved["waiting"] == [[{"a": 0.5}, 1]]
    monkeypatch.setattr("hookline.writers.delivery.PAUSE", 0.0)
    together.deliveries[0]._next_try = 0.0
    together.write_scalars({"a": 0.25}, 2)
    together.close()
    resumed = writer if name == "memory" else create_writer(name)
    continued = Writers([resumed])
    continued.begin(folder, "digits", resuming=True)
    continued.load_state_dict(state)
    for step in (2, 3):
        continued.write_scalars({"a": 0.25}, step)
    continued.close()
    assert READ[name](folder, resumed, "") == [(1, {"a": 0.5}), (2, {"a": 0.25}), (3, {"a": 0.25})]
    if isinstance(writer, WandbWriter):
        assert (resumed.id, writer.id) == (saved["id"],) * 2  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------- killed and resumed

KILLED = """
import os, signal, sys
from hookline.testing import toy_runner
from tests.contract.test_writers import run_of_all
run_of_all(sys.argv[1], resume=sys.argv[2] == "resume", killed_at=int(sys.argv[3])).train()
"""
RESUMED = ("csv", "jsonl", "mlflow", "tensorboard", "wandb")


def run_of_all(folder: str, resume: bool, killed_at: int = 0) -> Runner:
    """Return a run of six epochs of ten batches, with a record every two batches and a checkpoint per epoch."""
    runner = toy_runner(
        max_epochs=6,
        batches=10,
        work_dir=folder,
        writers=[create_writer(name) for name in RESUMED],
        default_hooks={"logger": {"interval": 2}},
        resume=resume,
        config=CONFIG,
    )

    @runner.on("after_train_iter", priority=100)
    def kill(runner: Runner) -> None:
        if runner.iter == killed_at != 0:
            runner.writers.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return runner


def environment() -> dict[str, str]:
    """Return the environment without W&B's variables: with them, child processes would share its service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}


@pytest.fixture(scope="module")
def killed_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a run that was killed twice, and its writers."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    for resume, killed_at in (("fresh", 17), ("resume", 37)):
        command = [sys.executable, "-c", KILLED, str(folder), resume, str(killed_at)]
        child = subprocess.run(command, cwd=ROOT, env=environment(), check=False)
        assert child.returncode == -signal.SIGKILL
    runner = run_of_all(str(folder), resume=True)
    runner.train()
    return folder, dict(zip(RESUMED, runner.writers.all, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", RESUMED)
def test_a_run_killed_twice_has_every_step_once_and_in_order(
    name: str, killed_twice: tuple[Path, dict[str, Any]]
) -> None:
    folder, writers = killed_twice
    found = READ[name](folder, writers[name], "")
    trained = [step for step, values in found if "train/loss" in values]
    validated = [step for step, values in found if "val/accuracy" in values]
    assert trained == list(range(2, 61, 2))
    assert validated == list(range(10, 61, 10))


def test_tensorboards_own_reader_shows_one_curve(killed_twice: tuple[Path, dict[str, Any]]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ServersAccumulator

    folder, _ = killed_twice
    assert len(list((folder / "tensorboard").iterdir())) == 3
    reader = EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    assert [event.step for event in reader.Scalars("train/loss")] == list(range(2, 61, 2))
    servers = ServersAccumulator(str(folder / "tensorboard"))
    servers.Reload()
    assert [event.step for event in servers.Tensors("val/accuracy")] == list(range(10, 61, 10))


def test_all_wandb_logs_have_the_same_run_id(killed_twice: tuple[Path, dict[str, Any]]) -> None:
    from hookline.writers.wandb_log import records

    folder, writers = killed_twice
    logs = list((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(logs) == 3
    runs = [record.run for log in logs for record in records(log) if record.WhichOneof("record_type") == "run"]
    assert {(run.run_id, run.project, run.display_name) for run in runs} == {(writers["wandb"].id, "digits", "run")}


def test_there_is_one_mlflow_run_and_it_is_finished(killed_twice: tuple[Path, dict[str, Any]]) -> None:
    folder, writers = killed_twice
    _, run = mlflow_run(folder)
    assert (run.info.run_id, run.info.status, run.info.run_name) == (writers["mlflow"].run_id, "FINISHED", "run")
    assert run.data.tags["team"] == "vision"
