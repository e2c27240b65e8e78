"""Runs of several kinds that are run again with `hookline reproduce`: the result is the same to the bit.

The figure REPRODUCE of `make faults` counts them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults import children, differences, replays

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Reproduced:
    """A run: the overrides of its config, or the options of its script."""

    name: str
    overrides: tuple[str, ...] = ()
    script: Mapping[str, Any] = field(default_factory=dict)
    #: The step in which a first attempt of the script fails; it is resumed then.
    cut: int = 0


CASES = [
    Reproduced("a config"),
    Reproduced(
        "by iterations, with two batches per update",
        ("train.max_epochs=null", "train.max_iters=11", "optim.accumulate=2"),
    ),
    Reproduced("with workers", ("train.dataloader.num_workers=2",)),
    Reproduced("with batches that are left out", ('train.skip=[2, "9-10"]',)),
    Reproduced("with a schedule and clipping", ("optim.schedulers=[{type: cosine}]", "optim.clip_norm=0.5")),
    Reproduced(
        "with validations",
        ("val={dataloader: {dataset: {type: 'project:Data'}, batch_size: 8}, loss: 'project:loss_of'}",),
    ),
    Reproduced("in bf16", ("precision=bf16",)),
    Reproduced("a script", script={"interval": 5}),
    Reproduced("a script with an own loop", script={"interval": 5, "own_loop": True}),
    Reproduced("a run that failed and was resumed", ("custom_hooks=[{type: EMAHook}, {type: 'project:Cut'}]",), cut=7),
    Reproduced("a script that starts two processes", script={"interval": 5, "nproc": 2}),
]
CUT = '''

class Cut(Hook):
    """Fails once in step 7."""

    def before_train_iter(self, runner):
        import os
        if runner.iter == 6 and not os.path.exists("was-cut"):
            open("was-cut", "w").close()
            raise RuntimeError("planned")
'''


def run_and_reproduce(case: Reproduced, root: Path) -> str:
    """Train a run, and run it again. Return what was wrong; empty if the result is the same."""
    if case.script:
        (root / "project.py").write_text(replays.PROJECT)
        (root / "train.py").write_text(replays.SCRIPT)
        with children.running(replays.run_script, str(root), dict(case.script)) as child:
            assert child.wait(300) == 0, child.output()
    else:
        (root / "project.py").write_text(differences.PROJECT + CUT)
        (root / "c.yaml").write_text(json.dumps(differences.CONFIG))
        _command(root, ["train", "c.yaml", "work_dir=run", *case.overrides], 1 if case.cut else 0)
        if case.cut:
            _command(root, ["train", "c.yaml", "work_dir=run", "--resume", *case.overrides], 0)
    code, printed = children.command("reproduce", "run", "--json", cwd=root, timeout=300, environment=ENVIRONMENT)
    try:
        found = json.loads(printed[printed.index("{") :])
    except ValueError:
        return f"no result: {printed[-2000:]}"
    if code or not found["same"] or found["changes"]:
        return f"not reproduced: {found}"
    steps = found["steps"][1]
    return "" if found["equal_until"] == steps and found["compared"]["losses"] == steps else f"not all steps: {found}"


def _command(root: Path, words: Sequence[str], expected: int) -> None:
    code, printed = children.command(*words, cwd=root, timeout=300, environment=ENVIRONMENT)
    assert code == expected, printed


def measure(cases: Sequence[Reproduced] = tuple(CASES)) -> tuple[int, list[str]]:
    """Reproduce all runs. Return how many there are, and what was wrong with which."""
    wrong = []
    with TemporaryDirectory(prefix="hookline-reproductions-") as folder:
        for number, case in enumerate(cases):
            root = Path(folder, str(number))
            root.mkdir()
            if problem := run_and_reproduce(case, root):
                wrong.append(f"{case.name}: {problem}")
    return len(cases), wrong
