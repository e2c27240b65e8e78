"""The command that runs the originals' test suites: what it redirects, and what its tables count."""

from __future__ import annotations

import builtins
import sys
import tarfile
from pathlib import Path

import pytest

from tests.dialects.originals import __main__ as command
from tests.dialects.originals.missing import LacksNameError, importing, placeholder
from tests.dialects.originals.reasons import LISTED, PRIVATE, reason_of

SUITE = """
import unittest

import pytest
from mmengine.hooks import Hook, NoSuchHook
from mmengine.nowhere import nothing
from mmengine.optim import OptimWrapper
from mmengine.testing import helper


class TestHooks(unittest.TestCase):
    def test_redirected(self):
        assert Hook.__module__.startswith("hookline.dialects.mmengine")
        assert helper() == "from the checkout"

    def test_text(self):
        with self.assertRaisesRegex(TypeError, "another text"):
            raise TypeError("our text")

    def test_after_val_epoch(self):
        assert False, "a reason is listed for it"


def test_missing():
    NoSuchHook()


def test_lacking_module():
    nothing


def test_skipped():
    pytest.skip("not here")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "mmengine/testing/__init__.py": "def helper():\n    return 'from the checkout'\n",
        "tests/test_hooks/test_early_stopping_hook.py": SUITE,
    }
    for name, text in files.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True)
        (tmp_path / "source" / name).write_text(text)
    return tmp_path / "source"


@pytest.mark.processes
def test_a_suite_runs_through_its_dialect(checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sdist = tmp_path / "mmengine-0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(checkout, "mmengine-0")
    assert command.main([str(sdist), "--markdown"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[:4] == [
        "| suite | tests | passed | listed | skipped | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| test_hooks/test_early_stopping_hook.py | 6 | 3 | 1 | 1 | 1 |",
        "| **all** | 6 | 3 | 1 | 1 | 1 |",
    ]
    assert shown.out.splitlines()[-1].endswith(": in a run, hookline's loop does this part | 1 |")
    (failed,) = [line for line in shown.err.splitlines() if line.startswith("tests/test_hooks")]
    assert failed.endswith("LacksNameError: the dialect has no mmengine.hooks.NoSuchHook")


def test_a_folder_without_a_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no tests of mmengine or robo_orchard_lab; give the path of a checkout"):
        command.main([str(tmp_path)])


def test_a_test_that_fails_in_its_body_and_after_it_counts_once() -> None:
    test = "tests/test_hooks/test_hook.py::test_it"
    records = [{"test": test, "outcome": outcome, "why": why} for outcome, why in (("passed", ""), ("failed", "x"))]
    (result,) = command.merge("mmengine", [*records, {**records[1], "why": "y"}])
    assert (result.outcome, result.why, result.kind, result.file) == (
        "failed",
        "x",
        "failed",
        "test_hooks/test_hook.py",
    )


def test_every_reason_is_given_once_and_the_first_pattern_decides() -> None:
    assert reason_of("mmengine", "tests/test_runner/test_log_processor.py::TestLogProcessor::test_get_iter") == PRIVATE
    assert reason_of("mmengine", "tests/test_hooks/test_hook.py::TestHook::test_before_run") == ""
    for listed in LISTED.values():
        patterns = [pattern for each in listed.values() for pattern in each]
        assert len(set(patterns)) == len(patterns)


def test_a_placeholder_can_be_inherited_from_but_not_used() -> None:
    lacking = placeholder("mmengine.hooks", "NoHook")
    assert issubclass(type("Own", (lacking,), {}), lacking)
    with pytest.raises(LacksNameError, match="the dialect has no mmengine.hooks.NoHook"):
        lacking()
    with pytest.raises(LacksNameError, match="the dialect has no mmengine.hooks.NoHook"):
        _ = lacking.anything  # type: ignore[attr-defined]  # that is the test


def test_only_files_of_the_checkout_get_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_ = importing(("hookline",), tmp_path)
    names = {"__file__": str(tmp_path / "tests/test_x.py")}
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    module = import_("hookline.no_such_module", names, None, ("anything",))
    assert issubclass(module.anything, object)
    with pytest.raises(ModuleNotFoundError):
        import_("hookline.another_module", {"__file__": __file__}, None, ("anything",))
    assert builtins.__import__ is not import_
