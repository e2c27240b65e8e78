"""Alert rules: parsed or refused at the start, told once until they clear, to the terminal, a file and a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hookline.errors import ConfigError, StorageError
from hookline.report.live import alerts
from hookline.report.live.alerts import AlertFile, Alerts, Webhook, parse
from hookline.report.live.changes import Feed
from hookline.rundir import journal, ownership

START = {"time": 1, "step": 0, "epoch": 0, "kind": "start"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a run that is running."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / journal.NAME).write_text(json.dumps(START) + "\n")
    with ownership.locked(folder):
        yield folder


def record(folder: Path, **values: Any) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({name.replace("__", "/"): value for name, value in values.items()}) + "\n")


def told(rules: Alerts, feed: Feed, now: float) -> list[str]:
    feed.look(now)
    return [alert["text"] for alert in rules.check("run", feed, now)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss => 3", "--alert 'loss => 3': did you mean 'loss >= 3'?"),
        ("loss = 3", "--alert 'loss = 3': did you mean 'loss > 3'?"),
        ("loss", "--alert 'loss' is not a rule; did you mean 'loss > 3'?"),
        ("loss > big", "--alert 'loss > big': expected a number after >, not 'big'; for example 'loss > 3'"),
        ("loss > nan", "--alert 'loss > nan': expected a number after >, not 'nan'; for example 'loss > 3'"),
        ("stalld", "--alert 'stalld' is not a rule; did you mean 'stalled'?"),
        ("Died", "--alert 'Died' is not a rule; did you mean 'died'?"),
        (
            "stalled soon",
            "--alert 'stalled soon' must be a duration such as '11h50m', '1d2h', '45m' or '90s', or a number of "
            "seconds, not 'soon'",
        ),
        (
            "one two three",
            "--alert 'one two three' is not a rule; write it like one of these: train/loss > 3, nan, nan train/loss, "
            "stalled, stalled 10m, died",
        ),
    ],
)
def test_a_bad_rule_is_refused_with_the_nearest_good_form(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert str(refused.value) == message


def test_a_threshold_tells_once_until_it_clears(folder: Path) -> None:
    feed = Feed(folder)
    rules = Alerts([parse("loss > 3"), parse("val/accuracy<=0.5")], [])
    assert told(rules, feed, 1) == []
    record(folder, step=1, train__loss=3.0)
    assert told(rules, feed, 2) == []
    record(folder, step=2, train__loss=3.5)
    assert told(rules, feed, 3) == ["train/loss is 3.5000 at step 2"]
    record(folder, step=3, train__loss=4)
    assert told(rules, feed, 4) == []
    record(folder, step=4, train__loss=1, val__accuracy=0.5)
    assert told(rules, feed, 5) == ["val/accuracy is 0.5000 at step 4"]
    record(folder, step=5, train__loss=9)
    assert told(rules, feed, 6) == ["train/loss is 9 at step 5"]


def test_nan_and_inf_are_told(folder: Path) -> None:
    feed = Feed(folder)
    rules = Alerts([parse("nan"), parse("nan val/loss")], [])
    record(folder, step=1, train__loss=float("nan"), val__loss=1)
    assert told(rules, feed, 1) == ["train/loss is NaN or Inf at step 1"]
    record(folder, step=2, train__loss=1, val__loss=None)
    assert told(rules, feed, 2) == ["val/loss is NaN or Inf at step 2"]
    record(folder, step=3, train__loss=1, val__loss=1)
    assert told(rules, feed, 3) == []


def test_a_run_is_stalled_after_some_times_its_usual_pace_or_a_given_time(folder: Path) -> None:
    feed = Feed(folder)
    rules = Alerts([parse("stalled"), parse("stalled 500s")], [])
    for step in range(5):
        record(folder, step=step, loss=1)
        assert told(rules, feed, 20.0 * step) == []
    assert told(rules, feed, 80 + 199) == []
    assert told(rules, feed, 80 + 201) == ["no record for 3m20s, since step 4"]
    assert told(rules, feed, 80 + 501) == ["no record for 8m20s, since step 4"]
    assert told(rules, feed, 80 + 900) == []
    record(folder, step=5, loss=1)
    assert told(rules, feed, 1000) == []
    assert told(rules, feed, 1000 + 501) == ["no record for 3m20s, since step 5", "no record for 8m20s, since step 5"]


def test_a_run_that_dies_or_fails_while_watched_is_reported(tmp_path: Path) -> None:
    rules, folder = Alerts([parse("died"), parse("loss > 1")], []), tmp_path / "run"
    folder.mkdir()
    record(folder, step=1, loss=5)
    (folder / journal.NAME).write_text(json.dumps(START) + "\n")
    before = Feed(folder)
    assert (before.state.name, told(rules, before, 1)) == ("killed", []), "it had died before"
    with ownership.locked(folder):
        feed = Feed(folder)
        assert told(rules, feed, 1) == ["loss is 5 at step 1"]
    assert told(rules, feed, 2) == ["killed: its process disappeared; its last event is at step 0"]
    assert told(rules, feed, 3) == []
    with open(folder / journal.NAME, "a") as file:
        for event in ({"kind": "start"}, {"kind": "failure", "text": "ValueError: x"}, {"kind": "end", "code": 1}):
            file.write(json.dumps({"time": 2, "step": 3, "epoch": 0, **event}) + "\n")
    assert told(rules, feed, 4) == [], "it is still dead"


def test_a_metric_that_nobody_has_recorded_is_pointed_out(folder: Path) -> None:
    feed = Feed(folder)
    assert alerts.find_unknown(parse("train/lss > 3"), [feed]) == "", "nothing is known yet"
    record(folder, step=1, train__loss=1)
    feed.look()
    assert alerts.find_unknown(parse("train/lss > 3"), [feed]) == (
        "--alert 'train/lss > 3': no run has recorded 'train/lss' yet; did you mean 'train/loss'?"
    )
    assert [alerts.find_unknown(parse(text), [feed]) for text in ("loss > 3", "nan", "died")] == ["", "", ""]


ALERT = {"time": 5.0, "run": "\x1b[2Jone", "rule": "loss > 3", "text": "train/loss is 4 at step 2"}


def test_the_terminal_and_the_file_get_every_alert(tmp_path: Path) -> None:
    assert alerts.describe(ALERT) == "ALERT \\x1b[2Jone: train/loss is 4 at step 2 (rule: loss > 3)"
    file = AlertFile(tmp_path / "alerts.jsonl", print)
    file(ALERT)
    file(ALERT)
    file.close()
    assert [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text().splitlines()] == [ALERT, ALERT]
    with pytest.raises(StorageError, match="--alert-file .* cannot be written: No such file or directory"):
        AlertFile(tmp_path / "nothing" / "alerts.jsonl", print)


class Receiver(BaseHTTPRequestHandler):
    """Takes posts, and answers with the status in the path."""

    received: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:  # the name that the library calls
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.headers["content-type"], json.loads(body)))
        self.send_response(int(self.path[1:]))
        self.send_header("location", "/200")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.received = []
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_alerts_as_json(receiver: str) -> None:
    said: list[str] = []
    hook = Webhook(f"{receiver}/200", said.append)
    hook(ALERT)
    hook.close()
    assert Receiver.received == [("application/json", {**ALERT, "message": alerts.describe(ALERT)})]
    assert said == []


@pytest.mark.parametrize("status", [500, 302])
def test_a_webhook_that_fails_is_reported_once_and_follows_no_redirect(receiver: str, status: int) -> None:
    said: list[str] = []
    hook = Webhook(f"{receiver}/{status}", said.append)
    hook(ALERT)
    hook(ALERT)
    hook.close()
    assert len(Receiver.received) == 2
    assert len(said) == 1
    assert said[0].startswith("warning: the webhook http://127.0.0.1 does not work: ")


def test_a_webhook_that_nobody_answers_never_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    hook = Webhook("http://127.0.0.1:9/x", said.append)
    for _ in range(3):
        hook(ALERT)
    hook.close()
    assert len(said) == 1
    for url in ("file:///etc/passwd", "ftp://x/y", "example.com", "http://"):
        with pytest.raises(ConfigError, match="--webhook must be an address that begins with http:// or https://"):
            Webhook(url, said.append)
