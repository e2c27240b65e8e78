"""The live page in a real browser: it follows a training, shows a kill, and treats names as text."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline.report.live import hub as hub_module
from hookline.rundir import journal, ownership
from hookline.testing import toy_runner
from tests.distributed.processes import running
from tests.report.live.conftest import serving, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.processes

HOSTILE = "<img src=x onerror=alert(1)>"
TRAINING = """
import sys, time
from hookline.testing import toy_runner

runner = toy_runner(max_epochs=100000, work_dir=sys.argv[1], quiet=True, default_hooks={"logger": {"interval": 1},
    "checkpoint": {"interval": 100000}}, config={"experiment_name": "slow"})
runner.on("after_train_iter")(lambda runner: time.sleep(0.05))
runner.train()
"""


def link_in(page: Page) -> str:
    """Return the path of the only run in a list."""
    return str(page.locator("#list a").get_attribute("href")).partition("?")[0]


def points(page: Page) -> int:
    found = page.evaluate(
        "() => window.hookline.data.runs[0].metrics.find((m) => m.name === 'train/loss').steps.length"
    )
    return int(found)


def test_the_page_follows_a_training_and_shows_that_it_was_killed(tmp_path: Path, visit: Callable[..., Page]) -> None:
    folder = tmp_path / "runs" / "slow"
    with running(sys.executable, "-c", TRAINING, str(folder), cwd=tmp_path) as training:
        training.until(lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 200)
        with serving(tmp_path / "runs", "died") as url:
            listed = visit(url)
            listed.locator("[data-state=running]").first.wait_for()
            page = visit(url, link_in(listed))
            page.locator("#status.running").wait_for()
            before = points(page)
            wait_for(lambda: points(page) >= before + 10)
            assert page.locator("#connection").inner_text() == "live"
            assert page.locator("#sentence").inner_text().startswith("running")
            page.screenshot(path=tmp_path / "running.png")
            training.send(9)
            training.wait()
            page.locator("#status.killed").wait_for()
            listed.locator("#list [data-state=killed]").wait_for()
            for each in (page, listed):
                each.locator(".alert", has_text="its process disappeared").wait_for()
            assert "its process disappeared" in page.locator("#sentence").inner_text()
            assert page.locator("[data-action=save]").is_disabled()
            assert page.title() == "killed: slow · hookline"


def test_hostile_names_are_text(tmp_path: Path, visit: Callable[..., Page]) -> None:
    runner = toy_runner(
        max_epochs=2,
        work_dir=tmp_path / HOSTILE,
        config={"experiment_name": "<script>alert(1)</script>", HOSTILE: HOSTILE},
        default_hooks={"logger": {"interval": 1}},
    )
    runner.on("after_train_iter")(lambda runner: runner.hub.update_scalar(f"train/{HOSTILE}", 1.0))
    runner.on("after_train_iter")(lambda runner: runner.stop(HOSTILE) if runner.iter == 5 else None)
    runner.train()
    with open(tmp_path / HOSTILE / journal.NAME, "a") as file:
        action = {"name": HOSTILE, "by": HOSTILE, "id": HOSTILE, "state": HOSTILE, "reason": HOSTILE}
        file.write(json.dumps({"time": 5, "step": 6, "epoch": 0, "kind": "action", **action}) + "\n")
    with serving(tmp_path) as url:
        listed = visit(url)
        listed.locator("#list a", has_text=HOSTILE).wait_for()
        page = visit(url, link_in(listed))
        page.locator("h1", has_text="<script>alert(1)</script>").wait_for()
        page.locator("#sentence", has_text=HOSTILE).wait_for()
        page.locator("#orders", has_text=HOSTILE).wait_for()
        assert page.locator("img").count() == listed.locator("img").count() == 0


@pytest.mark.long
def test_a_hundred_runs_are_one_list_that_follows_them(
    tmp_path: Path, visit: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "SEARCH", 0.5)
    toy_runner(max_epochs=1, work_dir=tmp_path / "0").train()
    for number in range(1, 100):
        shutil.copytree(tmp_path / "0", tmp_path / str(number))
    with serving(tmp_path) as url:
        page = visit(url, color_scheme="dark")
        page.locator("#list tbody tr").nth(99).wait_for()
        assert page.locator("#counts").inner_text().split() == ["finished", "100"]
        shutil.rmtree(tmp_path / "7")
        start = {"time": time.time(), "step": 9, "epoch": 1, "kind": "start"}
        with open(tmp_path / "42" / journal.NAME, "a") as file:
            file.write(json.dumps(start) + "\n")
        page.locator("#list tbody tr [data-state=killed]").wait_for()
        assert page.locator("#list tbody tr").first.inner_text().split()[:3] == ["killed", "42", "9"], (
            "the worst on top"
        )
        wait_for(lambda: page.locator("#counts").inner_text().split() == ["killed", "1", "finished", "98"])
        page.screenshot(path=tmp_path / "list.png")


@pytest.mark.long
def test_a_page_continues_after_the_server_was_away(tmp_path: Path, visit: Callable[..., Page]) -> None:
    """A browser that connects again gets what it missed."""
    toy_runner(max_epochs=1, work_dir=tmp_path, default_hooks={"logger": {"interval": 1}}).train()
    with serving(tmp_path) as url, ownership.locked(tmp_path):
        page = visit(url)
        before = points(page)
        page.context.set_offline(True)
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.writelines(json.dumps({"step": step, "train/loss": 0.1}) + "\n" for step in range(100, 110))
        page.context.set_offline(False)
        wait_for(lambda: points(page) == before + 10)
