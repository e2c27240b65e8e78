"""Who may talk to the server: Host, token, Origin, content type, and headers of every response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hookline.report.live import security
from hookline.report.live.alerts import Alerts
from hookline.report.live.folder import Watched
from hookline.report.live.hub import Hub
from hookline.report.live.server import Server
from hookline.rundir import control
from hookline.testing import toy_runner

TOKEN = "a-token-that-nobody-knows"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    toy_runner(max_epochs=1, work_dir=root / "one").train()
    return root


def client(runs: Path, host: str = "127.0.0.1", called: str = "http://127.0.0.1:7860") -> TestClient:
    """Return a client without the loop that follows the runs."""
    return TestClient(Server(Hub(Watched(runs), Alerts([], [])), host, TOKEN).app, base_url=called)


def run_id(runs: Path) -> str:
    return next(iter(Watched(runs).by_id))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("localhost:9999", 200),
        ("[::1]:7860", 200),
        ("127.0.0.1", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:7860", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.5:7860", 403),
        ("", 403),
        ("user@127.0.0.1", 403),
    ],
)
def test_a_host_header_that_does_not_name_this_machine_is_refused(runs: Path, host: str, status: int) -> None:
    for path in ("/", "/api/runs", f"/api/runs/{run_id(runs)}"):
        answer = client(runs).get(path, headers={"host": host})
        assert answer.status_code == status
        if status == 403:
            assert answer.json() == {
                "error": "the Host header does not name this server; open the address that hookline watch shows"
            }


def test_beyond_this_machine_every_request_needs_the_token(runs: Path) -> None:
    far = client(runs, "0.0.0.0", "http://10.1.2.3:7860")
    for path in ("/", "/api/runs", f"/runs/{run_id(runs)}", f"/api/runs/{run_id(runs)}", "/api/stream", "/nothing"):
        assert far.get(path).status_code == 401, path
        assert far.get(path, params={"token": TOKEN + "x"}).status_code == 401, path
    assert far.get("/api/runs", params={"token": TOKEN}).status_code == 200
    assert far.get("/api/runs", headers={security.HEADER: TOKEN}).status_code == 200
    assert far.get("/api/runs", params={"token": TOKEN}, headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({}, 401, "this needs the token, in the header x-hookline-token"),
        ({security.HEADER: "wrong"}, 401, "this needs the token, in the header x-hookline-token"),
        ({security.HEADER: "\u00fc".encode("latin-1")}, 401, "this needs the token, in the header x-hookline-token"),
        ({security.HEADER: TOKEN, "origin": "http://evil.example"}, 403, "the request comes from another site"),
        ({security.HEADER: TOKEN, "origin": "null"}, 403, "the request comes from another site"),
        ({security.HEADER: TOKEN, "origin": "http://127.0.0.1:1"}, 403, "the request comes from another site"),
        ({security.HEADER: TOKEN, "sec-fetch-site": "cross-site"}, 403, "the request comes from another site"),
        ({security.HEADER: TOKEN, "content-type": "text/plain"}, 415, "the content must be application/json"),
        (
            {security.HEADER: TOKEN, "host": "evil.example"},
            403,
            "the Host header does not name this server; open the address that hookline watch shows",
        ),
    ],
)
def test_an_action_needs_the_token_the_own_origin_and_json(
    runs: Path, headers: dict[str, Any], status: int, error: str
) -> None:
    path = f"/api/runs/{run_id(runs)}/actions"
    answer = client(runs).post(path, content='{"action": "save"}', headers={**JSON, **headers})
    assert (answer.status_code, answer.json()) == (status, {"error": error})
    answer = client(runs).post(f"{path}?token={TOKEN}", content='{"action": "save"}', headers=JSON)
    assert answer.status_code == 401, "an address is not enough"
    assert not (runs / "one" / control.NAME).exists()


def test_other_methods_are_refused(runs: Path) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert client(runs).request(method, "/api/runs").status_code == 405


def test_every_response_has_the_headers_that_protect_it(runs: Path) -> None:
    for answer in (client(runs).get("/"), client(runs).get("/nothing"), client(runs).get("/", headers={"host": "x"})):
        for name, value in security.HEADERS.items():
            assert answer.headers[name] == value
        assert "access-control-allow-origin" not in answer.headers
    page = client(runs).get("/").text
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert "connect-src 'self'" in page
    assert "unsafe" not in page.partition("<title>")[0]


def test_addresses_of_this_machine_only() -> None:
    local = [host for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost") if security.is_loopback(host)]
    assert local == ["127.0.0.1", "127.1.2.3", "::1", "localhost"]
    assert not any(security.is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"))
    assert len(security.new_token()) >= security.SHORTEST
