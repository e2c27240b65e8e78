"""The progress display in a real Jupyter kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from hookline.screen.notebook import ends_with_train, in_notebook
from hookline.testing import toy_model

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

CELL = """
import threading

from hookline.hooks import ProgressHook
from hookline.screen import refresh
from hookline.screen.notebook import NotebookDisplay
from hookline.testing import toy_runner

refresh.PAUSE, refresh.SHARE = 0.001, float("inf")
drawn, draw = threading.Event(), NotebookDisplay.draw

def note(display, picture):
    draw(display, picture)
    if threading.current_thread() is not threading.main_thread():
        drawn.set()

def wait_for_a_drawing():
    for _ in range(2):  # the first one may have begun before
        drawn.clear()
        assert drawn.wait(60)

NotebookDisplay.draw = note
parts = {"max_epochs": 2, "batches": 3, "default_hooks": {"logger": {"interval": 1}}}
runner = toy_runner(custom_hooks=[ProgressHook()], quiet=False, **parts)
for point in ("after_train_iter", "after_val_iter"):
    runner.on(point, priority=100)(wait_for_a_drawing)
runner.train()
print("the cell goes on", [thread.name for thread in threading.enumerate() if "display" in thread.name])
"""


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    manager = KernelManager(transport="ipc", kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def outputs(client: BlockingKernelClient, code: str) -> list[tuple[str, Any]]:
    """Return what a cell shows, in order: the kind of each output, and its text or HTML."""
    asked, found = client.execute(code), list[tuple[str, Any]]()
    while True:
        try:
            message = client.get_iopub_msg(timeout=120)
        except Empty:
            raise AssertionError(f"the kernel stays silent after {found}") from None
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != asked:
            continue
        if kind == "status" and content["execution_state"] == "idle":
            return found
        if kind == "stream":
            found += [(kind, line) for line in content["text"].splitlines()]
        elif kind == "execute_result":
            found.append((kind, content["data"]["text/plain"]))
        elif kind in ("display_data", "update_display_data"):
            found.append((kind, content["data"]["text/html"]))
        elif kind == "error":
            raise AssertionError("\n".join(content["traceback"]))


@pytest.mark.long
def test_in_a_notebook_one_output_is_updated_and_cleared_at_the_end(kernel: BlockingKernelClient) -> None:
    shown = outputs(kernel, CELL)
    assert shown[0] == ("display_data", "")
    drawings = [html for kind, html in shown if kind == "update_display_data"]
    assert drawings[-1] == ""
    pictures = [str(re.sub("</?pre>| [━─]+ ", "", html)).splitlines() for html in drawings[:-1]]
    seen = [(" ".join(lines[0].split()[:3]), *lines[2:]) for lines in pictures]
    in_between = {"saving epoch_1.pth", "saving epoch_2.pth", "val 0/2"}  # shown if a drawing falls into that moment
    assert list(dict.fromkeys(state for state in seen if in_between.isdisjoint(state))) == [
        ("epoch 1/2 0/6",),
        ("epoch 1/2 1/6",),
        ("epoch 1/2 2/6",),
        *[("epoch 1/2 3/6",)] * (("epoch 1/2 3/6",) in seen),  # between the last batch and the validation
        ("epoch 1/2 3/6", "val 1/2"),
        ("epoch 1/2 3/6", "val 2/2"),
        ("epoch 2/2 3/6",),
        ("epoch 2/2 4/6",),
        ("epoch 2/2 5/6",),
        *[("epoch 2/2 6/6",)] * (seen.index(("epoch 2/2 6/6",)) < seen.index(("epoch 2/2 6/6", "val 1/2"))),
        ("epoch 2/2 6/6", "val 1/2"),
        ("epoch 2/2 6/6", "val 2/2"),
        *[("epoch 2/2 6/6",)] * (seen.index(("epoch 2/2 6/6",)) > seen.index(("epoch 2/2 6/6", "val 1/2"))),
    ]
    assert [text for kind, text in shown if kind == "stream"] == [
        "epoch 1  val  accuracy 0.7500  train loss 0.6904",
        "epoch 2  val  accuracy 0.9375  train loss 0.6415",
        "the cell goes on []",
    ]


TRAINING = """
from hookline.testing import toy_runner

runner = toy_runner(max_epochs=1)
runner.train()
"""


def test_a_cell_that_ends_with_train_shows_no_module_but_one_that_ends_with_the_model_does(
    kernel: BlockingKernelClient,
) -> None:
    module = repr(toy_model())
    assert outputs(kernel, TRAINING) == []
    assert outputs(kernel, "_ is runner.model, Out[1] is runner.model") == [("execute_result", "(True, True)")]
    assert outputs(kernel, "%time runner.train()")[2:] == []  # the times are lines of the standard output
    assert outputs(kernel, "trained = runner.train()\ntrained") == [("execute_result", module)]
    assert outputs(kernel, "runner.model") == [("execute_result", module)]
    assert outputs(kernel, "from hookline.testing import toy_model\ntoy_model().train()") == [
        ("execute_result", module)
    ]


def test_the_last_expression_decides() -> None:
    assert [
        ends_with_train(cell)
        for cell in ("runner.train()", "a = 1\nfit(x).train()\n", "runner.train", "x = runner.train()", "", "a(")
    ] == [True, True, False, False, False, False]


def test_a_plain_process_is_no_notebook() -> None:
    assert not in_notebook()
