"""What `make site` finds in a built site."""

from __future__ import annotations

from pathlib import Path

import pytest

from website import check


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "public_names", lambda: {"pkg": {"Thing": ["run"], "do": []}})


def build(site: Path, body: str = "", api: str = '<h2 id="pkg.Thing"><h3 id="pkg.Thing.run"><h2 id="pkg.do">') -> Path:
    (site / "api").mkdir(parents=True)
    (site / "index.html").write_text(body, encoding="utf-8")
    (site / "other.html").write_text('<h1 id="here">', encoding="utf-8")
    (site / "api" / "pkg.html").write_text(f'<a href="../index.html"></a>{api}', encoding="utf-8")
    return site


def test_a_site_without_problems_has_none(tmp_path: Path) -> None:
    body = '<a href="other.html#here"></a><a href="/api/pkg.html"></a><a href="https://example.com/x"></a>'
    body += '<p id="top"><a href="#top"></a><a href="."></a><img src="picture.png"><link rel="canonical" href="//x.y">'
    site = build(tmp_path / "site", body)
    (site / "picture.png").touch()
    assert list(check.problems(site)) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    body = '<a href="gone.html"></a><a href="other.html#gone"></a><a href="#gone"></a><img src="gone.png">'
    assert list(check.problems(build(tmp_path / "site", body))) == [
        "index.html: the link '#gone' leads to no such heading",
        "index.html: the link 'gone.html' leads to no file",
        "index.html: the link 'gone.png' leads to no file",
        "index.html: the link 'other.html#gone' leads to no such heading",
    ]


def test_whatever_is_loaded_from_elsewhere_is_found(tmp_path: Path) -> None:
    body = '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//fonts.example/a.css">'
    site = build(tmp_path / "site", body)
    (site / "a.css").write_text("@import 'https://fonts.example/b.css'; p { background: url(picture.png) }", "utf-8")
    assert list(check.problems(site)) == [
        "index.html: loads https://cdn.example/x.js from elsewhere",
        "index.html: loads //fonts.example/a.css from elsewhere",
        "a.css: loads https://fonts.example/b.css from elsewhere",
    ]


def test_public_names_without_documentation_are_found(tmp_path: Path) -> None:
    assert list(check.problems(build(tmp_path / "site", api='<h2 id="pkg.do">'))) == [
        "api/pkg.html: pkg.Thing is missing; run `make docs`",
        "api/pkg.html: pkg.Thing.run is missing; run `make docs`",
    ]


def test_a_site_that_was_not_built_is_a_problem(tmp_path: Path) -> None:
    assert list(check.problems(tmp_path)) == [
        f"{tmp_path} has no pages; build it with `make site`",
        "api/pkg.html is missing; run `make docs`",
    ]
