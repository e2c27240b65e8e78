"""The navigation of the site, and the links and anchors between its pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markdown.extensions.toc import slugify, unique
from ruamel.yaml import YAML

from website import nav, reference

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def settings() -> dict[str, Any]:
    loaded = YAML(typ="safe", pure=True).load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", lambda code: "`" + re.sub(r"[\[\]()]", "_", code[0][1:-1]) + "`", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site has them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        unique(slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading), "-"), found)  # adds it to `found`
    return found | set(re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_page_is_in_the_navigation_once() -> None:
    listed = nav.pages(nav.expanded(settings()["nav"], DOCS))
    missing = [page for page in PAGES if page not in listed]
    lines = "".join(f"\n      - A short title: {page}" for page in missing)
    assert not missing, f"add the new pages to `nav` in mkdocs.yml, where a reader would look for them:{lines}"
    assert sorted(listed) == PAGES


def test_a_pattern_is_replaced_by_its_pages_with_the_index_first(tmp_path: Path) -> None:
    for name in ("from/b.md", "from/README.md", "from/a.md", "api/x.y.md", "api/x.md", "one.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    given = [{"One": "one.md"}, {"From": ["from/*.md"]}, {"API": ["api/*.md", {"More": ["one.md"]}]}]
    assert nav.expanded(given, tmp_path) == [
        {"One": "one.md"},
        {"From": ["from/README.md", "from/a.md", "from/b.md"]},
        {"API": ["api/x.md", "api/x.y.md", {"More": ["one.md"]}]},
    ]
    assert nav.pages(given) == ["one.md", "from/*.md", "api/*.md", "one.md"]


@pytest.mark.parametrize("page", [ROOT / "README.md", *(DOCS / page for page in PAGES)], ids=lambda page: page.name)
def test_links_between_pages_lead_to_pages_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("first", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_the_first_pages_show_the_dry_run(first: str) -> None:
    assert "hookline train --dry-run" in (ROOT / first).read_text(encoding="utf-8")


def test_the_api_pages_match_the_public_surface() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md")}
    assert written == reference.pages(), "the public surface has changed: run `make docs`"


def test_the_api_pages_have_every_public_name_and_no_other() -> None:
    documented = set()
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name, members in re.findall(r"^::: ([\w.]+)(?:\n    options:\n.*\n      members: \[(.*)\])?", text, re.M):
            documented |= {name, *(f"{name}.{member}" for member in re.findall(r'"(\w+)"', members))}
    lines = reference.SURFACE.read_text(encoding="utf-8").splitlines()
    public = {re.split(r"[^\w.]", line)[0] for line in lines if not line.endswith(": module")}
    assert documented == public


def test_old_api_pages_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path / "api")
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "hookline.gone.md").touch()
    reference.write()
    assert {path.name for path in (tmp_path / "api").iterdir()} == set(reference.pages())
