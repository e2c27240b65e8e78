"""Every name of the original that code of others can import exists; those that are not included say so when used.

`python -m tests.openmmlab.list_names` writes names.txt from the original and from the wheels of OpenMMLab's projects.
"""

from __future__ import annotations

import importlib
import operator
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects.imports import FROM_ORIGINAL
from hookline.dialects.mmengine import runner
from hookline.dialects.mmengine.errors import ConfigAttributeError, RefusedError
from tests.faults.children import command, running

LINES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").splitlines()
NAMES = {line.split(":")[0]: line.split()[1:] for line in LINES if not line.startswith("#")}
PAGE = "docs/coming-from/mmengine.md"


def borrowed(name: str) -> bool:
    """Return whether a name comes from the installed original."""
    return any(f"{name}.".startswith(f"{package}.") for package in FROM_ORIGINAL)


def found(module: str, name: str) -> Any:
    try:
        return operator.attrgetter(name)(importlib.import_module(f"hookline.dialects.{module}"))
    except AttributeError:
        return importlib.import_module(f"hookline.dialects.{module}.{name}")


@pytest.mark.parametrize("module", [module for module in NAMES if not borrowed(module)])
def test_every_name_that_code_of_others_imports_exists(module: str) -> None:
    missing = [name for name in NAMES[module] if not borrowed(f"{module}.{name}") and found(module, name) is None]
    assert missing == []
    importlib.import_module(f"hookline.dialects.{module}")


def imported_under_the_original_names() -> None:
    from hookline.dialects import alias

    alias("mmengine")
    for module, names in NAMES.items():
        if not borrowed(module):
            theirs = importlib.import_module(module)
            assert all(operator.attrgetter(name)(theirs) is not None for name in names if not borrowed(name)), module
    for line in (
        "from mmengine.runner.runner import FUNCTIONS, EpochBasedTrainLoop, TestLoop, ValLoop, Visualizer",
        "from mmengine.hooks.logger_hook import HOOKS, print_log, scandir",
        "from mmengine.evaluator.metric import METRICS",
        "from mmengine.runner.checkpoint import apply_to",
    ):  # as in the original, these modules have the names that they import themselves
        exec(line, names := {})
        assert None not in names.values()
    for name in ("Nope", "_find", "__wrapped__"):
        assert not hasattr(sys.modules["mmengine.runner.runner"], name)
    assert sys.modules["mmengine._strategy.fsdp"].__name__ == "hookline.dialects.mmengine._strategy"


def test_the_names_exist_in_redirected_imports() -> None:
    with running(imported_under_the_original_names) as child:
        assert child.wait() == 0, child.output()


def test_a_name_that_is_not_included_names_the_page_when_it_is_used() -> None:
    base: Any = vars(runner)["FlexibleRunner"]
    mine: Any = type(base)("Mine", (base,), {"more": 1})  # as a class statement does
    text = f"mmengine.runner.FlexibleRunner is not included in hookline's dialect, and can only be imported; see {PAGE}"
    for use in (base, mine, lambda: mine(model=None), lambda: list(base), lambda: 1 in mine):
        with pytest.raises(RefusedError) as error:
            use()
        assert str(error.value) == text
    with pytest.raises(ConfigAttributeError) as missing:
        base.from_cfg({})
    assert str(missing.value) == text
    assert mine.more == 1
    assert not isinstance(1, base)
    assert not issubclass(runner.Runner, base)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("from mmengine.hooks import Nope", "such name in 'mmengine.hooks'"),
        ("from mmengine.runner.runner import Nope", "such name in 'mmengine.runner.runner'"),
        ("import mmengine.nope", "module 'mmengine.nope'"),
    ],
)
def test_a_missing_name_names_the_page(tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "train.py").write_text(line + "\n", encoding="utf-8")
    code, printed = command("run-as", "mmengine", "train.py", cwd=tmp_path)
    assert (code, printed.splitlines()[-1].partition(": ")[2] or printed.splitlines()[-1]) == (
        1,
        f"hookline's dialect has no {what}; see {PAGE}",
    )
