"""MlflowWriter: one MLflow run, whatever happens to the process."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mlflow.tracking import MlflowClient

from hookline.testing import toy_runner
from hookline.writers import Writers
from hookline.writers.mlflow import MAX_PARAMS, VALUE_LENGTH, MlflowWriter, sqlite_uri

if TYPE_CHECKING:
    from hookline import Runner
    from hookline.writers.base import Outcome


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database that MLflow created, only once because that takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "tracking.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, database: Path) -> str:
    (tmp_path / "tracking.db").write_bytes(database.read_bytes())
    return f"sqlite:///{tmp_path / 'tracking.db'}"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the default place of MLflow's files


def begun(writer: MlflowWriter, resuming: bool = False) -> Writers:
    together = Writers([writer])
    together.begin(Path(), "x", resuming)
    return together


def sole_run(uri: str) -> tuple[Any, Any]:
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("hookline").experiment_id])
    return client, run


def steps(uri: str, name: str = "a") -> list[int]:
    client, run = sole_run(uri)
    return [metric.step for metric in client.get_metric_history(run.info.run_id, name)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "hookline" and record.levelno >= logging.WARNING
    ]


def test_a_run_is_found_again_also_when_it_was_not_made_yet_as_the_checkpoint_was_saved(uri: str) -> None:
    writer = MlflowWriter(uri)
    together = begun(writer)
    state = together.state_dict()
    assert state["MlflowWriter"]["run_id"] == ""
    together.write_scalars({"a": 1.0}, 1)
    together.close()
    resumed = MlflowWriter(uri)
    together = begun(resumed, resuming=True)
    together.load_state_dict(state)
    for step in (1, 2):
        together.write_scalars({"a": 1.0}, step)
    together.close()
    assert resumed.run_id == writer.run_id
    assert steps(uri) == [1, 2]


def test_more_numbers_than_a_call_takes_are_several_calls(uri: str) -> None:
    together = begun(MlflowWriter(uri))
    together.write_scalars({f"m{number}": float(number) for number in range(2500)}, 1)
    together.close()
    _, run = sole_run(uri)
    assert run.data.metrics == {f"m{number}": float(number) for number in range(2500)}


def test_a_call_that_failed_in_the_middle_writes_nothing_twice(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    log_batch = MlflowClient.log_batch

    def failing(self: Any, run_id: str, metrics: Any = (), **others: Any) -> Any:
        calls.append(len(metrics))
        if len(calls) == 2:
            raise ConnectionError("away")
        return log_batch(self, run_id, metrics=metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", failing)
    together = begun(MlflowWriter(uri))
    together.write_scalars({f"m{number}": 1.0 for number in range(1500)}, 1)
    together.close()
    assert calls == [1000, 500, 500]
    client, run = sole_run(uri)
    counts = {len(client.get_metric_history(run.info.run_id, f"m{number}")) for number in (0, 999, 1000, 1499)}
    assert counts == {1}


def test_params_are_bounded_and_keep_their_first_value(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    config = {"lr": 0.1, "text": "x" * 1000, "many": list(range(2 * MAX_PARAMS))}
    writer = MlflowWriter(uri)
    together = begun(writer)
    together.write_config("config", config, 0)
    together.write_config("config", config | {"lr": 0.2}, 0)
    together.write_config("data", {"seed": 3}, 0)
    together.close()
    client, run = sole_run(uri)
    assert run.data.params["lr"] == "0.1"
    assert run.data.params["text"] == "x" * VALUE_LENGTH
    assert run.data.params["data.seed"] == "3"
    with open(client.download_artifacts(run.info.run_id, "config.json")) as file:
        assert json.load(file) == config | {"lr": 0.2}
    assert said(caplog) == ["MLflow cannot change a param; these keep their first value: lr"]


def test_names_that_it_does_not_take_are_changed(uri: str) -> None:
    together = begun(MlflowWriter(uri))
    together.write_scalars({"val/F1 (macro)": 0.5, "../a//b": 0.25, "größe": 1.0}, 1)
    together.write_text("../../../outside", "text", 1)
    together.close()
    client, run = sole_run(uri)
    assert run.data.metrics == {"val/F1 _macro_": 0.5, "a/b": 0.25, "größe": 1.0}
    assert [file.path for file in client.list_artifacts(run.info.run_id, "texts/outside")] == [
        "texts/outside/00000001.txt"
    ]


def test_tables_and_captions_are_files(uri: str) -> None:
    together = begun(MlflowWriter(uri))
    together.write_table("confusion", ["true", "pred"], [[1, 2], ["a", None]], 3)
    together.write_image("grid", np.zeros((2, 2)), 3, caption="pred 1")
    together.close()
    client, run = sole_run(uri)

    def text(path: str) -> str:
        return Path(client.download_artifacts(run.info.run_id, path)).read_text()

    assert json.loads(text("tables/confusion/00000003.json")) == {
        "columns": ["true", "pred"],
        "data": [[1, 2], ["a", None]],
    }
    assert text("images/grid/00000003.txt") == "pred 1"


@pytest.mark.parametrize("folder", ["lr?0.1", "100%25 #1"])
def test_the_local_database_stays_in_the_folder_of_the_run_whatever_it_is_called(
    folder: str, tmp_path: Path, database: Path
) -> None:
    work_dir = tmp_path / "runs" / folder
    work_dir.mkdir(parents=True)
    (work_dir / "mlflow.db").write_bytes(database.read_bytes())
    together = Writers([MlflowWriter()])
    together.begin(work_dir, "x")
    together.write_scalars({"a": 1.0}, 1)
    together.write_text("b", "text", 1)
    together.close()
    assert os.listdir(tmp_path / "runs") == [folder]
    assert sorted(os.listdir(work_dir)) == ["mlflow", "mlflow.db"]
    client, run = sole_run(sqlite_uri(work_dir / "mlflow.db"))
    assert run.data.metrics == {"a": 1.0}
    assert Path(client.download_artifacts(run.info.run_id, "texts/b/00000001.txt")).read_text() == "text"


def test_the_local_database_appears_complete_and_leftovers_of_a_kill_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    search = MlflowClient.search_experiments

    def seeing(self: Any) -> Any:
        seen.append(os.listdir(tmp_path))
        return search(self)

    monkeypatch.setattr(MlflowClient, "search_experiments", seeing)
    (tmp_path / "mlflow.db.new").write_text("half a table")
    together = begun(MlflowWriter())
    together.write_scalars({"a": 1.0}, 1)
    together.close()
    assert seen == [["mlflow.db.new"]]
    assert os.listdir(tmp_path) == ["mlflow.db"]
    assert steps(sqlite_uri(tmp_path / "mlflow.db")) == [1]


@pytest.mark.parametrize(("outcome", "status"), [("failed", "FAILED"), ("killed", "KILLED"), ("finished", "FINISHED")])
def test_a_run_has_its_final_status_until_it_is_resumed(uri: str, outcome: Outcome, status: str) -> None:
    together = begun(MlflowWriter(uri))
    together.write_scalars({"a": 1.0}, 1)
    state = together.state_dict()
    together.close(outcome)
    assert sole_run(uri)[1].info.status == status
    together = begun(MlflowWriter(uri), resuming=True)
    together.load_state_dict(state)
    together.write_scalars({"a": 1.0}, 2)
    together.flush()
    assert sole_run(uri)[1].info.status == "RUNNING"
    together.close()
    assert sole_run(uri)[1].info.status == "FINISHED"


def test_a_server_that_is_away_draws_no_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    writer = MlflowWriter(address)  # the port is closed now
    writer.begin(tmp_path, "x")
    before = random.getstate()
    with pytest.raises(Exception, match="Max retries exceeded"):
        writer.write_scalar("a", 1.0, 1)
    assert random.getstate() == before


def test_a_test_of_a_checkpoint_in_another_process_is_part_of_the_same_run(uri: str, tmp_path: Path) -> None:
    def runner(**parts: Any) -> Runner:
        return toy_runner(work_dir=tmp_path / "run", max_epochs=1, writers=[MlflowWriter(uri)], **parts)

    runner().train()
    runner(resume=True).test()
    assert (steps(uri, "train/loss"), steps(uri, "test/accuracy")) == ([4], [4])


def test_an_unreachable_server_is_reported_with_the_reason_during_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        writer = MlflowWriter(f"http://127.0.0.1:{nobody.getsockname()[1]}")
    together = begun(writer)
    together.write_scalars({"a": 1.0}, 1)
    delivery = together.deliveries[0]
    while not delivery.failures:  # the thread reports it at once, not after minutes
        time.sleep(0.01)
    together.close()
    first, last = said(caplog)
    assert re.fullmatch(
        "MlflowWriter failed: MlflowException: .*Connection refused.*; will try again, and the run .*", first
    )
    assert last.startswith("MlflowWriter is missing 1 of this run's records: ")
