"""The pages that compare hookline with another system: the lines that they claim are the lines that they show."""

from __future__ import annotations

import re

import pytest

from tests.examples.running import ROOT, code_lines

PAGES = ROOT / "docs" / "coming-from"
#: The page, and where its two programs are: the language and the number of the block.
PROGRAMS = {
    "lightning": (("py", 0), ("python", 1)),
    "transformers": (("py", 0), ("python", 1)),
    "keras": (("py", 0), ("python", 1)),
    "bare-loop": (("python", 1), ("python", 2)),
}


def program(text: str, language: str, number: int) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found[number])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_lines_are_counted_honestly(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    theirs, ours = (program(text, *place) for place in PROGRAMS[name])
    counts = [code_lines(theirs), code_lines(ours)]
    assert [int(lines) for lines in re.findall(r"^[\w ]+: (\d+) lines of code", text, re.MULTILINE)] == counts
    assert max(len(line) for line in (theirs + ours).splitlines()) <= 120
    row = next(line for line in (PAGES / "README.md").read_text(encoding="utf-8").splitlines() if f"{name}.md" in line)
    assert [int(cell.split(",")[0]) for cell in row.strip(" |").split(" | ")[2:]] == counts


def test_the_program_of_hookline_is_the_same_on_all_pages() -> None:
    texts = {name: (PAGES / f"{name}.md").read_text(encoding="utf-8") for name in PROGRAMS}
    assert len({program(text, *PROGRAMS[name][1]) for name, text in texts.items()}) == 1
