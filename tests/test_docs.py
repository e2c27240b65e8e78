"""Run every Python block of the README and the docs, and read every YAML block as a config."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.yaml_text import parse
from hookline.config import from_dict
from hookline.dialects.imports import PACKAGES
from hookline.engine.steps import cross_entropy, predict
from hookline.plan import points
from hookline.plan.registry import HOOKS, WRITERS
from hookline.testing import toy_data

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(autouse=True)
def _undo_aliases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the imports after each page: a page may alias the name of another system to a dialect."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in (HOOKS, WRITERS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    names: dict[str, Any] = {
        "torch": torch,
        "time": time,
        "model": nn.Linear(4, 2),
        "train_set": TensorDataset(*toy_data(1, 32)[0]),
        "val_set": TensorDataset(*toy_data(1, 32)[0]),
        "loss_of": cross_entropy,
        "predict": predict,
    }
    ran = 0
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)
        ran += 1
    assert ran == len(blocks(page, "python"))
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=lambda page: page.name)
def test_the_yaml_blocks_of_a_page_are_valid_configs(page: Path) -> None:
    for block in blocks(page, "yaml"):
        data = plain(parse(block, lambda line, column: Mark("page", line, column)))
        assert isinstance(data, dict)
        if "_base_" not in data:
            assert from_dict(data).data == data


def test_all_links_have_a_target_and_the_readme_shows_both_commands() -> None:
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#]+)\)", prose):
            assert link.startswith("http") or (page.parent / link).exists(), (page, link)
    readme = PAGES[0].read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme


def test_the_drawing_of_the_loop_is_the_same_in_the_docs_and_in_the_code() -> None:
    drawing = (points.__doc__ or "").partition("    train(), by epochs")[2].partition("When anything fails")[0].rstrip()
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    assert page.rstrip().endswith(drawing), (
        "copy the drawing of src/hookline/plan/points.py to the end of docs/hooks.md"
    )
