"""WandbWriter: online with a local server, offline, and without a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wandb

from hookline.errors import ConfigError
from hookline.testing import toy_runner
from hookline.writers import Writers, wandb_log
from hookline.writers import wandb as writer_of_wandb
from hookline.writers.wandb import WandbWriter
from hookline.writers.wandb_log import history, last_steps, logs_of, records, wait_for_end
from tests.writers.wandb_server import WandbServer, serving

if TYPE_CHECKING:
    from hookline.writers.base import Outcome


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the API key, the settings and the service process of other runs."""
    for variable in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    wandb.teardown()
    yield
    wandb.teardown()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    with serving() as found:
        monkeypatch.setenv("WANDB_BASE_URL", found.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        yield found
        wandb.teardown()


def begun(folder: Path, writer: WandbWriter) -> Writers:
    together = Writers([writer])
    together.begin(folder, "x")
    return together


def rows(folder: Path, writer: WandbWriter) -> list[tuple[int, dict[str, Any]]]:
    assert writer.id is not None
    found = []
    for log in logs_of(folder / "wandb", writer.id):
        wait_for_end(log)
        found += [(step, {k: v for k, v in row.items() if k[0] != "_"}) for step, row in history(log)]
    return found


def test_online_a_server_gets_every_row_and_a_resumed_run_is_the_same_by_its_id(
    tmp_path: Path, server: WandbServer, capfd: pytest.CaptureFixture[str]
) -> None:
    first = WandbWriter(project="digits", mode="online")
    together = begun(tmp_path, first)
    together.write_config("config", {"lr": 0.1}, 0)
    for step in (1, 2):
        together.write_scalars({"loss": 1 / step}, step)
    state = together.state_dict()
    together.write_scalars({"loss": 1 / 3}, 3)
    together.close()
    resumed = WandbWriter(project="digits", mode="online")
    together = Writers([resumed])
    together.begin(tmp_path, "x", resuming=True)
    together.load_state_dict(state)
    for step in (3, 4):
        together.write_scalars({"loss": 1 / step}, step)
    together.close()
    wandb.teardown()
    assert [(row["_step"], row["loss"]) for row in server.rows] == [(step, 1 / step) for step in (1, 2, 3, 4)]
    assert resumed.id == first.id
    assert server.runs_named("RunResumeStatus") == [first.id, first.id]
    assert set(server.runs_named("UpsertBucket")) == {first.id}
    upserts = [variables for name, variables in server.operations if name == "UpsertBucket"]
    assert upserts[0]["project"] == "digits"
    assert any(json.loads(sent["config"]).get("lr") == {"value": 0.1} for sent in upserts if sent.get("config"))
    assert capfd.readouterr() == ("", "")


def test_offline_nothing_is_sent_to_anybody(tmp_path: Path, server: WandbServer) -> None:
    script = """
import sys
from pathlib import Path
from hookline.writers import Writers
from hookline.writers.wandb import WandbWriter
together = Writers([WandbWriter(mode="offline")])
together.begin(Path(sys.argv[1]), "x")
together.write_scalars({"loss": 1.0}, 1)
together.close()
"""  # in a child process, because the library sends reports about itself when a process ends
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1
    assert server.requests == []


def test_when_the_server_does_not_answer_it_is_written_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setattr(writer_of_wandb, "PATIENCE", 1)
    writer = WandbWriter(mode="online")
    runner = toy_runner(
        max_iters=2, val=None, writers=["jsonl", writer], default_hooks={"logger": {"interval": 1}}, work_dir=tmp_path
    )
    runner.train()
    assert [step for step, row in rows(tmp_path, writer) if "train/loss" in row] == [1, 2]
    (warning,) = [line for line in (tmp_path / "run.log").read_text().splitlines() if " warning: " in line]
    assert " warning: W&B does not answer: " in warning
    assert warning.endswith("; writing the run offline; upload it later with 'wandb sync'")


def test_without_a_key_the_run_is_refused_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = toy_runner(writers=[WandbWriter(mode="online")], config={"a": 1}, work_dir=tmp_path / "run")
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value).startswith("W&B cannot be used: ")
    assert str(refused.value).endswith("; log in with 'wandb login', or set mode: offline")
    assert runner.iter == 0


def test_a_record_of_an_earlier_step_stands_at_the_current_one_with_its_own_beside_it(tmp_path: Path) -> None:
    writer = WandbWriter(mode="offline")
    together = begun(tmp_path, writer)
    together.write_scalars({"train/loss": 0.5}, 100)
    together.write_scalars({"val/accuracy": 0.75, "epoch": 1}, 1)
    together.write_scalars({"train/loss": 0.25}, 110)
    state = together.state_dict()
    together.close()
    assert rows(tmp_path, writer) == [
        (100, {"train/loss": 0.5, "val/accuracy": 0.75, "epoch": 1, "val/step": 1, "step": 1}),
        (110, {"train/loss": 0.25}),
    ]
    found = last_steps(tmp_path / "wandb", str(writer.id))
    assert (found["train/loss"], found["val/accuracy"], found["epoch"]) == (110, 1, 1)
    resumed = WandbWriter(mode="offline")
    together = Writers([resumed])
    together.begin(tmp_path, "x", resuming=True)
    together.load_state_dict(state)
    together.write_scalars({"val/accuracy": 0.75}, 1)
    together.write_scalars({"val/accuracy": 0.875}, 2)
    together.close()
    assert rows(tmp_path, resumed)[2:] == [(110, {"val/accuracy": 0.875, "val/step": 2})]


def test_rows_that_it_has_surely_written_are_not_saved_with_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WandbWriter(mode="offline", id="mine")
    together = begun(tmp_path, writer)
    for step in (1, 2, 3):
        together.write_scalars({"a": 0.5}, step)
    assert [step for step, _ in writer.state_dict()["rows"]] == [1, 2, 3]
    monkeypatch.setattr(writer_of_wandb, "SETTLED", -1.0)
    assert writer.state_dict() == {"id": "mine", "step": 3, "rows": [[3, {"a": 0.5}]]}
    together.close()


def test_its_log_is_read_over_many_blocks_and_up_to_where_it_was_cut(tmp_path: Path) -> None:
    writer = WandbWriter(mode="offline")
    together = begun(tmp_path, writer)
    for step in range(3000):
        together.write_scalars({"a": float(step), "some/longer/name": 0.5}, step)
    together.write_text("long", "x" * 100_000, 3000)
    together.write_scalars({"a": 3001.0}, 3001)
    together.close()
    found = rows(tmp_path, writer)
    assert [row["a"] for step, row in found if step < 3000] == list(range(3000))
    (log,) = logs_of(tmp_path / "wandb", str(writer.id))
    assert log.stat().st_size > 5 * 32768
    whole = len(list(records(log)))
    log.write_bytes(log.read_bytes()[:100_000])
    assert 0 < len(list(records(log))) < whole


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("failed", 1), ("killed", 1)])
def test_the_exit_code_is_the_outcome_of_the_run(tmp_path: Path, outcome: Outcome, code: int) -> None:
    writer = WandbWriter(mode="offline")
    together = begun(tmp_path, writer)
    together.write_scalars({"a": 0.5}, 1)
    together.close(outcome)
    (log,) = logs_of(tmp_path / "wandb", str(writer.id))
    wait_for_end(log)
    assert [each.exit.exit_code for each in records(log) if each.WhichOneof("record_type") == "exit"] == [code]


def test_logs_are_in_order_whatever_the_id_of_the_run_is(tmp_path: Path) -> None:
    for run_id in ("2026", "1", "a-1", "20260101_000000"):
        wanted = [
            f"run-20251231_235959-{run_id}",
            f"offline-run-20260101_000000-{run_id}",
            f"offline-run-20260101_000000-{run_id}-1",
            f"offline-run-20260101_000000-{run_id}-2",
            f"offline-run-20260101_000000-{run_id}-10",
            f"run-20260102_000000-{run_id}",
        ]
        for folder in wanted:
            (tmp_path / folder).mkdir()
            (tmp_path / folder / f"run-{run_id}.wandb").touch()
        assert [path.parent.name for path in logs_of(tmp_path, run_id)] == wanted


def test_a_log_whose_time_is_in_the_future_is_waited_for_no_longer_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "offline-run-20260101_000000-mine" / "run-mine.wandb"
    log.parent.mkdir()
    log.write_bytes(b":W&B\xee\xbe\x01")
    now = 1000.0
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            os.utime(log, (7200, 7200))  # the log is still being written

    monkeypatch.setattr("time.time", lambda: now)
    monkeypatch.setattr("time.monotonic", lambda: sum(pauses))
    monkeypatch.setattr("time.sleep", sleep)
    os.utime(log, (3600, 3600))
    assert last_steps(tmp_path, "mine") == {}
    assert sum(pauses) == pytest.approx(wandb_log.PATIENCE + 10 * 0.02, abs=0.05)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "ofline"}, "WandbWriter: mode cannot be 'ofline'; did you mean 'offline'?"),
        ({"tags": "small"}, "WandbWriter: tags must be a list of names, not 'small'"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        WandbWriter(**parameters)
    assert str(refused.value) == message


def test_the_mode_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WandbWriter().mode == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert (WandbWriter().mode, WandbWriter(mode="offline").mode) == ("disabled", "offline")


def test_later_results_about_a_checkpoint_belong_to_its_run(tmp_path: Path) -> None:
    writer = WandbWriter(mode="offline")
    together = begun(tmp_path, writer)
    together.write_scalars({"train/loss": 0.5}, 8)
    state = together.state_dict()
    together.close()
    again = WandbWriter(mode="offline")
    together = begun(tmp_path, again)
    together.rejoin(state)
    together.write_scalars({"test/accuracy": 0.75}, 8)
    together.close()
    assert again.id == writer.id
    assert rows(tmp_path, again) == [(8, {"train/loss": 0.5}), (8, {"test/accuracy": 0.75})]
