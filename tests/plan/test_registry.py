from __future__ import annotations

from pathlib import Path

import pytest

from hookline import Hook
from hookline.errors import ConfigError
from hookline.plan.registry import HOOKS, Registry, construct


class Thing:
    def __init__(self, size: int, colour: str = "red") -> None:
        self.size, self.colour = size, colour


def test_register_works_bare_with_parentheses_and_with_a_name() -> None:
    registry = Registry("thing")
    assert registry.register(Thing) is Thing
    registry.register("Other")(Thing)
    registry.register_module(name="Third")(Thing)

    @registry.register()
    class Fourth: ...

    assert list(registry) == ["Fourth", "Other", "Thing", "Third"]
    assert registry.get("Fourth") is Fourth
    assert "Thing" in registry
    assert len(registry) == 4


def test_a_name_that_is_taken_is_refused_unless_forced_or_the_same_again() -> None:
    registry = Registry("thing")
    registry.register("Thing")(Thing)
    registry.register("Thing")(Thing)
    with pytest.raises(ConfigError) as refused:
        registry.register("Thing")(Path)
    assert str(refused.value) == (
        f"the thing name 'Thing' is taken by {Thing.__module__}; choose another name, or replace it with "
        "register('Thing', force=True)"
    )
    registry.register("Thing", force=True)(Path)
    assert registry.get("Thing") is Path


def test_a_built_in_name_is_taken_too() -> None:
    class EMAHook(Hook): ...

    EMAHook.__name__ = "LoggerHook"
    with pytest.raises(ConfigError, match="^the hook name 'LoggerHook' is taken by hookline; "):
        HOOKS.register()(EMAHook)


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(ConfigError, match="^unknown hook 'LogerHook'; did you mean 'LoggerHook'\\?$"):
        HOOKS.get("LogerHook")


def test_every_built_in_name_leads_to_a_class_of_that_name() -> None:
    for name in HOOKS:
        if HOOKS.origin(name) == "hookline":
            assert HOOKS.get(name).__name__ == name


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install another package with entry points for this test."""
    (tmp_path / "other_package.py").write_text(
        "from hookline import Hook\n\n\nclass PluginHook(Hook):\n    'Does what a plugin does.'\n\n\nnot_a_class = 3\n"
    )
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[things]\nPluginHook = other_package:PluginHook\n"
        "Broken = other_package:Missing\nNumber = other_package:not_a_class\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_entry_points_of_other_packages_can_be_named(plugin: Path) -> None:
    registry = Registry("thing", group="things")
    assert list(registry) == ["Broken", "Number", "PluginHook"]
    assert registry.get("PluginHook").__module__ == "other_package"
    assert registry.origin("PluginHook") == "other-package (other_package:PluginHook)"


def test_a_plugin_that_cannot_be_loaded_names_its_package(plugin: Path) -> None:
    registry = Registry("thing", group="things")
    with pytest.raises(
        ConfigError, match=r"^the thing 'Broken' from other-package \(other_package:Missing\) cannot be loaded"
    ):
        registry.get("Broken")
    with pytest.raises(ConfigError, match=r"^the thing 'Number' from other-package .* must be a class, not 3$"):
        registry.get("Number")


def test_construct_refuses_parameters_that_do_not_fit() -> None:
    assert construct(Thing, {"size": 3}, "Thing").size == 3
    with pytest.raises(ConfigError, match="^Thing has no parameter 'color'; did you mean 'colour'\\?$"):
        construct(Thing, {"size": 3, "color": "blue"}, "Thing")
    with pytest.raises(ConfigError, match="^Thing needs the parameter 'size'$"):
        construct(Thing, {}, "Thing")
