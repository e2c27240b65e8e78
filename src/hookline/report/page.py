"""One HTML file with everything in it: styles, scripts and data. It loads nothing, and data in it is never code.

The data is JSON in an element that browsers do not run. The scripts put every text into the page as text. A policy
(Content-Security-Policy) allows the scripts of this file by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hookline.common.files import regular, replacing, storage_errors
from hookline.common.version import VERSION
from hookline.errors import StorageError
from hookline.report import plan_picture

#: In the order in which a page needs them.
STYLES = ("uplot.css", "page.css")
SCRIPTS = ("uplot.js", "base.js", "charts.js", "tables.js", "plan.js", "page.js")
#: The first bytes of a page.
START = b"<!doctype html>"
#: Characters that would end the element of the data, or be a line break inside a script.
ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def make_page(data: Mapping[str, Any], scripts: Sequence[str] = (), connects: bool = False) -> str:
    """Return the page that shows `data`.

    `scripts` run after the scripts of the page. With `connects`, they may talk to the server that the page came from.
    """
    code = [*map(read_static, SCRIPTS), *scripts]
    styles = [*map(read_static, STYLES)]
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash_of, code))}",
        f"style-src {' '.join(map(_hash_of, styles))}",
        "img-src data:",
        f"connect-src {chr(39)}self{chr(39)}" if connects else "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return Template(read_static("page.html")).substitute(
        policy="; ".join(policy),
        title=html.escape(f"{data['title']} · hookline"),
        styles="\n".join(f"<style>{each}</style>" for each in styles),
        data=as_json(pack(data)),
        scripts="\n".join(f"<script>{each}</script>" for each in code),
    )


def pack(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data in which the parts that runs have in common are numbers: places in a list of them, `shared`.

    These are plans, lines of configs and environments, and the steps of curves. `unpack` in page.js is the opposite.
    """
    shared: list[Any] = []
    places: dict[str, int] = {}

    def share(value: Any) -> int | None:
        if value is None:
            return None
        place = places.setdefault(json.dumps(value), len(shared))
        if place == len(shared):
            shared.append(value)
        return place

    packed = [
        {
            **run,
            "plan": share(run["plan"]),
            **{name: [share(row) for row in run[name]] for name in ("config", "environment")},
            "metrics": [
                {**metric, **{name: share(metric[name]) for name in ("steps", "mean_steps") if name in metric}}
                for metric in run["metrics"]
            ],
        }
        for run in data["runs"]
    ]
    return {**data, "runs": packed, "shared": shared}


def plan_page(plan: Mapping[str, Any], name: str) -> str:
    """Return a page with the picture of a plan alone."""
    return make_page(plan_data(plan, name))


def plan_data(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the data of a page with the picture of a plan alone."""
    return {
        "version": 1,
        "kind": "plan",
        "title": name,
        "made": round(time.time()),
        "hookline": VERSION,
        "plan": plan_picture.draw(plan),
        "runs": [],
        "comparison": None,
    }


def write_page(path: Path, page: str) -> None:
    """Write a page as a whole: an earlier one stays if this fails. Any other file is never replaced."""
    with storage_errors(path):
        _refuse_other_files(path)
    with storage_errors(path), replacing(path) as file:
        file.write(page.encode("utf-8", "replace"))


def _refuse_other_files(path: Path) -> None:
    """Refuse to replace a file that is not a page: a wrong name must not cost a config or a checkpoint."""
    if not os.path.isfile(path):
        return
    with open(path, "rb", opener=regular) as file:
        if file.read(len(START)).lower() not in (b"", START):
            raise StorageError(
                f"{path} exists and is not an HTML page, so it is not replaced; give another name to the page"
            )


def as_json(data: Any) -> str:
    r"""Return data as JSON that can stand inside a page.

    >>> print(as_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.translate(ESCAPES)


@cache
def read_static(name: str) -> str:
    """Return a file of the page."""
    return (files("hookline.report") / "static" / name).read_text(encoding="utf-8")


@cache
def _hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
