"""Take the pictures of the documentation: `python -m tests.report.pictures`. One of its runs is killed and resumed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from hookline import Runner
from tests.report.conftest import ARGUMENTS, DIGITS, find_chromium, write_report
from tests.report.live.conftest import TOKEN, serving

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOOKS = "custom_hooks=[{type: VisualizationHook, interval: 2}, {type: EMAHook, momentum: 0.01}]"


def train(name: str, lr: str, killed_at: str = "", resume: str = "") -> None:
    """Train a run in this process, which ends at once at `killed_at`."""
    runner = Runner.from_config(
        DIGITS,
        overrides=[
            *(f"work_dir=runs/{name}", f"optim.optimizer.lr={lr}", "train.max_epochs=12", HOOKS),
            *("train.dataloader.batch_size=32", "default_hooks.logger.interval=1", "writers=[jsonl, tensorboard]"),
            *("default_hooks.checkpoint.interval=3", "default_hooks.checkpoint.save_best=accuracy"),
        ],
    )
    runner.terminal.quiet = True
    runner._host.start.contract.choices.resume = bool(resume)

    def kill(runner: Any) -> None:
        if killed_at and runner.iter == int(killed_at):
            os._exit(9)

    runner.on("after_train_iter")(kill)
    runner.train()
    runner.test()


def start(*words: str) -> subprocess.Popen[bytes]:
    """Train a run in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-m", "tests.report.pictures", *words], env=environment)


def take() -> None:
    """Train the runs, and take the pictures."""
    os.chdir(tempfile.mkdtemp())
    for words in (("digits", "0.005", "180"), ("digits", "0.005", "", "resume"), ("fast", "0.02"), ("slow", "0.001")):
        start(*words).wait()
    folders = [Path("runs") / name for name in ("digits", "fast", "slow")]
    pages: list[tuple[str, Path, Any, int]] = [
        ("report", write_report(Path("one.html"), folders[0]), "light", 740),
        ("report-compare", write_report(Path("all.html"), *folders), "dark", 1010),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        for name, path, scheme, height in pages:
            page = browser.new_page(viewport={"width": 1100, "height": height}, color_scheme=scheme)
            page.goto(path.resolve().as_uri())
            page.wait_for_selector("canvas")
            page.screenshot(path=IMAGES / f"{name}.png")
        take_live(browser)
        browser.close()


def take_live(browser: Browser) -> None:
    """Train another run, watch it, and take the picture of the live page after a save was asked for."""
    training, records = start("live", "0.005"), Path("runs/live/metrics.jsonl")
    while not (records.exists() and records.stat().st_size > 30_000):
        assert training.poll() is None, "the run ended before the picture was taken"
        time.sleep(0.1)
    with serving(Path("runs/live")) as url:
        page = browser.new_page(viewport={"width": 1100, "height": 740})
        page.goto(f"{url}/?token={TOKEN}")
        page.click("[data-action=save]")
        page.locator("[data-order=done]").wait_for()
        page.evaluate("() => { hookline.data.runs[0].path = 'runs/live'; hookline.redraw(); }")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "watch.png")
    training.kill()
    training.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(*sys.argv[1:])
    else:
        take()
