"""The page in a real browser, opened from a file, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline.cli import main
from hookline.report.gather import gather
from hookline.report.page import make_page, write_page
from hookline.testing import toy_runner
from tests.report.conftest import OpenPage, write_report

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

pytestmark = pytest.mark.processes

#: Counts the pixels of a canvas that are nearly of a color: the lines of a chart.
COUNT_PIXELS = """([title, color]) => {
  const canvas = document.querySelector(`[data-chart="${title}"] canvas`);
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const wanted = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 200 && wanted.every((level, number) => Math.abs(level - data[at + number]) < 12)) count += 1;
  }
  return count;
}"""
TRAIN, VAL = "#2f5fd0", "#e2711d"


def run_command(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["hookline", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code in (None, 0)


def count_pixels(page: Page, chart: str, color: str) -> int:
    canvas = page.locator(f'[data-chart="{chart}"]')
    canvas.scroll_into_view_if_needed()
    canvas.locator("canvas").wait_for()
    return int(page.evaluate(COUNT_PIXELS, [chart, color]))


def chart_box(page: Page, title: str) -> FloatRect:
    box = page.locator(f'[data-chart="{title}"] .u-over').bounding_box()
    assert box is not None
    return box


def write_run(folder: Path, records: list[dict[str, Any]], **files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "run.log").write_text("2026-01-02 03:04:05  started\n")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def section_titles(page: Page) -> list[str]:
    """Return the titles, without that of memory: how often it is looked at depends on the time."""
    return [title for title in page.locator("h2").all_inner_texts() if title != "Memory"]


def test_the_report_of_a_real_run_shows_every_section_and_draws_curves(
    digits: Path, open_page: OpenPage, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["report", str(digits)])
    assert capsys.readouterr().out.endswith("MB)\n")
    page = open_page(digits / "report.html")
    assert page.title() == "digits · hookline"
    assert section_titles(page) == [
        *("Verdict", "Summary", "Curves", "Learning rate", "Time per step", "Images", "Hooks", "Checkpoints"),
        "Config and environment",
    ]
    assert page.locator("#verdict .verdict").count() == 1
    assert page.locator(".tile-label").all_inner_texts()[0] == "steps"
    assert page.locator(".tile-value").all_inner_texts()[0] == "24"
    assert page.locator("#charts [data-chart]").evaluate_all("all => all.map((each) => each.dataset.chart)") == [
        *("loss", "accuracy"),
    ]
    assert count_pixels(page, "loss", TRAIN) > 200
    assert count_pixels(page, "loss", VAL) > 50
    assert count_pixels(page, "accuracy", VAL) > 50
    names = page.locator("#checkpoints tbody tr td:first-child").all_inner_texts()
    assert "epoch_4.pth" in names
    assert any(name.startswith("best_accuracy_epoch_") for name in names)


def test_the_plan_shows_the_hooks_of_every_point_in_order(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    hooks = page.locator('[data-point="after_train_iter"] .chip-name').all_inner_texts()
    assert hooks == ["RuntimeInfoHook", "IterTimerHook", "LoggerHook", "ParamSchedulerHook"]
    inside = page.locator('[data-scope="train_epoch"] [data-scope="train_iter"] [data-scope="forward"]')
    assert inside.inner_text() == "forward\nyour step"
    assert page.locator('[data-point="before_backward"]').count() == 0
    page.get_by_label("points without hooks").check()
    assert page.locator('[data-point="before_backward"]').count() == 1


def test_smoothing_log_scale_and_marks_change_the_drawing(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))

    def picture() -> str:
        return str(page.evaluate("document.querySelector('[data-chart=\"loss\"] canvas').toDataURL()"))

    plain = picture()
    page.locator("#smoothing").fill("0.9")
    assert page.locator("output").inner_text() == "0.90"
    smoothed = picture()
    page.get_by_label("log scale").check()
    logarithmic = picture()
    page.get_by_label("marks", exact=True).uncheck()
    without_marks = picture()
    assert len({plain, smoothed, logarithmic, without_marks}) == 4
    page.get_by_label("marks", exact=True).check()
    page.get_by_label("log scale").uncheck()
    page.locator("#smoothing").fill("0")
    assert picture() == plain


def test_the_pointer_shows_the_values_of_the_nearest_step(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    box = chart_box(page, "loss")
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 60)
    tip = page.locator('[data-chart="loss"] .tip')
    tip.wait_for(state="visible")
    records = [json.loads(line) for line in (digits / "metrics.jsonl").read_text().splitlines()]
    train = [record["train/loss"] for record in records if "train/loss" in record][-1]
    val = [record["val/loss"] for record in records if "val/loss" in record][-1]
    step, *values = tip.inner_text().split("\n")
    assert step == "step 24"
    assert values[0:4:2] == ["train", "val"]
    assert [float(values[1]), float(values[3])] == [pytest.approx(train, rel=1e-4), pytest.approx(val, rel=1e-4)]
    assert any("epoch_4.pth" in line for line in values[4:])


def test_dragging_zooms_all_charts_and_a_button_resets_them(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    button = page.locator("#unzoom")
    assert button.is_disabled()
    box = chart_box(page, "loss")
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=4)
    page.mouse.up()
    zoom = page.evaluate("window.hookline.state.zoom")
    assert 5 < zoom["min"] < 8
    assert 11 < zoom["max"] < 14
    button.click()
    assert page.evaluate("window.hookline.state.zoom") is None
    assert button.is_disabled()


def test_the_slider_of_images_shows_the_image_of_each_validation(
    digits: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    figure = page.locator("#images figure")
    assert figure.locator(".chart-title").inner_text() == "val/images"
    steps = []
    for number in range(4):
        figure.locator("input").fill(str(number))
        steps.append(figure.locator(".note").inner_text())
        size = figure.locator("img").evaluate("async (image) => { await image.decode(); return image.naturalWidth; }")
        assert size > 16
    assert steps == ["step 6", "step 12", "step 18", "step 24"]


def test_a_metric_can_be_found_by_a_part_of_its_name(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    page.locator("#filter").fill("ACC")
    assert page.locator("#charts [data-chart]").count() == 1
    page.locator("#filter").fill("nothing")
    assert page.locator("#charts").inner_text() == "No metric has this name."


def test_colors_follow_the_system_and_the_button(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits), scheme="dark")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = background()
    assert page.locator("#theme").inner_text() == "Colors: auto"
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Colors: light"
    assert background() != dark
    page.locator("#theme").click()
    assert background() == dark


def test_several_runs_are_compared(digits: Path, other_digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits, other_digits))
    assert page.title() == "2 runs · hookline"
    rows = page.locator('[data-table="runs"] tbody tr')
    names = rows.locator(".link")
    assert names.all_inner_texts() == ["digits", "other"]
    head = page.locator('[data-table="runs"] th button', has_text="run").first
    head.click()
    assert names.all_inner_texts() == ["digits", "other"]
    head.click()
    assert names.all_inner_texts() == ["other", "digits"]
    different = page.locator('[data-differs="config"] tbody tr').all_inner_texts()
    assert "optim.optimizer.lr\t0.005\t0.05" in different
    assert not any(row.startswith("model.") for row in different)
    assert any("EMAHook" in row for row in page.locator('[data-differs="plan"] tbody tr').all_inner_texts())
    parting = "other: equal to the bit until step 1, as far as the records show; the loss of step 2 differs"
    assert parting in page.locator("#losses").inner_text()
    second = count_pixels(page, "loss", VAL)  # the color of the second run
    assert second > 200
    page.get_by_label("show other").uncheck()
    assert count_pixels(page, "loss", VAL) < second / 10
    page.locator("#chosen").select_option(label="other")
    assert page.locator('[data-hook="EMAHook"]').count() > 0


HOSTILE = "<script>window.pwned = 1; alert(1)</script>"
NAMES = (HOSTILE, "</script><script>window.pwned = 2</script>", '"><img src=x onerror="window.pwned = 3">', "__proto__")


def hostile_run(folder: Path) -> Path:
    records = [
        {
            "step": step,
            "epoch": 1,
            **{f"{stage}{name}": 1.0 / step for name in NAMES for stage in ("train/", "", "val/")},
        }
        for step in range(1, 20)
    ]
    hooks = {
        "version": 1,
        "seconds": 10.0,
        "parts": {"data": {"calls": 1, "seconds": 1.0, "mean": 1.0, "longest": 1.0}},
        "hooks": [
            {
                **{"name": name, "role": name, "priority": 50, "seconds": 3.0, "share": 0.3, "memory": {}},
                "points": {"after_train_iter": {"calls": 5, "seconds": 3.0, "mean": 0.6, "longest": 1.0}, name: {}},
            }
            for name in NAMES
        ],
        "memory": [{"step": step, "resident": step} for step in range(5)],
        "plan": {
            "version": 1,
            "points": [
                {"name": place, "arguments": [], "hooks": [{"name": name, "priority": 1, "every": name, "why": name}]}
                for name in NAMES
                for place in ("after_train_iter", name)
            ],
        },
    }
    events = [
        {"time": 1.0, "step": 0, "epoch": 0, "kind": "start", "environment": {name: name for name in NAMES}},
        *({"time": 2.0, "step": 5, "epoch": 0, "kind": "save", "file": name, "best": name} for name in NAMES),
        *({"time": 2.0, "step": 6, "epoch": 0, "kind": "warning", "text": name} for name in NAMES),
        {"time": 3.0, "step": 9, "epoch": 0, "kind": "failure", "text": HOSTILE},
    ]
    config = {"experiment_name": HOSTILE, "values": list(NAMES), **{f"key {name}": name for name in NAMES}}
    return write_run(
        folder,
        records,
        hooks_json=json.dumps(hooks),
        events_jsonl="".join(json.dumps(event) + "\n" for event in events),
        config_yaml=json.dumps(config),
        run_log=f"2026-01-02 03:04:05  {HOSTILE}\n",
    )


@pytest.mark.parametrize("count", [1, 2])
def test_names_from_a_run_are_text_and_never_run(count: int, tmp_path: Path, open_page: OpenPage) -> None:
    folders = [hostile_run(tmp_path / f"run{number} {'<b>'}") for number in range(count)]
    page = open_page(write_report(tmp_path / "report.html", *folders))
    page.wait_for_timeout(50)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("({}).polluted === undefined && Object.prototype.hasOwnProperty('steps') === false")
    assert page.locator("script:not([src])").count() == page.locator("head script, body > script").count()
    assert page.locator("img, iframe, object, embed").count() == 0
    text = page.inner_text("body")
    assert HOSTILE in text
    for name in NAMES:
        assert page.locator("#charts .chart-title").filter(has_text=name).count() >= 1
    title = page.title()
    assert title == (f"{HOSTILE} · hookline" if count == 1 else "2 runs · hookline")
    box = page.locator("#charts .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.locator("summary").first.click()
    page.wait_for_timeout(50)
    assert page.evaluate("window.pwned") is None


def test_a_run_without_a_metric_is_readable(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "empty", [])))
    assert page.locator("#charts").inner_text() == "No metric was recorded."
    assert "There was nothing to check" in page.locator("#verdict").inner_text()


def test_a_run_of_one_step_is_a_point(tmp_path: Path, open_page: OpenPage) -> None:
    folder = write_run(tmp_path / "one", [{"step": 1, "epoch": 1, "train/loss": 2.5}])
    page = open_page(write_report(tmp_path / "report.html", folder))
    assert count_pixels(page, "loss", TRAIN) > 5
    page.get_by_label("log scale").check()
    assert count_pixels(page, "loss", TRAIN) > 5


def test_values_that_are_not_finite_leave_gaps(tmp_path: Path, open_page: OpenPage) -> None:
    records = [{"step": step, "train/loss": None if step == 5 else -1.0 / step} for step in range(1, 10)]
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "gaps", records)))
    page.get_by_label("log scale").check()  # nothing is positive, so it stays linear
    assert count_pixels(page, "loss", TRAIN) > 50
    assert "not a finite number at step 5" in page.locator("#verdict").inner_text()


def test_500_metrics_are_shown_in_parts(tmp_path: Path, open_page: OpenPage) -> None:
    records = [{"step": step, **{f"train/m{number}": step * number for number in range(500)}} for step in range(30)]
    page = open_page(write_report(tmp_path / "report.html", write_run(tmp_path / "wide", records)))
    assert page.locator("#charts [data-chart]").count() == 24
    page.get_by_role("button", name="Show 96 more of 500 charts").click()
    assert page.locator("#charts [data-chart]").count() == 120
    page.locator("#filter").fill("m49")
    assert page.locator("#charts [data-chart]").count() == 11
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_100_runs_are_readable(tmp_path: Path, open_page: OpenPage) -> None:
    folders = []
    for number in range(100):
        records = [{"step": step, "train/loss": number + 1 / step, "val/acc": number / 100} for step in range(1, 20)]
        config = json.dumps({"optim": {"lr": number}})
        folders.append(write_run(tmp_path / f"run{number:03}", records, config_yaml=config))
    path = write_report(tmp_path / "report.html", *folders)
    assert path.stat().st_size < 3e6
    page = open_page(path)
    assert page.locator('[data-table="runs"] tbody tr').count() == 100
    assert page.evaluate("window.hookline.visibleRuns().length") == 10
    page.get_by_role("button", name="all", exact=True).click()
    assert page.evaluate("window.hookline.visibleRuns().length") == 100
    page.locator('[data-table="runs"] th button', has_text="val/acc").click()
    assert page.locator('[data-table="runs"] .link').first.inner_text() == "run099"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_the_page_fits_every_screen_and_a_screenshot_has_colors(
    width: int, scheme: str, digits: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture = page.screenshot(path=tmp_path / "page.png")
    assert picture.startswith(b"\x89PNG")
    assert len(set(picture)) > 200


def test_the_page_can_be_printed(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    page.emulate_media(media="print")
    assert page.locator(".controls").is_hidden()
    assert page.pdf().startswith(b"%PDF")


def test_new_data_keeps_what_the_reader_has_chosen(digits: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits))
    page.locator("#smoothing").fill("0.5")
    page.get_by_label("log scale").check()
    page.locator("#config summary").first.click()
    page.evaluate("window.hookline.charts.zoomTo({min: 3, max: 9})")
    page.evaluate("(data) => window.hookline.show(data)", gather(digits))
    assert page.locator("#smoothing").input_value() == "0.5"
    assert page.get_by_label("log scale").is_checked()
    assert page.locator("#config details").first.get_attribute("open") is not None
    assert page.evaluate("window.hookline.state.zoom") == {"min": 3, "max": 9}
    assert not page.locator("#unzoom").is_disabled()


def test_appended_records_are_drawn(tmp_path: Path, open_page: OpenPage) -> None:
    folder = write_run(tmp_path / "live", [{"step": 1, "train/loss": 1.0}, {"step": 2, "train/loss": 1.0}])
    page = open_page(write_report(tmp_path / "report.html", folder))
    known = page.evaluate(
        "(id) => window.hookline.append(id, [{step: 3, epoch: 1, 'train/loss': 5}, {step: 4, 'train/loss': null}])",
        str(folder),
    )
    assert known is True
    page.wait_for_function("window.hookline.data.runs[0].metrics[0].count === 4")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box = chart_box(page, "loss")
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60)
    tip = page.locator('[data-chart="loss"] .tip')
    tip.wait_for(state="visible")
    assert tip.inner_text().split("\n") == ["step 3", "train", "5"]
    tiles = page.locator("#summary .tile").all_inner_texts()
    assert [tile.split("\n") for tile in tiles][0::2] == [
        ["steps", "4", "1 epoch"],
        ["train/loss", "1.0000", "best, at step 1"],
    ]
    more = "[{step: 1200, 'train/loss': 0.00005}, {step: 1201, epoch: 3, 'train/loss': 123456}]"
    page.evaluate(f"(id) => window.hookline.append(id, {more})", str(folder))
    page.locator(".tile-note", has_text="best, at step 1,200; last 1.23e+05").wait_for()
    assert page.locator("#summary .tile-value").all_inner_texts()[0::2] == ["1,201", "5.00e-05"]
    assert page.evaluate("(id) => window.hookline.append(id, [{step: 5, 'val/loss': 1}])", str(folder)) is False


def test_the_plan_alone_is_a_page(tmp_path: Path, open_page: OpenPage, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.html"
    run_command(["plan", "--html", str(target)])
    assert capsys.readouterr().out == f"wrote {target}\n"
    page = open_page(target)
    assert page.locator("h1").inner_text() == "Plan of digits"
    assert page.locator('[data-point="before_run"] .chip-name').all_inner_texts() == ["RuntimeInfoHook"]
    assert section_titles(page) == ["Hooks along the loop"]


@pytest.mark.long
def test_a_million_steps_of_50_metrics_stay_small_and_a_single_spike_is_visible(
    tmp_path: Path, open_page: OpenPage
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "run.log").touch()
    names = ["train/loss", *(f"train/m{number}" for number in range(1, 50))]
    bodies = [
        ", ".join(f'"{name}": {(turn * 79 + number) % 1000 / 1e4 + 0.5:.4f}' for number, name in enumerate(names))
        for turn in range(1000)
    ]
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, 1_000_001):
            body = bodies[step % 1000]
            if step == 654_321:
                body = body.replace('"train/loss": ', '"train/loss": 77')
            file.write(f'{{"step": {step}, "epoch": 1, {body}}}\n')
    data = gather(folder)
    path = tmp_path / "report.html"
    write_page(path, make_page(data))
    (folder / "metrics.jsonl").unlink()  # a gigabyte
    assert path.stat().st_size < 3e6
    assert data["runs"][0]["verdict"]["text"] == "The loss spiked at step 654,321."
    page = open_page(path)
    assert count_pixels(page, "loss", TRAIN) > 500
    top = page.evaluate(
        """(color) => {
          const canvas = document.querySelector('[data-chart="loss"] canvas');
          const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, Math.round(canvas.height / 2));
          const wanted = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
          let count = 0;
          for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] > 100 && wanted.every((level, number) => Math.abs(level - data[at + number]) < 40)) {
              count += 1;
            }
          }
          return count;
        }""",
        TRAIN,
    )
    assert top > 20  # the line up to the spike, and nothing else, is in the upper half


def test_a_mark_at_the_last_step_is_drawn_as_a_whole(tmp_path: Path, open_page: OpenPage) -> None:
    folder = write_run(tmp_path / "saved", [{"step": step, "train/loss": 1.0} for step in (1, 50, 100)])
    with open(folder / "events.jsonl", "w") as file:
        for event in ({"kind": "start", "step": 0}, {"kind": "save", "step": 100, "file": "iter_100.pth"}):
            file.write(json.dumps({"time": 1, "epoch": 0, **event}) + "\n")
    page = open_page(write_report(tmp_path / "report.html", folder))
    page.locator('[data-chart="loss"] canvas').wait_for()
    beyond = page.evaluate(
        """() => {
          const chart = document.querySelector('[data-chart="loss"]');
          const canvas = chart.querySelector('canvas'), over = chart.querySelector('.u-over');
          const x = Math.round((over.offsetLeft + over.offsetWidth) * devicePixelRatio) + 1;
          const bottom = Math.round((over.offsetTop + over.offsetHeight) * devicePixelRatio);
          const mark = getComputedStyle(document.documentElement).getPropertyValue("--mark-save").trim();
          const wanted = [1, 3, 5].map((at) => parseInt(mark.slice(at, at + 2), 16));
          const count = (top) => {
            const {data} = canvas.getContext("2d").getImageData(x, top, canvas.width - x, 8);
            let found = 0;
            for (let at = 0; at < data.length; at += 4) {
              found += wanted.every((level, number) => Math.abs(level - data[at + number]) < 12) && data[at + 3] > 100;
            }
            return found;
          };
          return [count(bottom - 8), count(bottom + 1)];
        }"""
    )
    assert beyond[0] == 0  # marks of saves lie below the curves, not on them
    assert beyond[1] > 4


def test_a_run_without_metrics_has_no_key_of_marks_and_no_validation(tmp_path: Path, open_page: OpenPage) -> None:
    toy_runner(work_dir=tmp_path / "run", max_epochs=1, val=None, writers=[]).train()
    page = open_page(write_report(tmp_path / "report.html", tmp_path / "run"))
    assert page.locator(".marks-key").count() == 0
    assert page.locator('[data-scope="train_epoch"]').count() == 1
    assert page.locator('[data-scope="val"]').count() == 0


def test_many_runs_have_one_verdict_of_each_kind_whole_names_and_short_numbers(
    tmp_path: Path, open_page: OpenPage
) -> None:
    name = "a_name_of_a_run_with_exactly_forty_nine_characters"[:49]
    folders = [
        write_run(
            tmp_path / f"{name[:-2]}{number:02}",
            [{"step": 10 * step, "epoch": step, "train/loss": 1.0 / step} for step in range(1, 12)],
            config_yaml=f"optim: {{lr: 0.003162277660168379{number % 10}}}\n",
            events_jsonl=json.dumps({"time": 1, "step": 0, "epoch": 0, "kind": "start"})
            + "\n"
            + json.dumps({"time": 2, "step": 5, "epoch": 0, "kind": "failure", "text": f"ValueError: {number}"}),
        )
        for number in range(12)
    ]
    page = open_page(write_report(tmp_path / "report.html", *folders))
    assert page.locator("#verdict .verdict").count() == 1
    assert "Much the same in 11 more: " in page.locator("#verdict").inner_text()
    links = page.locator('[data-table="runs"] .link')
    assert {links.nth(number).bounding_box()["height"] < 30 for number in range(12)} == {True}  # type: ignore[index]
    cells = page.locator('[data-table="runs"] td', has_text="0.003")
    assert set(cells.all_inner_texts()) == {"0.0031623"}


def test_with_several_runs_the_marks_of_the_chosen_one_are_shown(
    digits: Path, other_digits: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    page = open_page(write_report(tmp_path / "report.html", digits, other_digits))
    key = page.locator(".marks-key")
    assert key.inner_text() == "A click on a run in the table shows its marks. Drag to zoom, double-click to reset."
    page.locator('[data-table="runs"] .link', has_text="other").click()
    assert key.inner_text().startswith("Marks of other: saved")
    assert page.locator("#times h3").first.inner_text() == "Where the time of other went"
