"""Check the site that mkdocs has built: `python -m website.check site`.

- Every link within the site leads to a file, and to an element if it has an anchor. Other addresses are not fetched.
- A page loads nothing from elsewhere: no fonts, scripts, styles or images.
- The API reference has every public name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from website.reference import public_names

#: What loads its address as soon as the page is opened. A link (`a`) does not.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@dataclass
class Page(HTMLParser):
    """The links of one page, and the elements that a link can lead to."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what one tag has."""
        given = {name: value or "" for name, value in attrs}
        if given.get("id"):
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")) and given.get("rel") != "canonical":
            self.loaded.append(given[LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """Yield everything that is wrong with a built site, a line each."""
    pages = {path.resolve(): Page(path.resolve()) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages; build it with `make site`"
    for page in pages.values():
        name = page.path.relative_to(site.resolve())
        for link in sorted({*page.links, *page.loaded}):
            reason = broken(link, page, site.resolve(), pages)
            if reason:
                yield f"{name}: the link '{link}' {reason}"
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{name}: loads {address} from elsewhere"
    for style in sorted(site.rglob("*.css")):
        for address in re.findall(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", style.read_text("utf-8")):
            yield f"{style.relative_to(site)}: loads {address} from elsewhere"
    yield from missing_names(site, pages)


def broken(link: str, page: Page, site: Path, pages: dict[Path, Page]) -> str:
    """Return why a link leads nowhere, or nothing if it is right or leads out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    path = unquote(parts.path)
    target = page.path
    if path:
        target = (site / path.lstrip("/") if path.startswith("/") else page.path.parent / path).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return "leads to no file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return "leads to no such heading"
    return ""


def missing_names(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield the public names that the API reference lacks."""
    for module, names in public_names().items():
        page = pages.get((site / "api" / f"{module}.html").resolve())
        if page is None:
            yield f"api/{module}.html is missing; run `make docs`"
            continue
        for name, members in names.items():
            for full in (f"{module}.{name}", *(f"{module}.{name}.{member}" for member in members)):
                if full not in page.ids:
                    yield f"api/{module}.html: {full} is missing; run `make docs`"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) if found else f"{sys.argv[1]}: all links lead somewhere, and every public name is there")
    sys.exit(bool(found))
