"""The table of what the originals' documents say: every statement has a test that exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/coming-from/documents.md"
#: The number of statements of each document.
STATEMENTS = {"MMEngine design": 5, "MMEngine tutorial": 23, "Pointrix": 9, "iMIX": 6, "RoboOrchard": 5}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_every_statement_of_the_documents_is_in_the_table_once() -> None:
    assert Counter(document for document, _, _ in rows()) == STATEMENTS
    statements = [statement for _, statement, _ in rows()]
    assert len(set(statements)) == len(statements) == 48


def test_every_statement_has_tests_that_exist() -> None:
    for _, statement, tests in rows():
        found = re.findall(r"`(tests/[^`:]+\.py)::(test_\w+)`", tests)
        assert len(found) == tests.count("::") > 0, statement
        for file, name in found:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
