"""Every test here runs in its own folder, and finds processes and trials without waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookline.sweeps import sweep


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "PERIOD", 0.0)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("odd", "mynet", "gate"):
        sys.modules.pop(name, None)
