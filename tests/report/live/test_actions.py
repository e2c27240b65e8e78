"""The four actions, asked for in a real browser: of a run of one process, and of a run of two processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline.rundir import control, journal
from tests.distributed.processes import running
from tests.report.live.conftest import serving
from tests.telling import telling

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.processes

#: With one process, an epoch has 8 iterations; with two, 4.
CONFIG = """
model: {type: torch.nn.Linear, in_features: 4, out_features: 2}
train:
  dataloader: {dataset: {type: parts.samples}, batch_size: 4}
  max_epochs: 100000
  val_interval: 100000
  step: cross_entropy
val: {dataloader: {dataset: {type: parts.samples}, batch_size: 4}, loss: cross_entropy}
optim: {optimizer: {type: SGD, lr: 0.1}}
default_hooks: {checkpoint: {interval: 100000}, logger: {interval: 1}}
custom_hooks: [{type: parts.Tell}]
"""
PARTS = telling(samples=32, seconds=0.02)
LABELS = {"stop_after_step": "Stop after this step", "stop_after_epoch": "Stop after this epoch"}


@pytest.mark.parametrize("stop", ["stop_after_step", "stop_after_epoch"])
@pytest.mark.parametrize(
    "processes", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.distributed)]
)
def test_each_action_works_on_a_real_run(tmp_path: Path, visit: Callable[..., Page], processes: int, stop: str) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "parts.py").write_text(PARTS)
    folder, actions = tmp_path / "runs" / "run", ("save", "validate", stop)
    command = (sys.executable, "-m", "hookline", "train", "run.yaml", "--nproc", str(processes))
    with running(*command, cwd=tmp_path) as training:
        training.until(lambda: (folder / "metrics.jsonl").exists())
        with serving(folder) as url:
            reader = visit(url, token="")
            reader.locator("#live", has_text="it has the token").wait_for()
            assert reader.locator("[data-action]").count() == 0, "without the token, a page can only look"
            page = visit(url)
            orders = page.locator("[data-order=done]")
            for number, action in enumerate(actions, 1):
                page.click(f"[data-action={action}]")
                if action == stop:
                    assert page.locator(f"[data-action={action}]").inner_text() == "Really stop? Click again"
                    page.click(f"[data-action={action}]")
                orders.nth(number - 1).wait_for()
            page.locator("#status.stopped").wait_for()
            assert training.wait() == 0, training.output()
            answers = [event for event in journal.read(folder) if event["kind"] == "action"]
            assert [(each["name"], each["state"], each["by"]) for each in answers] == [
                (action, "done", "hookline watch") for action in actions
            ]
            saved, validated, stopped = (f"{each['step']:,}" for each in answers)
            assert orders.all_inner_texts() == [
                f"{LABELS[stop]}: stopped at step {stopped}",
                f"Validate now: validated at step {validated}",
                f"Save now: saved at step {saved} ({answers[0]['file']})",
            ]
    assert (folder / answers[0]["file"]).is_file()
    assert not (folder / control.NAME).exists()
    told = [f"validated {answers[1]['step']}", f"ended {answers[2]['step']}"]
    assert [(tmp_path / f"rank_{rank}.txt").read_text().splitlines() for rank in range(processes)] == [told] * processes
    if stop == "stop_after_epoch":
        assert answers[2]["step"] % (8 // processes) == 0
