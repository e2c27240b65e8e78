"""Import names of other systems, redirected to the dialects. Each case runs in a fresh process without any of them."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects import alias
from hookline.dialects.imports import PACKAGES, Finder
from hookline.errors import ConfigError
from tests.faults.children import running

ROOT = Path(__file__).parent.parent.parent


def in_a_child(case: Callable[..., Any], *arguments: Any) -> None:
    """Run a case in a child process, which checks the assertions."""
    with running(case, *arguments) as child:
        assert child.wait() == 0, child.output()


def same_modules_under_both_names() -> None:
    alias("mmengine")
    import mmengine
    import mmengine.model.base_model.base_model as deep
    from mmengine.hooks import Hook  # the real package is installed, but is not found
    from mmengine.runner import Runner

    from hookline.dialects.mmengine.hooks import Hook as OurHook
    from hookline.dialects.mmengine.model.base_model import base_model

    assert Hook is OurHook
    assert deep is base_model
    assert mmengine.runner.Runner is Runner
    assert mmengine.Config is importlib.import_module("hookline.dialects.mmengine.config").Config
    ours = sys.modules["hookline.dialects.mmengine"]
    assert mmengine is ours is sys.modules["mmengine"]
    # Importing it under the other name did not change the module.
    assert ours.__name__ == ours.__spec__.name == "hookline.dialects.mmengine"
    assert ours.__spec__.submodule_search_locations == list(ours.__path__)
    assert importlib.reload(deep) is deep


def test_modules_are_the_same_objects_under_both_names() -> None:
    in_a_child(same_modules_under_both_names)


def imported_first_under_our_name() -> None:
    from hookline.dialects.imix.engine.hooks import base_hook

    alias("imix")
    import imix.engine
    from imix.engine.hooks.base_hook import HookBase

    assert HookBase is base_hook.HookBase
    assert imix.engine is sys.modules["hookline.dialects.imix.engine"]


def test_modules_that_are_imported_already_are_taken_as_they_are() -> None:
    in_a_child(imported_first_under_our_name)


def every_module(package: str) -> None:
    """Find them as `import package.x.y` does, before anything is imported under our own name."""
    alias(package)
    for name in PACKAGES[package]:
        folder = ROOT / "src" / "hookline" / "dialects" / name
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found = importlib.import_module(dotted)
            assert found is importlib.import_module(f"hookline.dialects.{dotted}")
            assert found.__name__ == f"hookline.dialects.{dotted}"
            assert found.__spec__ is not None
            assert found.__spec__.name == found.__name__


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_of_a_dialect_has_the_original_name(package: str) -> None:
    in_a_child(every_module, package)


def alias_twice() -> None:
    alias("pointrix")
    import pointrix.hook

    alias("pointrix")
    alias("mmengine")
    import mmengine.hooks

    assert [type(each) for each in sys.meta_path].count(Finder) == 1
    assert pointrix.hook is sys.modules["hookline.dialects.pointrix.hook"]
    assert mmengine.hooks is sys.modules["hookline.dialects.mmengine.hooks"]


def test_alias_twice_and_for_several_systems() -> None:
    in_a_child(alias_twice)


def the_real_package_is_there() -> None:
    import mmengine

    assert mmengine.__file__ is not None
    with pytest.raises(ConfigError) as refused:
        alias("mmengine")
    assert str(refused.value) == (
        f"the real package 'mmengine' is already imported (from {mmengine.__file__}); "
        'call hookline.dialects.alias("mmengine") before anything imports it'
    )
    assert not any(isinstance(each, Finder) for each in sys.meta_path)
    assert mmengine.__name__ == "mmengine"


def test_it_is_refused_when_the_real_package_is_imported_already() -> None:
    in_a_child(the_real_package_is_there)


def the_real_core_is_there() -> None:
    sys.modules["robo_orchard_core"] = types.ModuleType("robo_orchard_core")
    with pytest.raises(
        ConfigError, match=r"^the real package 'robo_orchard_core' is already imported \(from somewhere"
    ):
        alias("robo_orchard_lab")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("robo_orchard_lab")  # no package was redirected


def test_it_is_refused_when_a_package_that_comes_along_is_imported_already() -> None:
    in_a_child(the_real_core_is_there)


def core_comes_along() -> None:
    alias("robo_orchard_lab")
    from robo_orchard_core.utils.config import Config
    from robo_orchard_lab.pipeline.hooks.mixin import PipelineHooksConfig

    assert issubclass(PipelineHooksConfig, Config)
    assert Config.__module__ == "hookline.dialects.robo_orchard_core.utils.config"


def test_robo_orchard_lab_brings_core_along() -> None:
    in_a_child(core_comes_along)


def what_is_missing() -> None:
    alias("mmengine")
    for name in ("mmengine.nothing", "mmengine.hooks.nothing"):
        with pytest.raises(ModuleNotFoundError) as missing:
            importlib.import_module(name)
        page = "docs/coming-from/mmengine.md"
        assert str(missing.value) == f"hookline's dialect has no module '{name}'; see {page}"
        assert missing.value.name == name
    with pytest.raises(ImportError, match="cannot import name 'Nothing' from 'hookline.dialects.mmengine.hooks'"):
        from mmengine.hooks import Nothing  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="No module named 'imix'"):
        importlib.import_module("imix")
    assert importlib.util.find_spec("mmengine_extras") is None  # another package whose name starts the same way


def asks_for_specs() -> None:
    alias("mmengine")
    assert importlib.util.find_spec("mmengine.absent") is None
    assert importlib.util.find_spec("mmengine.hooks.absent") is None
    assert importlib.util.find_spec(".absent", "mmengine.hooks") is None
    found = importlib.util.find_spec("mmengine.hooks")
    assert found is not None
    assert found.origin == str(ROOT / "src/hookline/dialects/mmengine/hooks/__init__.py")
    with pytest.raises(ModuleNotFoundError):  # as Python does where the parent package is missing, too
        importlib.util.find_spec("mmengine.absent.hooks")


def test_find_spec_works_for_modules_of_a_dialect() -> None:
    in_a_child(asks_for_specs)


def test_a_module_that_a_dialect_lacks_is_named() -> None:
    in_a_child(what_is_missing)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mmengin", "did you mean 'mmengine'?"),
        ("robo_orchard", "did you mean 'robo_orchard_lab'?"),
        ("lightning", f"available: {', '.join(PACKAGES)}"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_ones(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        alias(name)
    assert str(refused.value) == f"unknown dialect '{name}'; {hint}"


def from_several_threads() -> None:
    alias("mmengine")
    names = [f"mmengine.{name}" for name in ("hooks", "runner", "model", "config", "evaluator", "dataset", "fileio")]
    threads = [threading.Thread(target=importlib.import_module, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        spec = sys.modules[name].__spec__
        assert spec is not None
        assert spec.name == f"hookline.dialects.{name}"


def test_modules_may_be_imported_by_several_threads_at_once() -> None:
    in_a_child(from_several_threads)


def pickled() -> None:
    alias("mmengine")
    from mmengine.config import ConfigDict

    found = pickle.loads(pickle.dumps(ConfigDict(a=1)))
    assert type(found) is ConfigDict
    assert type(found).__module__.startswith("hookline.dialects.mmengine.")  # so it can be read without an alias


def test_pickled_objects_name_the_dialect() -> None:
    in_a_child(pickled)
