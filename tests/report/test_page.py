from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from hookline.errors import StorageError
from hookline.plan.points import POINTS, SCOPES
from hookline.report.images import MOST_STEPS, Images
from hookline.report.page import SCRIPTS, as_json, make_page, read_static, write_page
from hookline.report.plan_picture import LOOP, draw, from_text

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
