"""A real browser for the tests of pages: one headless Chromium per test process, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from hookline import Runner
from hookline.report.gather import gather
from hookline.report.page import make_page, write_page

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
DIGITS = Path(__file__).parents[2] / "src/hookline/data/digits.yaml"

OpenPage = Callable[..., Page]


def find_chromium() -> str:
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.fail("these tests need Chromium: apt-get install chromium, or set CHROMIUM=/path/to/chromium")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open a file without a network. At the end, no script may have failed, and nothing may have been requested."""
    problems: list[str] = []
    contexts: list[Any] = []

    def note_request(url: str, path: Path) -> None:
        if url != path.as_uri() and not url.startswith("data:"):
            problems.append(f"request: {url}")

    def note_message(kind: str, text: str) -> None:
        if "willReadFrequently" not in text:  # the tests read canvases, the page does not
            problems.append(f"{kind}: {text}")

    def open_it(path: Path, width: int = 1280, scheme: Any = "light", height: int = 900) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: note_message(message.type, message.text))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: note_request(request.url, path))
        page.goto(path.as_uri())
        page.wait_for_selector("footer")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


def write_report(path: Path, *folders: Path) -> Path:
    """Write the page about some folders, and return its path."""
    write_page(path, make_page(gather(*folders)))
    return path


def train_digits(folder: Path, *overrides: str) -> Path:
    runner = Runner.from_config(
        DIGITS,
        overrides=[
            *(f"work_dir={folder}", "model.width=4", "train.max_epochs=4", "train.limit_batches=6"),
            *("val.limit_batches=1", "default_hooks.logger.interval=1", "default_hooks.checkpoint.interval=2"),
            *("default_hooks.checkpoint.save_best=accuracy", "custom_hooks=[]", *overrides),
        ],
    )
    runner.terminal.quiet = True
    runner.train()
    return folder


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a real run with validation, checkpoints and images."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return train_digits(
        folder, "custom_hooks=[{type: VisualizationHook, max_images: 4}]", "writers=[jsonl, tensorboard]"
    )


@pytest.fixture(scope="session")
def other_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same run with another learning rate, and with a hook more."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    return train_digits(folder, "optim.optimizer.lr=0.05", "custom_hooks=[{type: EMAHook}]")
