"""The hub: looks at all runs about once a second, and passes on what is new to every page that follows a run.

The files of a run are read once, however many pages there are. A page that does not take what it is sent is dropped:
its browser connects again, and continues where it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from hookline.common.version import VERSION
from hookline.report.live.changes import Change, Feed
from hookline.report.live.folder import is_in_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from hookline.report.live.alerts import Alerts
    from hookline.report.live.folder import Watched

log = logging.getLogger("hookline")

#: The seconds between two looks at the files, and between two searches for new runs.
INTERVAL, SEARCH = 1.0, 5.0
#: The most pages at the same time, and the most messages that may wait for one of them.
MOST_CLIENTS, MOST_WAITING = 100, 200
#: The topic of pages with the list of runs.
LIST = ""
#: Ends a stream.
END: dict[str, Any] = {}


class Hub:
    """The runs, and the pages that follow them. `look` has its own thread; all else is called in the event loop.

    Args:
        watched: The given folder.
        alerts: The rules, and where to tell about them.
    """

    def __init__(self, watched: Watched, alerts: Alerts) -> None:
        self.watched = watched
        self.feeds = {run: Feed(folder) for run, folder in watched.by_id.items()}
        self._alerts = alerts
        self._clients: dict[asyncio.Queue[dict[str, Any]], str] = {}
        self._searched = time.monotonic()
        self._shown: dict[str, Any] = {}
        #: The newest alerts, for pages that connect later.
        self.told: list[dict[str, Any]] = []

    # -- looking

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at the runs inside the context, and end all streams after it."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.end()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def pass_on(topic: str, message: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(self.pass_on, topic, message)

        told = ""
        while True:
            try:
                await asyncio.to_thread(self.look, pass_on)
            except Exception as error:  # without a message, a page that stands still would look like a run that does
                if told != (told := repr(error)):
                    log.exception("the runs cannot be read; trying again every %s s", INTERVAL)
            await asyncio.sleep(INTERVAL)

    def look(self, pass_on: Callable[[str, dict[str, Any]], None]) -> None:
        """Look at all runs once, and pass on the news."""
        if time.monotonic() - self._searched > SEARCH:
            self._search()
        for run, feed in list(self.feeds.items()):
            if self.feed_of(run) is None:
                self.feeds.pop(run, None)
                continue
            change = feed.look()
            for message in messages_of(feed, change):
                pass_on(run, message)
            for alert in self._alerts.check(self.watched.name_of(feed.folder), feed):
                self.told = [*self.told[-49:], alert]
                for topic in (run, LIST):
                    pass_on(topic, {"event": "alert", "data": alert})
        rows = self.rows()
        changed = [row for run, row in rows.items() if self._shown.get(run) != row]
        gone = [run for run in self._shown if run not in rows]
        if changed or gone:
            self._shown = rows
            pass_on(LIST, {"event": "runs", "data": {"runs": changed, "gone": gone}})

    def _search(self) -> None:
        self._searched = time.monotonic()
        self.watched.find()
        for run, folder in self.watched.by_id.items():
            if run not in self.feeds:
                self.feeds[run] = Feed(folder)
        for run in [run for run in self.feeds if run not in self.watched.by_id]:
            del self.feeds[run]

    def feed_of(self, run: str) -> Feed | None:
        """Return the data of a run; None if there is no such run, or if its folder is a link now."""
        feed = self.feeds.get(run)
        return feed if feed is not None and is_in_place(feed.folder) else None

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return all runs as the list of runs shows them, by id."""
        return {run: self._row(run, feed) for run, feed in list(self.feeds.items())}

    def _row(self, run: str, feed: Feed) -> dict[str, Any]:
        state, newest = feed.state, newest_value(feed)
        return {
            "id": run,
            "name": self.watched.name_of(feed.folder),
            "path": str(feed.folder),
            "state": state.name,
            "text": state.text,
            "step": max(state.step, feed.step),
            "started": state.started,
            "written": None if state.written is None else round(state.written),
            "host": state.host,
            "pid": state.pid,
            "newest": newest,
        }

    # -- passing on

    @asynccontextmanager
    async def following(self, topic: str) -> AsyncIterator[asyncio.Queue[dict[str, Any]] | None]:
        """Follow a run, or the list, inside the context. None if there are too many pages already."""
        if len(self._clients) >= MOST_CLIENTS:
            yield None
            return
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_WAITING)
        self._clients[queue] = topic
        try:
            yield queue
        finally:
            self._clients.pop(queue, None)

    @property
    def clients(self) -> int:
        """Return the number of pages that follow something."""
        return len(self._clients)

    def pass_on(self, topic: str, message: dict[str, Any]) -> None:
        """Pass on a message to the pages with a topic. It is turned into text once, for all of them."""
        queues = [queue for queue, wanted in self._clients.items() if wanted == topic]
        if queues:
            text = as_text(message)
            for queue in queues:
                self._put(queue, text)

    def _put(self, queue: asyncio.Queue[dict[str, Any]], message: dict[str, Any]) -> None:
        try:
            queue.put_nowait(message)
        except asyncio.QueueFull:  # this page is too slow: end its stream
            self._clients.pop(queue, None)
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(END)

    async def end_after(self, moment: Awaitable[object], queue: asyncio.Queue[dict[str, Any]]) -> None:
        """End one stream when something has happened."""
        await moment
        self._put(queue, END)

    def end(self) -> None:
        """End all streams."""
        for queue in list(self._clients):
            self._put(queue, END)


def list_data(hub: Hub) -> dict[str, Any]:
    """Return the list of runs as plain data."""
    return {
        "version": 1,
        "kind": "list",
        "title": hub.watched.root.name,
        "path": str(hub.watched.root),
        "made": round(time.time()),
        "hookline": VERSION,
        "list": list(hub.rows().values()),
    }


def as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its data as JSON."""
    return {**message, "data": json.dumps(message["data"], allow_nan=False, default=str)}


def messages_of(feed: Feed, change: Change) -> list[dict[str, Any]]:
    """Return the messages about the news of a run."""
    messages: list[dict[str, Any]] = []
    if change.restarted:
        messages.append({"event": "reload", "data": {}})
    elif change.batch is not None:
        messages.append(batch_message(change.batch.begin, change.batch.end, change.batch.records))
    for event in change.events:
        messages.append({"event": "journal", "data": event})
    if change.events or change.state_changed:
        messages.append({"event": "state", "data": state_data(feed)})
    return messages


def batch_message(begin: int, end: int, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message with records. Its id lets a browser that connects again continue after them."""
    return {"event": "records", "id": str(end), "data": {"begin": begin, "end": end, "records": records}}


def state_data(feed: Feed) -> dict[str, Any]:
    """Return the state of a run, and the answers to orders, newest last."""
    return {**feed.state.as_data(), "orders": list(feed.orders.values())[-10:]}


def newest_value(feed: Feed) -> dict[str, Any] | None:
    """Return the newest value of the metric that says most about a run: a loss, or else any."""
    newest = dict(feed.newest)
    names = [name for name in newest if name.rpartition("/")[2] == "loss"] or list(newest)
    if not names:
        return None
    name = "train/loss" if "train/loss" in names else names[0]
    step, value = newest[name]
    return {"name": name, "step": step, "value": value}
