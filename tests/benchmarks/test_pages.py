from __future__ import annotations

from pathlib import Path

import pytest

import pages


def test_figures_replace_only_what_is_between_their_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- one: begin -->\nold\n<!-- one: end -->\nb\n<!-- two: begin -->\nkept\n<!-- two: end -->\nc\n"
    )
    for _ in range(2):
        pages.write("page.md", "one", pages.table(["", "x"], [["row", "1"]]))
        assert page.read_text() == (
            "a\n<!-- one: begin -->\n|  | x |\n| --- | --- |\n| row | 1 |\n<!-- one: end -->\n"
            "b\n<!-- two: begin -->\nkept\n<!-- two: end -->\nc\n"
        )


def test_a_page_without_markers_is_refused_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- one: begin -->\n")
    with pytest.raises(SystemExit, match="page.md has no place for these figures: add the lines <!-- one: begin -->"):
        pages.write("page.md", "one", "text")
    assert page.read_text() == "<!-- one: begin -->\n"


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("README.md", "peers"),
        *(("docs/performance.md", name) for name in ("peers", "growth", "startup", "saves", "config", "instructions")),
    ],
)
def test_the_pages_have_a_place_for_the_figures(page: str, name: str) -> None:
    text = (pages.ROOT / page).read_text()
    assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
