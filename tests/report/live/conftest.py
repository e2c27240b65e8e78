"""What the tests of the live page share: a server in a thread, and pages in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from hookline.report.live.alerts import Alerts, parse
from hookline.report.live.folder import Watched
from hookline.report.live.hub import Hub
from hookline.report.live.server import Server, bind

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "a-token-that-nobody-knows"
#: The time limit of a page, in milliseconds: far more than it needs.
SECONDS = 60_000


@contextmanager
def serving(path: Path, *rules: str) -> Iterator[str]:
    """Serve the live page of a folder in a thread, and yield its address."""
    hub = Hub(Watched(path), Alerts([parse(rule) for rule in rules], []))
    server = uvicorn.Server(uvicorn.Config(Server(hub, "127.0.0.1", TOKEN).app, log_level="error", lifespan="on"))
    with bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        hub.end()
        thread.join()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address. At the end, no script may have failed, and nothing may have been loaded from elsewhere."""
    problems: list[str] = []
    contexts: list[Any] = []

    def open_it(url: str, path: str = "/", token: str = TOKEN, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: problems.extend([request.url] * (not request.url.startswith(url))))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"{url}{path}" + (f"?token={token}" if token else ""))
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS / 1000
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found
