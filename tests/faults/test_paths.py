"""Fault 31: long paths and paths with Unicode work, even if the locale supports only ASCII."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.project import MYNET, config, write
from tests.run_files import USUAL, files_in

# Runs several commands in one process, which is started with the locale, as a shell would start it.
SCRIPT = """
import sys
from hookline.cli import main

for words in (["train", "--resume"], ["train", "train.max_epochs=2", "--resume"], ["plan"]):
    sys.argv = ["hookline", words[0], "config.yaml", *words[1:]]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NAMES = ("Ünïcödé 実験 🧪", "x" * 120, "ein Ordner mit Leerzeichen " + "y" * 90)


@pytest.mark.parametrize("locale", [ASCII, {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}], ids=["ascii", "utf8"])
def test_fault_31_a_run_in_a_long_unicode_folder_works_in_any_locale(locale: dict[str, str], tmp_path: Path) -> None:
    work_dir = "läufe/größe 実験"
    folder = tmp_path.joinpath(*NAMES)
    assert len(str(folder)) > 230
    write(folder, "mynet.py", MYNET)
    write(folder, "config.yaml", config(work_dir=work_dir, experiment_name="größe 実験"))
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    environment = {**os.environ, **locale}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    run = folder / work_dir
    assert files_in(run) == sorted(["config.yaml", "epoch_1.pth", "epoch_2.pth", "resume.json", *USUAL])
    assert "größe 実験" in (run / "config.yaml").read_text(encoding="utf-8")
    assert "epoch 2/2  iter 2/2" in (run / "run.log").read_text(encoding="utf-8")
    shown = "gr\\xf6\\xdfe \\u5b9f\\u9a13" if locale is ASCII else "größe 実験"
    assert f"{shown}: 2 epochs of 2 iterations on cpu" in ended.stdout.decode()
