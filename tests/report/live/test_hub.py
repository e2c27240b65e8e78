"""The hub: the files are read once for all pages, and a page that is too slow is dropped."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hookline.report.live import changes
from hookline.report.live import hub as hub_module
from hookline.report.live import pages as pages_module
from hookline.report.live.alerts import Alerts
from hookline.report.live.changes import MOST_AT_ONCE, Feed, Tail
from hookline.report.live.folder import Watched
from hookline.report.live.hub import END, Hub
from hookline.report.live.pages import Pages
from hookline.testing import toy_runner


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    return Hub(Watched(tmp_path), Alerts([], []))


def add(hub: Hub, step: int) -> None:
    (feed,) = hub.feeds.values()
    with open(feed.folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "train/loss": 1.0}) + "\n")


def test_twenty_pages_get_what_is_read_and_written_as_json_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = Tail._lines

    def lines(self: Tail, cut: bool) -> list[bytes]:
        read.append(1)
        return whole(self, cut)

    async def follow() -> list[Any]:
        (run,) = hub.feeds
        async with AsyncExitStack() as pages:
            queues = [await pages.enter_async_context(hub.following(run)) for _ in range(20)]
            add(hub, 9)
            hub.look(hub.pass_on)
            return [queue.get_nowait() for queue in queues if queue is not None]

    hub.look(hub.pass_on)
    monkeypatch.setattr(Tail, "_lines", lines)
    messages = asyncio.run(follow())
    assert len(read) == 1
    assert len(messages) == 20
    assert len({id(message["data"]) for message in messages}) == 1
    assert json.loads(messages[0]["data"])["records"] == [{"step": 9, "train/loss": 1.0}]
    assert hub.clients == 0


def test_a_slow_page_is_dropped_and_the_others_continue(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MOST_WAITING", 3)

    async def follow() -> tuple[list[Any], int]:
        (run,) = hub.feeds
        async with hub.following(run) as slow, hub.following(run) as fast:
            assert slow is not None
            assert fast is not None
            taken = 0
            for step in range(5, 10):
                add(hub, step)
                hub.look(hub.pass_on)
                fast.get_nowait()
                taken += 1
            assert hub.clients == 1
            return [slow.get_nowait() for _ in range(slow.qsize())], taken

    left, taken = asyncio.run(follow())
    assert left == [END]
    assert taken == 5


def test_there_is_a_limit_of_pages(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MOST_CLIENTS", 2)

    async def follow() -> list[bool]:
        async with hub.following("") as one, hub.following("") as two, hub.following("") as three:
            return [each is not None for each in (one, two, three)]

    assert asyncio.run(follow()) == [True, True, False]


def test_a_tail_reads_only_what_is_new_and_only_the_end_at_first(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one\ntwo\nthree\n")
    tail = Tail(path, at_start=8)
    assert tail.read() == ([b"three"], False)
    assert tail.read() == ([], False)
    with open(path, "a") as file:
        file.write("four\nfi")
    assert tail.read() == ([b"four"], False)
    with open(path, "a") as file:
        file.write("ve\n")
    assert tail.read() == ([b"five"], False)
    path.write_text("new\n")
    assert tail.read() == ([b"new"], True)
    path.unlink()
    assert tail.read() == ([], True)
    assert tail.read() == ([], False)
    path.write_text("again\n")
    assert tail.read() == ([b"again"], False)
    (tmp_path / "long").write_bytes(b"x" * (MOST_AT_ONCE + 5) + b"\ny\n")
    endless = Tail(tmp_path / "long", at_start=10 * MOST_AT_ONCE)
    assert endless.read() == ([b"x" * MOST_AT_ONCE], False)
    assert endless.read() == ([b"xxxxx", b"y"], False)


def test_lines_that_are_not_records_are_left_out(hub: Hub) -> None:
    (feed,) = hub.feeds.values()
    with open(feed.folder / "metrics.jsonl", "a") as file:
        file.write('[]\n{\n"x"\n{"step": 20, "train/loss": 1e999}\n' + "[" * 10_000 + "\n")
    change = Feed(feed.folder).batches
    assert change[-1].records[-1] == {"step": 20, "train/loss": None}


def test_numbers_beyond_all_floats_do_not_end_the_hub(hub: Hub) -> None:
    (feed,) = hub.feeds.values()
    huge = "1" + "0" * 400
    with open(feed.folder / "metrics.jsonl", "a") as file:
        file.write(f'{{"step": 20, "train/loss": {huge}}}\n{{"global_step": {huge}, "a": 1, "note": "x"}}\n')
    with open(feed.folder / "events.jsonl", "a") as file:
        file.write(f'{{"time": {huge}, "step": NaN, "epoch": 0, "kind": "start"}}\n')
        file.write('{"time": 5, "step": 6, "epoch": 1, "kind": "action", "id": "x", "state": NaN}\n')
    sent: list[dict[str, Any]] = []
    hub.look(lambda topic, message: sent.append(json.loads(hub_module.as_text(message)["data"])))
    assert sent[0]["records"] == [{"step": 20, "train/loss": None}]
    assert sent[1] == {"time": 5, "step": 6, "epoch": 1, "kind": "action", "id": "x", "state": None}


def test_a_page_is_served_while_a_look_adds_records_and_removes_runs(hub: Hub) -> None:
    """A look has a thread of its own. Here, it happens in the middle of an answer."""
    (feed,) = hub.feeds.values()

    class Growing(str):
        __slots__ = ()

        def rpartition(self, sign: str | None) -> Any:
            hub.feeds.clear()
            feed.newest.clear()
            feed.newest["another"] = (2, 2.0)
            return super().rpartition(sign or "/")

    class Late:
        begin = 0

        @property
        def end(self) -> int:
            feed.batches.append(feed.batches[0])
            return feed.offset + 1

    feed.newest.clear()
    feed.newest[Growing("val/loss")] = (1, 1.0)
    assert [row["newest"] for row in hub.rows().values()] == [{"name": "val/loss", "step": 1, "value": 1.0}]
    late: Any = Late()
    feed.batches.append(late)
    assert feed.since(0) is not None


def test_an_unforeseen_error_is_reported_once_and_the_hub_looks_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = []

    def look(pass_on: object) -> None:
        looks.append(pass_on)
        if len(looks) < 3:
            raise ValueError("unforeseen")

    async def follow() -> None:
        async with hub.running():
            while len(looks) < 4:
                await asyncio.sleep(0.001)

    monkeypatch.setattr("hookline.report.live.hub.INTERVAL", 0.001)
    monkeypatch.setattr(hub, "look", look)
    asyncio.run(follow())
    assert [record.getMessage() for record in caplog.records] == ["the runs cannot be read; trying again every 0.001 s"]


def test_the_work_of_the_server_does_not_grow_with_the_number_of_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls that open files, parse records and gather a page are the same for one page and for twenty."""
    counted: Counter[str] = Counter()

    def counting(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(*args: Any, **options: Any) -> Any:
            counted[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(place, name, call)

    def work(number: int) -> dict[str, int]:
        folder = tmp_path / str(number)
        toy_runner(max_epochs=1, work_dir=folder).train()
        hub = Hub(Watched(folder), Alerts([], []))
        ((run, feed),) = hub.feeds.items()
        pages = Pages()
        counted.clear()

        async def follow() -> None:
            async with AsyncExitStack() as opened:
                for _ in range(number):
                    pages.of(run, feed, {})
                    pages.text_of(run, feed, {})
                    await opened.enter_async_context(hub.following(run))
                for step in range(5, 25):
                    add(hub, step)
                    hub.look(hub.pass_on)
                    for _ in range(number):
                        pages.text_of(run, feed, {})

        asyncio.run(follow())
        return dict(counted)

    monkeypatch.setattr(pages_module, "LEAST_SECONDS", 3600)
    monkeypatch.setattr(pages_module, "state_data", lambda feed: {})
    for place, name in ((changes, "parse"), (Tail, "_lines"), (pages_module, "gather_run"), (hub_module, "as_text")):
        counting(place, name)
    one, twenty = work(1), work(20)
    assert one["parse"] == one["_lines"] == 20
    assert one["as_text"] == 20
    assert twenty == one
