"""The hooks of the mmengine package run unchanged, and the page about them is up to date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "coming-from" / "mmengine-hooks.md"


def test_the_page_about_mmengines_hooks_is_up_to_date(tmp_path: Path) -> None:
    """Update the page with: python -m tests.dialects.mmengine.real_hooks docs/coming-from/mmengine-hooks.md"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.dialects.mmengine.real_hooks", str(tmp_path / "page.md")]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
