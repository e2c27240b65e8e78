"""The list of examples: complete, with the right number of lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.examples.running import EXAMPLES, code_lines, yaml_lines

ROW = re.compile(r"^\| \[([\w.]+)\]\(([\w./]+)\) \| .+ \| ([\d,]+) \|$", re.MULTILINE)


def lines_of(path: Path) -> int:
    """Count the lines of code of a file, or of all files of a folder."""
    if path.is_dir():
        return sum(lines_of(each) for each in path.iterdir() if each.suffix in (".py", ".yaml"))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        return yaml_lines(text)
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return sum(code_lines("".join(cell["source"])) for cell in cells)
    return code_lines(text)


def test_the_list_has_all_examples_with_their_lines_of_code() -> None:
    rows = ROW.findall((EXAMPLES / "README.md").read_text(encoding="utf-8"))
    present = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__", "runs")}
    assert {name for name, _, _ in rows} == present
    assert all((EXAMPLES / target).exists() for _, target, _ in rows)
    assert {name: int(lines.replace(",", "")) for name, _, lines in rows} == {
        name: lines_of(EXAMPLES / name) for name, _, _ in rows
    }


SOURCE = '''"""A docstring."""

import os  # a comment


def f():
    """A docstring
    of two lines."""
    # another comment
    return (
        1
    )
'''


def test_only_code_is_counted() -> None:
    assert code_lines(SOURCE) == 5
    assert yaml_lines("# a comment\n\na: 1\nb:\n  - 2  # two\n") == 3
