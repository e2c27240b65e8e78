"""`hookline watch`: misuse is refused at the start; --json prints the state; Ctrl-C ends the server."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from hookline.cli import main
from hookline.testing import toy_runner
from tests.distributed.processes import running


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toy_runner(max_epochs=1, work_dir=tmp_path / "runs" / "one").train()
    return Path("runs/one")


def watch(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["hookline", "watch", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_json_prints_what_the_page_shows(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert watch("runs/one", "--json", monkeypatch=monkeypatch) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["runs"][0]["name"], data["live"]["state"]["name"]) == ("report", "one", "finished")
    assert watch("runs", "--json", monkeypatch=monkeypatch) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], [row["name"] for row in data["list"]]) == ("list", ["one"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "folder nothing does not exist"),
        (["runs/one", "--alert", "loss => 3"], "--alert 'loss => 3': did you mean 'loss >= 3'?"),
        (
            ["runs/one", "--webhook", "http://127.0.0.1:9"],
            "--webhook needs a rule: add --alert 'train/loss > 3', --alert nan, stalled or died",
        ),
        (
            ["runs/one", "--alert", "died", "--webhook", "file:///etc/passwd"],
            "--webhook must be an address that begins with http:// or https://, not 'file:///etc/passwd'",
        ),
        (
            ["runs/one", "--token", "short"],
            "--token must have at least 16 characters; leave it out for a random one",
        ),
    ],
)
def test_misuse_is_refused_before_anything_is_served(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert watch(*words, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == f"hookline: {message}\n"


def test_a_missing_library_is_named_with_the_extra(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sse_starlette" else True)
    assert watch("runs/one", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == (
        "hookline: hookline watch needs sse_starlette, which is not installed: pip install 'hookline[web]'\n"
    )


@pytest.mark.processes
def test_ctrl_c_ends_the_server_with_open_pages(run: Path, tmp_path: Path) -> None:
    with running(sys.executable, "-m", "hookline", "watch", "runs", "--port", "0", cwd=tmp_path) as server:
        server.until("Ctrl-C ends this")
        found = re.search(r"watching runs: (http://127\.0\.0\.1:\d+/)\?token=([\w-]{32})\n", server.output())
        assert found, server.output()
        with urllib.request.urlopen(f"{found[1]}api/stream", timeout=60) as stream:
            assert stream.readline() == b"event: runs\r\n"
            server.send(signal.SIGINT)
            assert server.wait() == 130
        assert server.output().endswith("Ctrl-C ends this; the runs go on\nhookline: interrupted\n")
        assert server.processes() == []
