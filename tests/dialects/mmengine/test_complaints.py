"""What users of MMEngine report, tried with the dialect; the page has the outcomes with both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openmmlab.outcomes import EXPECTED

ROOT = Path(__file__).parents[3]


@pytest.mark.processes
def test_the_reports_of_users_are_solved(tmp_path: Path) -> None:
    script, out = ROOT / "tests" / "openmmlab" / "complaints.py", tmp_path / "out.json"
    subprocess.run([sys.executable, script, "hookline", out], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads(out.read_text(encoding="utf-8")) == {name: ours for name, (_, ours) in EXPECTED.items()}


def test_the_page_shows_the_outcomes() -> None:
    page = (ROOT / "docs" / "coming-from" / "mmengine.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.search(r"github.com/open-mmlab/|pkg_resources", line)]
    shown = [tuple(re.findall(r"`([^`]+)` \|", row.replace("``", ""))) for row in rows]
    assert shown == [(theirs.replace("``", ""), ours) for theirs, ours in EXPECTED.values()]
