"""An installation may leave the dialects out: native hookline does not need them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hookline
from hookline.cli.run_as import SYSTEMS
from hookline.dialects import imports
from hookline.errors import ConfigError

TRAINS = """
import importlib.util
import hookline
from hookline.testing import toy_runner
assert importlib.util.find_spec("hookline.dialects") is None
toy_runner(work_dir="run", quiet=True).train()
print(hookline.__file__)
"""


def leave_out(folder: Path) -> Path:
    """Create an installation without the dialects, and return its folder."""
    source, target = Path(hookline.__file__).parent, folder / "hookline"
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "dialects":
            (target / path.name).symlink_to(path)
    return folder


def python(installation: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this installation of hookline."""
    environment = {**os.environ, "PYTHONPATH": str(installation), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)


@pytest.mark.processes
def test_native_runs_train_without_the_dialects_and_run_as_says_what_is_missing(tmp_path: Path) -> None:
    installation = leave_out(tmp_path / "installed")
    trained = python(installation, tmp_path, "-c", TRAINS)
    assert (trained.returncode, trained.stderr) == (0, "")
    assert trained.stdout.strip() == str(installation / "hookline" / "__init__.py")
    assert (tmp_path / "run" / "epoch_2.pth").is_file()
    refused = python(installation, tmp_path, "-m", "hookline", "run-as", "imix", "train.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert " ".join(refused.stderr.split()) == (
        "hookline: this installation of hookline has no dialects, so it cannot run scripts of imix; install the whole "
        "package: pip install --force-reinstall --no-deps hookline"
    )


def test_one_dialect_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    gone = "hookline.dialects.imix"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == gone else found(name))
    with pytest.raises(ConfigError) as refused:
        imports.alias("imix")
    assert str(refused.value) == (
        "this installation of hookline has no dialect 'imix'; install the whole package: "
        "pip install --force-reinstall --no-deps hookline"
    )


def test_the_command_knows_all_dialects() -> None:
    assert tuple(imports.PACKAGES) == SYSTEMS
