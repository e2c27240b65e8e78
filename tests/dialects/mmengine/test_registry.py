"""Registries as projects of MMEngine use them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine import registry
from hookline.dialects.mmengine.optim.optimizer.builder import TORCH_OPTIMIZERS, TRANSFORMERS_OPTIMIZERS
from hookline.dialects.mmengine.registry import (
    HOOKS,
    MODELS,
    OPTIMIZERS,
    DefaultScope,
    Registry,
    build_from_cfg,
    init_default_scope,
)
from hookline.errors import ConfigError


class Wheel:
    def __init__(self, size: int, color: str = "black") -> None:
        self.size, self.color = size, color


@pytest.fixture
def parts() -> Registry:
    return Registry("part")


def test_a_class_is_registered_and_built(parts: Registry) -> None:
    assert parts.register_module()(Wheel) is Wheel
    given = {"type": "Wheel", "size": 3}
    wheel = parts.build(given, default_args={"size": 1, "color": "red"})
    assert (type(wheel), wheel.size, wheel.color) == (Wheel, 3, "red")
    assert given == {"type": "Wheel", "size": 3}
    assert build_from_cfg({"type": Wheel, "size": 2}, parts).size == 2


def test_several_names_and_a_module_as_an_argument(parts: Registry) -> None:
    parts.register_module(name=["Tire", "Rim"], module=Wheel)
    parts.register_module(name="Disc")(Wheel)
    assert (parts.get("Tire"), parts.get("Rim"), parts.get("Disc"), parts.get("Wheel")) == (Wheel, Wheel, Wheel, None)
    assert sorted(parts.module_dict) == ["Disc", "Rim", "Tire"]
    assert len(parts) == 3
    assert "Rim" in parts


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"type": "Wheell"}, KeyError, "unknown part 'Wheell'; did you mean 'Wheel'?"),
        ({"size": 1}, KeyError, "a part given as a dict needs a 'type'; this one has ['size']"),
        (["Wheel"], TypeError, "a part must be described by a dict with a 'type', not by ['Wheel']"),
        ({"type": 3}, TypeError, "the 'type' of a part must be a name or a class, not 3"),
        ({"type": "Wheel", "sise": 1}, TypeError, "part: Wheel has no parameter 'sise'; did you mean 'size'?"),
    ],
)
def test_an_error_says_why_an_object_cannot_be_built(
    parts: Registry, given: Any, kind: type[Exception], message: str
) -> None:
    parts.register_module(module=Wheel)
    with pytest.raises(kind) as caught:
        parts.build(given)
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value) == message


def test_a_childs_classes_are_found_by_scope_and_a_parents_by_the_child(parts: Registry) -> None:
    child = Registry("part", parent=parts, scope="garage")
    parts.register_module(module=Wheel)

    @child.register_module()
    class Door: ...

    assert child.get("Wheel") is Wheel
    assert child.get("Door") is Door
    assert parts.get("Door") is None
    assert parts.get("garage.Door") is Door
    assert "Wheel" in child
    try:
        init_default_scope("garage")
        assert parts.get("Door") is Door
    finally:
        DefaultScope._current = None


def test_a_project_may_have_classes_of_the_same_names_as_the_package(caplog: pytest.LogCaptureFixture) -> None:
    ours = Registry("hook", parent=HOOKS, scope="ours")

    class EMAHook:
        """A hook of the project."""

    ours.register_module()(EMAHook)
    try:
        assert (ours.get("EMAHook"), HOOKS.get("ours.EMAHook")) == (EMAHook, EMAHook)
        assert HOOKS.get("EMAHook").__module__ == "hookline.dialects.mmengine.hooks.ema_hook"
        with pytest.raises(ConfigError, match=r"^the hook name 'EMAHook' is taken by .*test_registry; choose another"):
            ours.register_module(name="EMAHook")(Wheel)
        with DefaultScope.overwrite_default_scope("ours"):
            assert HOOKS.get("EMAHook") is EMAHook
    finally:
        del HOOKS.children["ours"]
    assert caplog.messages == []


def test_a_suggested_name_may_be_of_the_current_scope() -> None:
    ours = Registry("model", parent=MODELS, scope="theirs")
    ours.register_module()(Wheel)
    try:
        with DefaultScope.overwrite_default_scope("theirs"), pytest.raises(KeyError) as refused:
            MODELS.build({"type": "Wheeel"})
    finally:
        del MODELS.children["theirs"]
    assert refused.value.args[0] == "unknown model 'Wheeel'; did you mean 'Wheel'?"


def test_locations_are_imported_when_something_is_looked_for(parts: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = []

    def import_module(name: str) -> ModuleType:
        imported.append(name)
        child.register_module(name="Late", module=Wheel)
        return ModuleType(name)

    child = Registry("part", parent=parts, scope="garage", locations=["garage.parts"])
    monkeypatch.setattr("hookline.dialects.mmengine.registry.registry.importlib.import_module", import_module)
    assert (child.get("Late"), imported) == (Wheel, ["garage.parts"])


def test_a_users_hook_replaces_a_built_in_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(HOOKS, "_registered", {})

    @HOOKS.register_module()
    class EMAHook: ...

    assert HOOKS.get("EMAHook") is EMAHook
    assert caplog.messages == [f"the hook 'EMAHook' from {__name__} replaces the built-in one"]


def test_optimizers_and_names_with_the_scope_of_the_package() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1))]
    built = OPTIMIZERS.build({"type": "SGD", "lr": 0.1, "params": weights})
    assert isinstance(built, torch.optim.SGD)
    assert OPTIMIZERS.get("mmengine.SGD") is torch.optim.SGD
    assert (MODELS.scope, HOOKS.scope) == ("mmengine", "mmengine")


def test_every_torch_optimizer_that_is_named_exists() -> None:
    for name in OPTIMIZERS:
        assert issubclass(OPTIMIZERS.get(name), torch.optim.Optimizer)
    assert {*OPTIMIZERS.builtin} - {*TORCH_OPTIMIZERS} == {"TorchAdafactor"}
    assert {*TRANSFORMERS_OPTIMIZERS} <= {*OPTIMIZERS.builtin}


def test_the_registries_match_the_original() -> None:
    found = {name for name, value in vars(registry).items() if isinstance(value, Registry)}
    assert len(found) == 23
    assert found <= set(vars(registry)["__all__"])


def test_an_empty_registry_of_a_scope_is_the_one_to_switch_to() -> None:
    parent = Registry("thing", scope="mmengine")
    child = Registry("thing", scope="empty", parent=parent)
    with parent.switch_scope_and_registry("empty") as found:
        assert found is child
    with parent.switch_scope_and_registry(None) as found:
        assert found is parent
