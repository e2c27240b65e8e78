"""The server of the live page: pages, data, streams and actions. `serve` runs it until a signal ends it.

    GET  /                            the page of the run, or the list of runs
    GET  /runs/<id>                   the page of a run
    GET  /api/runs                    the list as JSON
    GET  /api/runs/<id>               the data of a page as JSON
    GET  /api/runs/<id>/stream        what is new in a run, as server-sent events
    GET  /api/stream                  what is new in the list
    POST /api/runs/<id>/actions       {"action": "save"}

It reads the files of runs, and writes only their control files.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hookline.errors import ConfigError, HooklineError, did_you_mean
from hookline.report.live.connections import PatientProtocol
from hookline.report.live.hub import END, LIST, Hub, as_text, batch_message, list_data, state_data
from hookline.report.live.pages import Pages
from hookline.report.live.security import Guard, refusal
from hookline.report.page import as_json, make_page
from hookline.rundir.control import ACTIONS

if TYPE_CHECKING:
    from starlette.requests import Request

    from hookline.report.live.changes import Feed

#: The port, unless another one is given. If it is in use, any free one.
PORT = 7860
#: The largest body of a request, and the seconds that a page may take to receive a message.
MOST_BYTES, SEND_TIMEOUT = 1000, 20.0
#: The seconds between two signs of life on a silent stream.
PING = 15
#: The most connections; further ones are refused until others end.
MOST_CONNECTIONS = 400
BY = "hookline watch"


class Server:
    """The app and its routes.

    Args:
        hub: The runs.
        host: The address that the server listens at.
        token: The token that actions need.
    """

    def __init__(self, hub: Hub, host: str, token: str) -> None:
        self.hub = hub
        self._pages = Pages()
        self.app = Starlette(
            routes=[
                Route("/", self._root),
                Route("/runs/{run}", self._run_page),
                Route("/api/runs", self._list),
                Route("/api/runs/{run}", self._run_data),
                Route("/api/runs/{run}/stream", self._run_stream),
                Route("/api/stream", self._list_stream),
                Route("/api/runs/{run}/actions", self._act, methods=["POST"]),
            ],
            middleware=[Middleware(Guard, host=host, token=token)],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.hub.running():
            yield

    # -- pages

    async def _root(self, request: Request) -> Response:
        if self.hub.watched.is_single:
            return await self._page_of(next(iter(self.hub.feeds), ""))
        return _page(self._list_page())

    async def _run_page(self, request: Request) -> Response:
        return await self._page_of(request.path_params["run"])

    async def _page_of(self, run: str) -> Response:
        feed = self.hub.feed_of(run)
        if feed is None:
            return _unknown(run)
        try:
            return _page(await asyncio.to_thread(self._pages.of, run, feed, self._live(feed)))
        except (HooklineError, OSError) as error:
            return refusal(422, str(error))

    def _live(self, feed: Feed) -> dict[str, Any]:
        """Return the name and the alerts of a page, besides the data of its run."""
        watched = self.hub.watched
        return {"name": watched.name_of(feed.folder), "several": not watched.is_single, "alerts": self.hub.told}

    def _list_page(self) -> dict[str, Any]:
        return {"runs": [], "comparison": None, **list_data(self.hub), "live": {"alerts": self.hub.told}}

    # -- data

    async def _list(self, request: Request) -> Response:
        return _json(as_json(list_data(self.hub)))

    async def _run_data(self, request: Request) -> Response:
        run = request.path_params["run"]
        feed = self.hub.feed_of(run)
        if feed is None:
            return _unknown(run)
        try:
            return _json(await asyncio.to_thread(self._pages.text_of, run, feed, self._live(feed)))
        except (HooklineError, OSError) as error:
            return refusal(422, str(error))

    # -- streams

    async def _run_stream(self, request: Request) -> Response:
        run = request.path_params["run"]
        feed = self.hub.feed_of(run)
        if feed is None:
            return _unknown(run)
        given = request.headers.get("last-event-id") or request.query_params.get("offset", "")
        offset = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else -1
        return self._stream(run, partial(_missed, feed, offset))

    async def _list_stream(self, request: Request) -> Response:
        whole = {"event": "runs", "data": {"runs": list_data(self.hub)["list"], "gone": []}}
        return self._stream(LIST, lambda: [whole])

    def _stream(self, topic: str, missed: Callable[[], list[dict[str, Any]]]) -> Response:
        ends = anyio.Event()  # it is set when the server is about to end
        return EventSourceResponse(
            self._messages(topic, missed, ends),
            ping=PING,
            send_timeout=SEND_TIMEOUT,
            headers={"x-accel-buffering": "no"},
            shutdown_event=ends,
            shutdown_grace_period=1,
        )

    async def _messages(
        self, topic: str, missed: Callable[[], list[dict[str, Any]]], ends: anyio.Event
    ) -> AsyncIterator[dict[str, Any]]:
        async with self.hub.following(topic) as queue:
            if queue is None:
                yield as_text({"event": "full", "data": {"error": "too many pages are open"}})
                return
            for message in missed():
                yield as_text(message)
            ending = asyncio.create_task(self.hub.end_after(ends.wait(), queue))
            try:
                while (message := await queue.get()) is not END:
                    yield message
            finally:
                ending.cancel()

    # -- actions

    async def _act(self, request: Request) -> Response:
        run = request.path_params["run"]
        feed = self.hub.feed_of(run)
        if feed is None:
            return _unknown(run)
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    return refusal(413, f"the content may have at most {MOST_BYTES} bytes")
        except ClientDisconnect:
            return refusal(400, "the connection ended before the content did")
        try:
            found = json.loads(bytes(body))
            action = found["action"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return refusal(400, 'expected {"action": "save"}')
        if action not in ACTIONS:
            return refusal(400, f"unknown action; {did_you_mean(str(action)[:50], ACTIONS)}")
        if feed.state.name not in ("running", "unknown"):
            return refusal(409, f"the run is not running: {feed.state.name}")
        try:
            return _json(as_json(feed.ask(action, BY)), 202)
        except HooklineError as error:
            return refusal(507, str(error))


def _missed(feed: Feed, offset: int) -> list[dict[str, Any]]:
    """Return the news since a page was made: the state, and records, or that the page has to be read again."""
    batches = feed.since(offset)
    if batches is None:
        return [{"event": "reload", "data": {}}, {"event": "state", "data": state_data(feed)}]
    messages = [batch_message(each.begin, each.end, each.records) for each in batches]
    return [{"event": "state", "data": state_data(feed)}, *messages]


def _page(data: dict[str, Any]) -> Response:
    script = (files("hookline.report.live") / "static" / "live.js").read_text(encoding="utf-8")
    return HTMLResponse(make_page(data, [script], connects=True).encode("utf-8", "replace"))


def _json(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def _unknown(run: str) -> Response:
    return refusal(404, "there is no such run")


# -- running


def bind(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens. Without a port, the usual one, or, if that is in use, any free one."""
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        try:
            return _listen(host, number)
        except OSError as error:
            if number == wanted[-1] or not _is_in_use(error):
                raise ConfigError(_why_not(host, number, error)) from error
    raise AssertionError("one of the ports was tried last")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made


def _is_in_use(error: OSError) -> bool:
    import errno

    return error.errno == errno.EADDRINUSE


def _why_not(host: str, port: int, error: OSError) -> str:
    if _is_in_use(error):
        return f"port {port} of {host} is in use; choose another one, or any free one with --port 0"
    return f"cannot listen at {host}, port {port}: {error.strerror or error}; check --host and --port"


def serve(server: Server, listening: socket.socket) -> None:
    """Serve until a signal ends it."""
    config = uvicorn.Config(
        server.app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=20,
        limit_concurrency=MOST_CONNECTIONS,
        http=PatientProtocol,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])
