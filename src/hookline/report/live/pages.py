"""The data of pages, gathered once for all browsers, and not more often than it is worth."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.errors import StorageError
from hookline.report.gather import as_page, gather_run
from hookline.report.live.folder import find_link
from hookline.report.live.hub import state_data
from hookline.report.page import as_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hookline.report.live.changes import Feed

#: The seconds between two readings of a whole run, and how many times longer than a reading this is at least: so
#: reading takes at most half a percent of the time.
LEAST_SECONDS, TIMES = 2.0, 200


@dataclass
class Gathered:
    """The data of a page, also as JSON, how far its records go, when it was read, and how long that took."""

    data: dict[str, Any]
    text: str
    offset: int
    signature: tuple[Any, ...]
    at: float
    took: float


class Pages:
    """The data of the pages of runs."""

    def __init__(self) -> None:
        self._known: dict[Path, Gathered] = {}
        self._lock = threading.Lock()

    def of(self, run: str, feed: Feed, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of the page of a run. `live` is how a page continues from there, and what `live` has.

        Reading a long run takes a while, so a page may get data that is a few seconds old. The stream of records
        continues from it.
        """
        found = self._newest(run, feed)
        return {**found.data, "live": _live(run, feed, found, live)}

    def text_of(self, run: str, feed: Feed, live: Mapping[str, Any]) -> str:
        """Return the same as JSON. Most of it is made once for all pages."""
        found = self._newest(run, feed)
        return f'{found.text[:-1]},"live":{as_json(_live(run, feed, found, live))}}}'

    def _newest(self, run: str, feed: Feed) -> Gathered:
        with self._lock:
            found, now = self._known.get(feed.folder), time.monotonic()
            is_over = feed.state.name not in ("running", "unknown")  # the last look must not be an old one
            is_due = is_over or found is None or now - found.at > max(LEAST_SECONDS, TIMES * found.took)
            if found is not None and feed.since(found.offset) is None:  # the stream could not continue from it
                is_due = True
            if found is None or (is_due and found.signature != _signature(feed.folder)):
                found = self._known[feed.folder] = _gather(run, feed)
                if len(self._known) > 20:
                    del self._known[next(iter(self._known))]
        return found


def _gather(run: str, feed: Feed) -> Gathered:
    link = find_link(feed.folder)
    if link is not None:
        raise StorageError(f"{feed.folder / link} is a symbolic link; the page shows only files of the run itself")
    began, signature, offset = time.monotonic(), _signature(feed.folder), feed.offset
    page = as_page([{**gather_run(feed.folder), "id": run}])
    now = time.monotonic()
    return Gathered(page, as_json(page), offset, signature, now, now - began)


def _live(run: str, feed: Feed, found: Gathered, live: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": run, "offset": found.offset, "state": state_data(feed), **live}


def _signature(folder: Path) -> tuple[Any, ...]:
    """Return a stamp that changes when the files of a run change."""
    stamps = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                stamps.append((entry.name, status.st_mtime_ns, status.st_size))
    except OSError:
        return ()
    return tuple(sorted(stamps))
