"""The server: pages, data and actions of known runs only."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hookline.errors import ConfigError
from hookline.report.live import hub as hub_module
from hookline.report.live import server as server_module
from hookline.report.live.alerts import Alerts
from hookline.report.live.folder import Watched
from hookline.report.live.hub import Hub
from hookline.report.live.security import HEADER
from hookline.report.live.server import Server, bind
from hookline.rundir import control, ownership
from hookline.testing import toy_runner

TOKEN = "a-token-that-nobody-knows"
HEADERS = {"content-type": "application/json", HEADER: TOKEN}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    toy_runner(max_epochs=1, work_dir=root / "one", config={"experiment_name": HOSTILE, HOSTILE: HOSTILE}).train()
    return root


def serving(path: Path) -> tuple[TestClient, Hub]:
    hub = Hub(Watched(path), Alerts([], []))
    return TestClient(Server(hub, "127.0.0.1", TOKEN).app, base_url="http://127.0.0.1:7860"), hub


def test_a_folder_of_runs_is_a_list_with_the_state_of_each(root: Path) -> None:
    for number in range(3):
        shutil.copytree(root / "one", root / "sweep" / str(number))
    shutil.copytree(root / "one", root / "old-1")
    shutil.copytree(root / "one", root / "one" / "inside")
    client, hub = serving(root)
    found = client.get("/api/runs").json()
    assert [(row["name"], row["state"], row["step"]) for row in found["list"]] == [
        ("one", "finished", 4), ("sweep/0", "finished", 4), ("sweep/1", "finished", 4), ("sweep/2", "finished", 4),
    ]  # fmt: skip
    assert {row["newest"]["name"] for row in found["list"]} == {"train/loss"}
    assert client.get("/").text.count("<title>runs · hookline</title>") == 1
    assert not hub.watched.is_single


def test_a_name_that_is_not_utf_8_is_shown_with_a_sign_in_its_place(root: Path) -> None:
    with open(root / "one" / "metrics.jsonl", "a") as file:
        file.write('{"step": 9, "\\ud800": 1}\n')
    client, _ = serving(root / "one")
    page = client.get("/")
    assert (page.status_code, '"name":"?"' in page.text) == (200, True)


def test_a_run_is_a_page_and_the_same_as_data(root: Path) -> None:
    client, hub = serving(root / "one")
    (run,) = hub.feeds
    data = client.get(f"/api/runs/{run}").json()
    assert (data["runs"][0]["id"], data["runs"][0]["name"], data["live"]["id"]) == (run, HOSTILE, run)
    assert data["live"]["offset"] == os.path.getsize(root / "one" / "metrics.jsonl")
    assert data["live"]["state"]["name"] == "finished"
    for page in (client.get("/").text, client.get(f"/runs/{run}").text):
        assert HOSTILE not in page
        assert "window.hookline" in page


@pytest.mark.parametrize("run", ["nothing", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc", "one", "000000000000"])
def test_only_known_ids_are_served(root: Path, run: str) -> None:
    client, _ = serving(root)
    for path in (f"/runs/{run}", f"/api/runs/{run}", f"/api/runs/{run}/stream"):
        assert client.get(path).status_code == 404
    answer = client.post(f"/api/runs/{run}/actions", content='{"action": "save"}', headers=HEADERS)
    assert answer.status_code in (404, 405)


def test_links_lead_nowhere(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    toy_runner(max_epochs=1, work_dir=secret).train()
    (root / "linked").symlink_to(secret)
    os.unlink(root / "one" / "run.log")
    (root / "one" / "run.log").symlink_to("/etc/passwd")
    client, hub = serving(root)
    assert [row["name"] for row in client.get("/api/runs").json()["list"]] == ["one"]
    (run,) = hub.feeds
    for path in (f"/runs/{run}", f"/api/runs/{run}"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (
            422,
            {"error": f"{root}/one/run.log is a symbolic link; the page shows only files of the run itself"},
        )


@pytest.mark.parametrize("single", [True, False])
def test_a_folder_that_becomes_a_link_is_not_served_any_longer(root: Path, tmp_path: Path, single: bool) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path / "secret" / "one").train()
    client, hub = serving(root / "one" if single else root)
    (run,) = hub.feeds
    paths = ["/"] * single + [f"/runs/{run}", f"/api/runs/{run}", f"/api/runs/{run}/stream"]
    replaced, kept = (root / "one", "secret/one") if single else (root, "secret")
    replaced.rename(tmp_path / "moved")
    replaced.symlink_to(tmp_path / kept)
    order = client.post(f"/api/runs/{run}/actions", content='{"action": "save"}', headers=HEADERS)
    assert [order.status_code, *(client.get(path).status_code for path in paths)] == [404] * (len(paths) + 1)
    hub.look(lambda topic, message: None)
    assert list(client.get("/api/runs").json()["list"]) == []
    assert not (tmp_path / "secret" / "one" / "control.jsonl").exists()
    replaced.unlink()
    (tmp_path / "moved").rename(replaced)
    hub._searched -= 60
    hub.look(lambda topic, message: None)
    assert client.get(paths[0]).status_code == 200


def test_an_action_is_an_order_in_the_control_file(root: Path) -> None:
    client, hub = serving(root)
    (run,) = hub.feeds
    path, order = f"/api/runs/{run}/actions", root / "one" / control.NAME
    answer = client.post(path, content='{"action": "save"}', headers=HEADERS)
    assert (answer.status_code, answer.json()) == (409, {"error": "the run is not running: finished"})
    journal = root / "one" / "events.jsonl"
    journal.write_text(journal.read_text().splitlines()[0] + "\n")
    before = {path: path.stat().st_mtime_ns for path in (root / "one").iterdir()}
    with ownership.locked(root / "one"):
        hub.look(lambda topic, message: None)
        bad = {
            "{": (400, 'expected {"action": "save"}'),
            "[]": (400, 'expected {"action": "save"}'),
            '{"action": "sav"}': (400, "unknown action; did you mean 'save'?"),
            '{"action": ["save"]}': (400, None),
            json.dumps({"action": "save", "more": "x" * 2000}): (413, "the content may have at most 1000 bytes"),
        }
        for content, (status, error) in bad.items():
            answer = client.post(path, content=content, headers=HEADERS)
            assert answer.status_code == status, content
            assert error is None or answer.json() == {"error": error}
        assert not order.exists()
        answer = client.post(path, content='{"action": "stop_after_epoch"}', headers=HEADERS)
        assert (answer.status_code, answer.json()["state"]) == (202, "asked")
        (line,) = map(json.loads, order.read_text().splitlines())
        assert (line["action"], line["by"], line["id"]) == ("stop_after_epoch", "hookline watch", answer.json()["id"])
        order.unlink()
        assert {path: path.stat().st_mtime_ns for path in before} == before, "it writes nothing else"


def messages(hub: Hub) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    hub.look(lambda topic, message: found.append((topic, message)))
    return found


def test_new_records_events_and_states_are_passed_on_once(root: Path) -> None:
    hub = Hub(Watched(root), Alerts([], []))
    (run,) = hub.feeds
    folder = root / "one"
    assert [topic for topic, _ in messages(hub)] == [hub_module.LIST]
    assert messages(hub) == []
    begin = os.path.getsize(folder / "metrics.jsonl")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 9, "train/loss": 0.5}\n{"step": 10, "train/loss": NaN}\n{"step": 11, "tr')
    end = os.path.getsize(folder / "metrics.jsonl") - len('{"step": 11, "tr')
    batch = {
        "event": "records",
        "id": str(end),
        "data": {
            "begin": begin,
            "end": end,
            "records": [{"step": 9, "train/loss": 0.5}, {"step": 10, "train/loss": None}],
        },
    }
    (found, (topic, listed)) = messages(hub)
    assert found == (run, batch)
    assert (topic, listed["data"]["runs"][0]["newest"]) == (
        hub_module.LIST,
        {"name": "train/loss", "step": 10, "value": None},
    )
    event = {"time": 5, "step": 10, "epoch": 1, "kind": "start", "environment": {}}
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps(event) + "\n")
    told = [message for topic, message in messages(hub) if topic == run]
    assert [message["event"] for message in told] == ["journal", "state"]
    assert (told[0]["data"], told[1]["data"]["name"]) == (event, "killed")
    (folder / "metrics.jsonl").write_text('{"step": 1, "train/loss": 0.5}\n')
    assert [message["event"] for topic, message in messages(hub) if topic == run] == ["reload"]
    assert hub.feeds[run].newest == {"train/loss": (1, 0.5)}


def test_a_page_that_connects_later_gets_what_it_missed_or_is_read_again(root: Path) -> None:
    hub = Hub(Watched(root), Alerts([], []))
    (feed,) = hub.feeds.values()
    path, offset = root / "one" / "metrics.jsonl", feed.offset
    for step in (5, 6):
        with open(path, "a") as file:
            file.write(json.dumps({"step": step, "train/loss": 1.0}) + "\n")
        messages(hub)
    missed = server_module._missed(feed, offset)
    assert [message["event"] for message in missed] == ["state", "records", "records"]
    assert [message["event"] for message in server_module._missed(feed, feed.offset)] == ["state"]
    assert [message["event"] for message in server_module._missed(feed, -1)] == ["reload", "state"]


def test_new_runs_appear_and_runs_that_are_gone_disappear(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "SEARCH", -1)
    hub = Hub(Watched(root), Alerts([], []))
    (run,) = hub.feeds
    messages(hub)
    shutil.move(root / "one", root / "two")
    (message,) = [message for topic, message in messages(hub) if topic == hub_module.LIST]
    assert [row["name"] for row in message["data"]["runs"]] == ["two"]
    assert message["data"]["gone"] == [run]


def test_paths_that_are_not_runs_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "folder").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    expected = {
        "empty": "is empty: expected the folder of a run, or a folder with runs",
        "other": "is not the folder of a run: it has no metrics.jsonl, no run.log and no checkpoint",
        "file": "is a file; expected the folder of a run, with metrics.jsonl, run.log and checkpoints",
        "nothing": "does not exist",
    }
    for name, text in expected.items():
        with pytest.raises(ConfigError) as refused:
            Watched(tmp_path / name)
        assert text in str(refused.value)


def test_a_port_in_use_is_refused_unless_any_port_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            bind("127.0.0.1", port)
        assert str(refused.value) == (
            f"port {port} of 127.0.0.1 is in use; choose another one, or any free one with --port 0"
        )
        monkeypatch.setattr(server_module, "PORT", port)
        with bind("127.0.0.1", None) as other:
            assert other.getsockname()[1] != port
    with pytest.raises(ConfigError, match="cannot listen at 203.0.113.1, port 0: "):
        bind("203.0.113.1", 0)
