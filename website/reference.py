"""Write the pages of the API reference, docs/api/*.md, from the list of public names: `make docs`.

The list is tests/public_surface.txt. mkdocstrings reads the docstrings when the site is built.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SURFACE = ROOT / "tests" / "public_surface.txt"
SOURCE = ROOT / "src"
FOLDER = ROOT / "docs" / "api"

HEAD = """\
# {module}

{summary}

<!-- `make docs` writes this page from tests/public_surface.txt. The site shows the docstrings here. -->
"""


def public_names() -> dict[str, dict[str, list[str]]]:
    """Return the public names by module, each with those of its members that are public by themselves."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in SURFACE.read_text(encoding="utf-8").splitlines():
        name = re.match(r"[\w.]+", line)
        assert name, f"{SURFACE} has a line without a name: {line!r}"
        if line.endswith(": module"):
            continue  # it has its own page
        module, parts = _split(name[0])
        members = found.setdefault(module, {}).setdefault(parts[0], [])
        members += parts[1:]
    return found


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    return {f"{module}.md": "\n".join(_page(module, names)) for module, names in public_names().items()}


def write() -> None:
    """Write all pages, and remove those of modules that are gone."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for old in FOLDER.glob("hookline*.md"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _page(module: str, names: dict[str, list[str]]) -> Iterator[str]:
    yield HEAD.format(module=module, summary=_summary(module))
    for name, members in sorted(names.items(), key=lambda entry: entry[0].lower()):
        yield f"::: {module}.{name}"
        if members:
            yield "    options:"
            yield "      inherited_members: true"
            yield f"      members: {json.dumps(members)}"  # quoted, because YAML reads the name `on` as true
        elif module in ("hookline.hooks", "hookline.errors"):
            yield "    options: {members: false}"
        yield ""


def _summary(module: str) -> str:
    """Return the first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(_file(module).read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0]


def _split(name: str) -> tuple[str, list[str]]:
    """Split a dotted name into its module and the rest."""
    parts = name.split(".")
    length = next(n for n in range(len(parts) - 1, 0, -1) if _file(".".join(parts[:n])).exists())
    return ".".join(parts[:length]), parts[length:]


def _file(module: str) -> Path:
    folder = SOURCE.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


if __name__ == "__main__":
    write()
