"""Expand the patterns in the `nav` of mkdocs.yml, such as `coming-from/*.md`. mkdocs loads this file as a hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Pages that introduce their folder, and therefore come first.
INDEXES = ("index.md", "README.md")


def on_config(config: Any) -> Any:
    """Replace every pattern in the nav by the pages that it matches."""
    config["nav"] = expanded(config["nav"], Path(config["docs_dir"]))
    return config


def expanded(nav: Any, docs: Path) -> Any:
    """Return the nav with a pattern replaced by its pages: the index of the folder first, then by name."""
    if isinstance(nav, dict):
        return {title: expanded(below, docs) for title, below in nav.items()}
    if isinstance(nav, list):
        return [page for entry in nav for page in _as_list(entry, docs)]
    return nav


def pages(nav: Any) -> list[str]:
    """Return the paths of all pages in a nav, in order."""
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in below for page in pages(entry)]


def _as_list(entry: Any, docs: Path) -> list[Any]:
    if not isinstance(entry, str) or "*" not in entry:
        return [expanded(entry, docs)]
    found = [path.relative_to(docs).as_posix() for path in docs.glob(entry)]
    return sorted(found, key=lambda page: (page.rpartition("/")[2] not in INDEXES, page.removesuffix(".md")))
