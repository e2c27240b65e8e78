"""The fixture that runs examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from hookline.plan.registry import HOOKS, WRITERS
from tests.examples.running import Examples


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Examples:
    """Run in a temporary folder, and forget what an example registers."""
    monkeypatch.chdir(tmp_path)
    for registry in (HOOKS, WRITERS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    return Examples(monkeypatch, capsys)
