"""Modules and packages of the dialects export their own names, all of which exist, and nothing that they only use."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hookline.dialects
from hookline.common.forwarding import forwarded

ROOT = Path(hookline.dialects.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parents[1]).with_suffix("").parts).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.name != "script.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_every_exported_name_exists_and_is_of_a_dialect(name: str) -> None:
    module = importlib.import_module(name)
    for each in getattr(module, "__all__", ()):
        value = getattr(module, each)
        assert not isinstance(value, ModuleType), each
        assert each not in ("Any", "annotations", "export_defined", "export_imported"), each


def exported(name: str) -> set[str]:
    return set(vars(importlib.import_module(f"hookline.dialects.mmengine.{name}"))["__all__"])


def test_a_package_exports_what_its_modules_define() -> None:
    assert exported("dist.utils") < exported("dist")
    assert {"get_rank", "all_reduce", "collect_results_cpu"} < exported("dist")
    assert {"load", "dump", "join_path", "LocalBackend"} < exported("fileio")
    assert not {"Path", "inspect", "get_handler", "_of_backend"} & exported("fileio.io")


def test_a_forwarded_attribute_reads_the_part() -> None:
    class Part:
        size = 2

    class Whole:
        part = Part()
        size: int = forwarded("part.size", "Return the size.")
        own: Any = forwarded("_own", "Return a value of its own.", settable=True)

    whole = Whole()
    whole.own = "set"
    assert (whole.size, whole.own, vars(whole)) == (2, "set", {"_own": "set"})
    with pytest.raises(AttributeError):
        whole.size = 3
