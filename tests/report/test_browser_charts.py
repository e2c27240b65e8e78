"""Charts and printed pages in a real browser: what a reader could misread."""

from __future__ import annotations

import json
import math
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.conftest import OpenPage, write_report
from tests.report.test_browser import TRAIN, chart_box, count_pixels, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.processes


def plot(page: Page, title: str, expression: str) -> Any:
    """Evaluate an expression about a chart and its plot."""
    page.locator(f'[data-chart="{title}"]').scroll_into_view_if_needed()
    page.locator(f'[data-chart="{title}"] canvas').wait_for()
    found = f"const chart = document.querySelector('[data-chart=\"{title}\"] .plot').chart, plot = chart.plot;"
    return page.evaluate(f"() => {{ {found} return {expression}; }}")


def as_events(*events: dict[str, Any]) -> str:
    return "".join(json.dumps({"time": 1, "epoch": 0, **event}) + "\n" for event in events)


def test_the_axis_reaches_a_failure_after_the_last_record_and_its_mark_is_drawn(
    tmp_path: Path, open_page: OpenPage
) -> None:
    failure = {"kind": "failure", "step": 30, "text": "ValueError: boom"}
    events = as_events({"kind": "start", "step": 0}, failure, {"kind": "end", "step": 30, "code": 1})
    records = [{"step": step, "train/loss": 1.0} for step in (9, 18, 27)]
    folder = write_run(tmp_path / "failed", records, **{"events.jsonl": events})
    page = open_page(write_report(tmp_path / "report.html", folder))
    assert plot(page, "loss", "[plot.scales.x.min, plot.scales.x.max]") == [9, 30]
    column = "plot.ctx.getImageData(plot.bbox.left + plot.bbox.width - 1, plot.bbox.top, 1, plot.bbox.height).data"
    assert plot(page, "loss", f"[...{column}].filter((level, at) => at % 4 === 3).every((alpha) => alpha > 100)")
    assert page.locator(".verdict .sentence").inner_text() == "The run failed at step 30."


def test_the_pointer_names_the_step_of_a_value_from_another_step(tmp_path: Path, open_page: OpenPage) -> None:
    records = [{"step": step, "train/loss": step / 10, **({"val/loss": 7.5} if step == 4 else {})} for step in range(9)]
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "run", records)))
    box = chart_box(page, "loss")
    tip = page.locator('[data-chart="loss"] .tip')
    page.mouse.move(box["x"] + box["width"] * 6 / 8, box["y"] + 60)
    tip.wait_for(state="visible")
    assert tip.inner_text().split("\n") == ["step 6", "train", "0.6", "val", "7.5", "at step 4"]
    page.mouse.move(box["x"] + box["width"] * 4 / 8, box["y"] + 60)
    assert tip.inner_text().split("\n") == ["step 4", "train", "0.4", "val", "7.5"]


def test_noise_in_memory_does_not_fill_an_axis(tmp_path: Path, open_page: OpenPage) -> None:
    samples = [{"step": step, "resident": (500 + step % 2 / 2) * 2**20, "tensors": 0} for step in range(1, 20)]
    costs = {"version": 1, "seconds": 1.0, "hooks": [], "parts": {}, "memory": samples}
    folder = write_run(tmp_path / "run", [{"step": 20, "train/loss": 1.0}], **{"hooks.json": json.dumps(costs)})
    page = open_page(write_report(tmp_path / "report.html", folder))
    low, high = plot(page, "resident memory (MiB)", "[plot.scales.y.min, plot.scales.y.max]")
    assert (low, high) == (0, pytest.approx(550.55))
    low, high = plot(page, "tensors of model, optimizer and hooks (MiB)", "[plot.scales.y.min, plot.scales.y.max]")
    assert (low, high) == (0, 1)


@pytest.mark.parametrize("count", [1500, 30_000])
def test_a_long_noisy_curve_is_a_line_of_means_over_pale_values(
    count: int, tmp_path: Path, open_page: OpenPage
) -> None:
    records = [{"step": step, "train/loss": 5 + 4 * (-1) ** step, "train/few": 1.0} for step in range(1, count + 1)]
    del records[3]["train/few"]
    for record in records[20:]:
        del record["train/few"]
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "run", records)))
    lines = plot(page, "loss", "chart.drawn.map(({ pale, told, y }) => [pale, told, Math.min(...y), Math.max(...y)])")
    (_, _, low, high), (_, _, low_mean, high_mean) = lines
    assert [line[:2] for line in lines] == [[True, True], [False, False]]
    assert (low, high, low_mean, high_mean) == (1, 9, pytest.approx(5, abs=1), pytest.approx(5, abs=1))
    assert 100 < count_pixels(page, "loss", TRAIN) < 10_000  # a block has more than 40,000
    assert plot(page, "loss", "chart.legend.innerText").split("\n") == ["train", "means over pale values"]
    page.evaluate("window.hookline.charts.zoomTo({ min: 1, max: 20 })")
    page.wait_for_function("document.querySelector('[data-chart=\"loss\"] .plot').chart.plot.scales.x.max === 20")
    assert plot(page, "few", "chart.drawn.length") == 1


def test_a_long_smooth_curve_keeps_its_form(tmp_path: Path, open_page: OpenPage) -> None:
    records = [{"step": step, "train/loss": math.exp(-step / 500)} for step in range(1, 1501)]
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "run", records)))
    x, y = plot(page, "loss", "[chart.drawn[1].x, chart.drawn[1].y]")
    assert len(x) > 100
    assert y == [pytest.approx(math.exp(-step / 500), abs=0.01) for step in x]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_printed_page_has_its_bars_in_light_colors(
    scheme: str, digits: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits), scheme=scheme)
    before = page.locator(".part").first.evaluate("(part) => part.style.background")
    printed = page.pdf()
    streams = re.findall(rb"stream\r?\n(.*?)endstream", printed, re.DOTALL)
    colors: set[bytes] = set()
    for stream in streams:
        try:
            text = zlib.decompress(stream)
        except zlib.error:
            continue
        colors.update(re.findall(rb"[\d.]+ [\d.]+ [\d.]+ rg", text))
    assert b".1216 .6157 .3804 rg" in colors  # backward, in the bar of times; no curve has this color
    assert b".3373 .8118 .5804 rg" not in colors  # the same in dark
    assert page.locator(".part").first.evaluate("(part) => part.style.background") == before
