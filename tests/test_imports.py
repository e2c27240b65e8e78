"""Startup is guarded by what is loaded, not by seconds: the libraries that an import or a command brings in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

#: What a command may load before it needs torch: the libraries that read configs and options, and what they load.
LIGHT = {
    *(
        "annotated_doc",
        "click",
        "colorama",
        "hookline",
        "markdown_it",
        "mdurl",
        "pygments",
        "rich",
        "shellingham",
        "typer",
    ),
    *("annotated_types", "pydantic", "pydantic_core", "ruamel", "typing_extensions", "typing_inspection"),
}
COMMANDS = (
    *("--version", "--help", "train --help", "sweep --help", "compare --help", "plan --help", "init project"),
    *("hooks", "hooks CheckpointHook", "hooks --markdown", "schema"),
)

PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

def libraries():
    names = {name.split(".")[0] for name in list(sys.modules)}
    return {name for name in names if name not in sys.stdlib_module_names and not name.startswith("_")}

def type_in(command):
    from hookline.cli import main
    sys.argv = ["hookline", *command.split()]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
        try:
            main()
        except SystemExit as end:
            assert not end.code, (command, end.code, errors.getvalue())

CODE
print(json.dumps(found))
"""


def found_in_a_new_process(code: str, folder: Path) -> Any:
    """Run code in a new Python, and return what it sets as `found`."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM.replace("CODE", code)]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_importing_hookline_loads_no_other_library(tmp_path: Path) -> None:
    assert found_in_a_new_process("import hookline\nfound = sorted(libraries())", tmp_path) == ["hookline"]


def test_importing_every_public_name_loads_no_library_and_not_the_engine_behind_a_runner(tmp_path: Path) -> None:
    code = """
import torch, torch.optim.lr_scheduler, torch.utils.data

before = libraries()
import hookline
for name in hookline.__all__:
    getattr(hookline, name)
packages = {name.split(".")[1] for name in sys.modules if name.startswith("hookline.")}
found = [sorted(libraries() - before), sorted(packages)]
"""
    loaded, packages = found_in_a_new_process(code, tmp_path)
    assert loaded == ["hookline"]
    assert packages == [
        *("checkpoint", "common", "data", "engine", "errors", "integrations", "launching", "optim", "plan", "record"),
        *("run", "rundir", "runner", "runs", "state", "strategies", "writers"),
    ]


def test_commands_that_do_not_train_answer_without_torch(tmp_path: Path) -> None:
    code = f"""
found = {{}}
for command in {COMMANDS}:
    type_in(command)
    found[command] = sorted(libraries() - {LIGHT})
"""
    assert found_in_a_new_process(code, tmp_path) == {command: [] for command in COMMANDS}


@pytest.mark.long
def test_training_loads_little_more_than_a_bare_loop(tmp_path: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader

optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
bare = libraries()
from hookline import Runner
found = [sorted(libraries() - bare)]
from hookline.testing import toy_runner
toy_runner(max_epochs=1, writers=["jsonl"]).train()
found.append(sorted(libraries() - bare))
type_in("train --dry-run")
found.append(sorted(libraries() - bare))
"""
    imported, trained, by_command = found_in_a_new_process(code, tmp_path)
    assert imported == ["hookline"]
    assert trained == ["hookline", "rich"]
    assert set(by_command) <= LIGHT
