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
from tests.dialects.originals.scope import is_about_behavior

SUITE = """
import unittest
from types import SimpleNamespace

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


class TestProcesses(unittest.TestCase):
    def test_ended(self):
        self.processes = [SimpleNamespace(exitcode=0)] * 2
        self.skipTest("the suite says so")

    def test_killed(self):
        self.processes = [SimpleNamespace(exitcode=0), SimpleNamespace(exitcode=-9)]
        self.skipTest("the suite says so")


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
        "| test_hooks/test_early_stopping_hook.py | 8 | 4 | 1 | 2 | 1 |",
        "| **all** | 8 | 4 | 1 | 2 | 1 |",
    ]
    assert shown.out.splitlines()[5].startswith("3 of the 5 tests that neither look into private parts")
    assert shown.out.splitlines()[-1].endswith(": in a run, hookline's loop does this part | 1 |")
    (failed,) = [line for line in shown.err.splitlines() if line.startswith("tests/test_hooks")]
    assert failed.endswith("LacksNameError: the dialect has no mmengine.hooks.NoSuchHook")


def test_a_folder_without_a_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no tests of mmengine or robo_orchard_lab; give the path of a checkout"):
        command.main([str(tmp_path)])


def test_a_test_that_fails_in_its_body_and_after_it_counts_once(tmp_path: Path) -> None:
    test = "tests/test_hooks/test_hook.py::test_it"
    records = [{"test": test, "outcome": outcome, "why": why} for outcome, why in (("passed", ""), ("failed", "x"))]
    (result,) = command.merge("mmengine", tmp_path, [*records, {**records[1], "why": "y"}])
    assert (result.outcome, result.why, result.kind, result.file) == (
        "failed",
        "x",
        "failed",
        "test_hooks/test_hook.py",
    )


@pytest.mark.parametrize(
    ("line", "about_behavior"),
    [
        ("assert hook._left == 1", False),
        ("self._check(hook)", True),
        ("patch('mmengine.runner.checkpoint._load')", False),
        ("_load(1)", False),
        ("with pytest.raises(ValueError, match='x'): pass", False),
        ("with pytest.raises(ValueError): pass", True),
        ("self.assertWarnsRegex(UserWarning, 'x')", False),
        ("hook.__dict__", True),
    ],
)
def test_a_test_is_about_behavior_if_it_uses_public_names_only(tmp_path: Path, line: str, about_behavior: bool) -> None:
    text = f"from mmengine.runner.checkpoint import _load\n\nclass TestIt:\n    def test_it(self):\n        {line}\n"
    (tmp_path / "test_it.py").write_text(text)
    for test in ("test_it.py::TestIt::test_it", "test_it.py::TestIt::test_it_0_case", "test_it.py::test_it[1-2]"):
        assert is_about_behavior(tmp_path, test) is about_behavior


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
