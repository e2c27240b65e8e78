"""Slow clients: those that send no whole request, or take nothing of a response, are closed; streams stay open."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import h11
import pytest
import uvicorn

from hookline.report.live import connections
from hookline.report.live.connections import PatientProtocol
from hookline.report.live.server import bind
from tests.report.live.conftest import wait_for

LARGE = 40_000_000


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with a large body, with a body after the request, or with a stream that is silent for a while."""
    path = scope["path"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if path == "/post":
        while (await receive()).get("more_body"):
            pass
    if path == "/stream":
        import asyncio

        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        await asyncio.sleep(connections.PATIENCE * 6)
    await send({"type": "http.response.body", "body": b"x" * LARGE if path == "/large" else b"last\n"})


@pytest.fixture
def server() -> uvicorn.Server:
    config = uvicorn.Config(app, http=PatientProtocol, log_level="critical", lifespan="off", timeout_keep_alive=60)
    return uvicorn.Server(config)


@pytest.fixture
def place(server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connections, "PATIENCE", 0.25)
    with bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()
        server.should_exit = server.force_exit = True
        thread.join()


def opened(place: tuple[str, int], text: str) -> socket.socket:
    made = socket.create_connection(place, timeout=30)
    made.sendall(text.encode())
    return made


def whole(made: socket.socket) -> bytes:
    """Return everything up to the end of the connection."""
    found = b""
    try:
        while part := made.recv(1 << 20):
            found += part
    except ConnectionResetError:
        pass
    return found


GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        "POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=["nothing", "half a line", "half a header", "half a body"],
)
def test_a_request_that_does_not_come_ends_its_connection(place: tuple[str, int], text: str) -> None:
    with opened(place, text) as made:
        assert b"last" not in whole(made)


def test_a_request_that_comes_byte_by_byte_ends_its_connection(place: tuple[str, int]) -> None:
    with opened(place, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ") as made:

        def send_on() -> None:
            for _ in range(600):
                made.sendall(b"a")
                time.sleep(0.05)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_on()


def test_a_client_that_takes_nothing_is_closed(place: tuple[str, int], server: uvicorn.Server) -> None:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(place)
    made.sendall(GET.format("/large", "").encode())
    with made:
        wait_for(lambda: server.server_state.connections)
        wait_for(lambda: not server.server_state.connections)
        assert len(whole(made)) < LARGE


def test_a_silent_stream_stays_open(place: tuple[str, int]) -> None:
    with opened(place, GET.format("/stream", "Connection: close\r\n")) as stream:
        found = whole(stream)
    assert b"first\n" in found
    assert b"last\n" in found


#: What is seen at each look (what the client does, responses so far, bytes that it has not taken), and at which look
#: the connection is closed.
LOOKS: dict[str, tuple[list[tuple[Any, int, int]], int | None]] = {
    "no request": ([(h11.IDLE, 0, 0)] * 3, 2),
    "a request in time": ([(h11.IDLE, 0, 0), (h11.DONE, 0, 0), (h11.DONE, 0, 0), (h11.DONE, 0, 0)], None),
    "used again and again": ([(h11.IDLE, number, 0) for number in range(5)], None),
    "used once, then silent": ([(h11.IDLE, 0, 0), (h11.IDLE, 1, 0), (h11.IDLE, 1, 0)], 3),
    "half a body": ([(h11.SEND_BODY, 0, 0)] * 3, 2),
    "a stream": ([(h11.DONE, 0, 0)] * 5, None),
    "takes nothing": ([(h11.DONE, 0, 500), (h11.DONE, 0, 500)], 2),
    "slow": ([(h11.DONE, 0, 500), (h11.DONE, 0, 400), (h11.DONE, 0, 1), (h11.DONE, 0, 0)], None),
    "slow after the response": ([(h11.IDLE, 1, 500), (h11.IDLE, 1, 400), (h11.IDLE, 1, 300)], None),
    "stops taking": ([(h11.IDLE, 1, 500), (h11.IDLE, 1, 400), (h11.IDLE, 1, 400)], 3),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_connection_is_closed_if_nothing_happens_between_two_looks(case: str) -> None:
    looks, closed = LOOKS[case]
    seen: list[Any] = []
    protocol = object.__new__(PatientProtocol)
    protocol._before = None
    protocol.loop = SimpleNamespace(call_later=lambda *given: seen.append("again"))  # type: ignore[assignment]  # a part
    for state, answered, waiting in looks:
        protocol.conn = SimpleNamespace(their_state=state)  # type: ignore[assignment]  # a part of a connection
        protocol._answered = answered
        protocol.transport = SimpleNamespace(  # type: ignore[assignment]  # a part of a transport
            get_write_buffer_size=lambda waiting=waiting: waiting, abort=lambda: seen.append("closed")
        )
        protocol._look()
        if "closed" in seen:
            break
    expected = ["again"] * len(looks) if closed is None else ["again"] * (closed - 1) + ["closed"]
    assert seen == expected
