from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import StorageError
from hookline.plan.points import POINTS, SCOPES
from hookline.report.gather import gather
from hookline.report.images import MOST_STEPS, Images
from hookline.report.page import SCRIPTS, as_json, make_page, pack, read_static, write_page
from hookline.report.plan_picture import LOOP, draw, from_text
from hookline.testing import toy_runner

PNG = b"\x89PNG\r\n\x1a\n"


def test_data_cannot_leave_its_element() -> None:
    hostile = "</script><!--\u2028\u2029&<script>"
    page = make_page({"title": hostile, "runs": []})
    ((data),) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data)["title"] == hostile
    assert "<title>&lt;/script&gt;&lt;!--\u2028\u2029&amp;&lt;script&gt; · hookline</title>" in page
    assert page.count("<script") == 1 + len(SCRIPTS)


def test_the_policy_allows_exactly_the_scripts_and_styles_of_the_page() -> None:
    page = make_page({"title": "x", "runs": []}, scripts=["let own = 1;"])
    ((policy),) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)">', page)
    rules = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    for element, rule in (("script", "script-src"), ("style", "style-src")):
        texts = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        assert rules[rule].split() == [f"'sha256-{each}'" for each in hashes]
    assert "let own = 1;" in page
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["img-src"] == "data:"
    connecting = make_page({"title": "x", "runs": []}, connects=True)
    assert "connect-src 'self';" in connecting


def test_the_scripts_never_make_html_of_text() -> None:
    for name in SCRIPTS:
        text = read_static(name)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http-equiv"):
            assert word not in text, name
    assert "uPlot" in read_static("uplot.js")
    assert "MIT License" in read_static("uplot.LICENSE.txt")


def test_numbers_that_json_lacks_are_refused_and_names_stay_as_they_are() -> None:
    assert as_json({"größe <b>": "é"}) == '{"größe \\u003cb\\u003e":"é"}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json([float("nan")])


def test_a_page_is_written_as_a_whole(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "one \ud800")
    assert (tmp_path / "page.html").read_text() == "one ?"
    with pytest.raises(StorageError, match="cannot be written"):
        write_page(tmp_path / "missing" / "page.html", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_page_replaces_a_page_and_never_another_file(tmp_path: Path) -> None:
    page, config = tmp_path / "page.html", tmp_path / "config.yaml"
    page.write_text("<!DOCTYPE html>\nold")
    write_page(page, "<!doctype html>\nnew")
    assert page.read_text() == "<!doctype html>\nnew"
    config.write_text("model: mine\n")
    with pytest.raises(StorageError) as refused:
        write_page(config, "<!doctype html>\nnew")
    assert str(refused.value) == (
        f"{config} exists and is not an HTML page, so it is not replaced; give another name to the page"
    )
    assert config.read_text() == "model: mine\n"


def test_images_are_bounded_and_only_of_known_kinds() -> None:
    images = Images()
    images.add("svg", 1, b"<svg onload=alert(1)>")
    images.add("large", 1, PNG + bytes(500_000))
    for step in range(1000):
        images.add("many", step, PNG + bytes([step % 256]))
    ((found),) = images.as_data()
    assert (found["name"], len(found["items"]) <= MOST_STEPS) == ("many", True)
    steps = [each["step"] for each in found["items"]]
    assert steps == sorted(steps)
    assert (steps[0], max(steps) > 900) == (0, True)
    assert images.left_out == 1002 - len(steps)
    for number in range(10):
        images.add(f"more{number}", 1, PNG + bytes(300_000))
    data = images.as_data()
    assert 0 < sum(len(item["source"]) for each in data for item in each["items"]) <= 1_300_000


def test_the_picture_of_the_plan_has_every_point_and_every_scope() -> None:
    points, scopes = set(), set()

    def walk(node: object) -> None:
        if isinstance(node, str):
            points.add(node)
        elif isinstance(node, tuple):
            scopes.add(f"around_{node[0]}")
            for child in node[1]:
                walk(child)

    walk(LOOP)
    assert points == set(POINTS)
    assert scopes == set(SCOPES)


def test_points_of_the_user_come_last() -> None:
    hook = {"name": "A", "priority": 50, "every": "each time", "why": "", "where": "a.py:1"}
    plan = {"points": [{"name": "after_render", "hooks": [hook]}, {"name": "around_run", "hooks": [hook]}]}
    tree = draw(plan)
    assert tree["children"][-1] == {"point": "after_render", "hooks": [{**hook, "priority": "50"}]}
    assert [each["name"] for each in tree["around"]] == ["A"]


def test_a_text_of_a_plan_is_read_back() -> None:
    text = (
        "before_run(runner)\n   1  A  VERY_HIGH (10)  each time  priority from the class\n\n"
        "around_train_iter(runner, batch_idx, data_batch)   entered in this order, left in reverse\n"
        "   1  My hook  55  every 10 iterations  priority from the config, after A\n"
    )
    found = from_text(text)["points"]
    assert [(each["name"], each["hooks"][0]["name"], each["hooks"][0]["priority"]) for each in found] == [
        ("before_run", "A", 10),
        ("around_train_iter", "My hook", 55),
    ]
    assert found[1]["hooks"][0]["every"] == "every 10 iterations"
    assert from_text("x" * 10_000 + "\n" + " " * 5000)["points"] == []


def test_common_parts_of_runs_are_in_a_page_once() -> None:
    def run(lr: str) -> dict[str, Any]:
        metrics = [{"name": name, "steps": [1, 2], "values": [3, 4], "means": [5], "mean_steps": [1]} for name in "ab"]
        plan = {"scope": "run", "around": [], "children": []}
        return {
            "plan": plan,
            "config": [["lr", lr], ["seed", "0"]],
            "environment": [["torch", "2"]],
            "metrics": metrics,
        }

    data: dict[str, Any] = {"title": "", "runs": [run("0.1"), run("0.2"), {**run("0.1"), "plan": None}]}
    packed = json.loads(as_json(pack(data)))
    of = [None, *packed["shared"]]
    assert sorted(map(str, packed["shared"])) == sorted(
        map(str, [data["runs"][0]["plan"], ["lr", "0.1"], ["lr", "0.2"], ["seed", "0"], ["torch", "2"], [1, 2], [1]])
    )
    for run_packed, whole in zip(packed["runs"], data["runs"], strict=True):
        plan = run_packed["plan"]
        assert (None if plan is None else of[plan + 1]) == whole["plan"]
        assert [of[place + 1] for place in run_packed["config"]] == whole["config"]
        assert [of[metric["steps"] + 1] for metric in run_packed["metrics"]] == [[1, 2], [1, 2]]
    assert data["runs"][0]["config"] == [["lr", "0.1"], ["seed", "0"]]


def test_a_page_of_100_runs_has_at_most_3_mb_and_a_page_of_one_without_images_half_a_mb(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path / "0", max_epochs=20, config={f"key{n}": {"a": n} for n in range(50)}).train()
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(6000)).decode()
    images = [{"name": f"image {n}", "step": step, "png": picture} for n in range(4) for step in range(10)]
    (tmp_path / "0" / "images.jsonl").write_text("".join(json.dumps(image) + "\n" for image in images))
    records = [{"step": step, **{f"train/m{n}": 1 / (step + n) for n in range(10)}} for step in range(1, 121)]
    (tmp_path / "0" / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with open(tmp_path / "0" / "run.log", "a") as log, open(tmp_path / "0" / "events.jsonl", "a") as events:
        for number in range(300):
            log.write(f"2026-01-02 03:04:05  {number:05} {'x' * 100}\n")
            warning = {"time": 2e9, "step": number, "epoch": 0, "kind": "warning", "text": f"{number:05} {'y' * 200}"}
            events.write(json.dumps(warning) + "\n")
    for number in range(1, 100):
        shutil.copytree(tmp_path / "0", tmp_path / str(number), ignore=shutil.ignore_patterns("*.pth"))
    folders = [tmp_path / str(number) for number in range(100)]
    assert len(make_page(gather(*folders))) < 3e6
    (folders[0] / "images.jsonl").unlink()
    assert len(make_page(gather(folders[0]))) < 0.5e6
