"""Run every Python block of the README and the docs, and read every YAML block as a config."""

from __future__ import annotations

import re
import shutil
import subprocess
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

from hookline import Runner
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
#: A page with one of these runs in a process of its own, because threads and settings of earlier tests are in the way.
ALONE = ("hookline.launch(", "hookline.integrations.")
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))


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
    if any(text in block for text in ALONE for block in blocks(page, "python")):
        run_in_a_new_process(page, tmp_path)
        return
    for registry in (HOOKS, WRITERS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    names = names_of_pages()
    ran = 0
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)
        ran += 1
    assert ran == len(blocks(page, "python"))
    assert "Traceback" not in capsys.readouterr().err


def names_of_pages() -> dict[str, Any]:
    """Return the names that pages use without defining them."""
    return {
        "torch": torch,
        "time": time,
        "model": nn.Linear(4, 2),
        "train_set": TensorDataset(*toy_data(1, 32)[0]),
        "val_set": TensorDataset(*toy_data(1, 32)[0]),
        "loss_of": cross_entropy,
        "predict": predict,
    }


def run_in_a_new_process(page: Path, folder: Path) -> None:
    """Run the blocks of a page whose process must be new: one that it copies, or one in which another engine trains."""
    script = folder / "page.py"
    prologue = f"import sys\nsys.path.append({str(ROOT)!r})\nfrom tests import test_docs\n"
    prologue += "globals().update(test_docs.names_of_pages())\n"
    script.write_text(prologue + "\n".join(blocks(page, "python")), encoding="utf-8")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=lambda page: page.name)
def test_the_yaml_blocks_of_a_page_are_valid_configs(page: Path) -> None:
    for block in blocks(page, "yaml"):
        data = plain(parse(block, lambda line, column: Mark("page", line, column)))
        assert isinstance(data, dict)
        if "_base_" not in data:
            assert from_dict(data).data == data


@pytest.mark.parametrize("page", [page for page in HOW_TO if blocks(page, "yaml")], ids=lambda page: page.name)
def test_the_yaml_blocks_of_a_how_to_page_build_a_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "src" / "hookline" / "data" / "digits.yaml", tmp_path)
    for block in blocks(page, "yaml"):
        block = block.replace("val:\n", "val:\n  _delete_: true\n")  # several loops instead of the one of the base
        (tmp_path / "config.yaml").write_text(f"_base_: digits.yaml\n{block}", encoding="utf-8")
        Runner.from_config(tmp_path / "config.yaml", ["device=cpu"])


def test_the_first_ten_lines_of_the_readme_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = blocks(PAGES[0], "python")[0]
    assert len([line for line in script.splitlines() if line]) == 10
    names: dict[str, Any] = {}
    exec(compile(script, "README.md", "exec", dont_inherit=True), names)
    assert names["runner"].epoch == 5
    assert names["runner"].val()["accuracy"] > 0.9
    assert "epoch 5  val  accuracy" in capsys.readouterr().out


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets
    silent = {"help", "setup", "lint", "behavior"}  # parts of the others
    assert [name for name in targets[1].split() if name not in silent and f"make {name} " not in makefile] == []


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
