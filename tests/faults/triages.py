"""Runs that fail because of a planted NaN, and `hookline replay --triage`, which has to say where it began.

Observers that change a training, and `hookline verify`, which has to name them, and nobody else. The figures TRIAGE and
MEDDLER of `make faults` count both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tests.contract import test_hooks as contract
from tests.faults import children, planted
from tests.faults.replays import run_script
from tests.replay import meddlers

T = TypeVar("T")

SCRIPT = """
import json, sys
from tests.faults import nans

if __name__ == "__main__":
    nans.train(json.loads(sys.argv[1]))
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def fail_and_find(cause: planted.Planted, root: Path) -> str:
    """Let a run fail, and look for the cause in new processes. Return what was wrong; empty if nothing was."""
    (root / "train.py").write_text(SCRIPT, encoding="utf-8")
    with children.running(run_script, str(root), cause.options) as child:
        if child.wait(300) == 0:
            return "the run did not fail"
    words = ("replay", "run", "--triage", "--json")
    code, printed = children.command(*words, cwd=root, timeout=300, environment=ENVIRONMENT)
    found = _data_in(printed)
    return planted.problems(cause, found) if found and not code else f"no result: {printed[-2000:]}"


def meddle_and_verify(name: str, root: Path) -> str:
    """Let an observer meddle alone, and verify the run. Return what was wrong; empty if nothing was."""
    point, step, kind, changed = meddlers.MEDDLERS[name]
    meddlers.write(root, *dict.fromkeys(("Actor", name)))
    code, printed = children.command("verify", "config.yaml", "--json", cwd=root, timeout=300, environment=ENVIRONMENT)
    changes = (_data_in(printed) or {}).get("changes", [])
    if code != 1 or [change["hook"] for change in changes] != [name]:
        return f"exit code {code}: {printed[-2000:]}"
    (change,) = changes
    fits = (
        change["point"].startswith(point) and change["step"] == step and change["names"].get(kind, [""])[0] == changed
    )
    return "" if fits else f"{change}"


def verify_built_in(name: str, root: Path) -> str:
    """Verify a run with a built-in hook, as in its documentation. Return what was blamed; empty if nothing was."""
    (root / "mynet.py").write_text(contract.MYNET, encoding="utf-8")
    config = contract.merged(contract.merged(contract.BASE, contract.yaml_of(name)), {"work_dir": "run"})
    (root / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    code, printed = children.command("verify", "c.yaml", "--json", cwd=root, timeout=300, environment=ENVIRONMENT)
    found = _data_in(printed)
    fine = not code and found is not None and found["equal"] and not found["lost"]
    return "" if fine else f"exit code {code}: {printed[-2000:]}"


def _data_in(printed: str) -> dict[str, Any] | None:
    """Return the JSON in the output of a command; None without it."""
    try:
        data: dict[str, Any] = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    except ValueError:
        return None
    return data


def measure(cases: dict[str, T], check: Callable[[T, Path], str]) -> tuple[int, list[str]]:
    """Check all cases. Return how many there are, and what was wrong with which."""
    wrong = []
    with TemporaryDirectory(prefix="hookline-triages-") as folder:
        for number, (name, case) in enumerate(cases.items()):
            root = Path(folder, str(number))
            root.mkdir()
            if problem := check(case, root):
                wrong.append(f"{name}: {problem}")
    return len(cases), wrong


#: All causes, all meddlers and all built-in hooks, by name.
CAUSES = {cause.name: cause for cause in (*planted.PLANTED, *planted.OF_TWO)}
MEDDLERS = {name: name for name in meddlers.MEDDLERS}
BUILT_IN = {name: name for name in contract.NAMES}
