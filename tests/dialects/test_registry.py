from __future__ import annotations

import logging

import pytest

from hookline.dialects.registry import Registry
from hookline.errors import ConfigError
from hookline.hooks import EMAHook


def a_registry() -> Registry:
    return Registry("hook", builtin={"EMAHook": "hookline.hooks.ema:EMAHook"})


def test_a_users_class_replaces_a_built_in_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    hooks = a_registry()
    assert hooks.get("EMAHook") is EMAHook
    with caplog.at_level(logging.WARNING, "hookline"):
        own = hooks.register("EMAHook")(type("Own", (), {}))
    assert hooks.get("EMAHook") is own
    assert caplog.messages == [f"the hook 'EMAHook' from {__name__} replaces the built-in one"]


def test_a_second_class_of_a_user_under_one_name_is_refused() -> None:
    hooks = a_registry()
    hooks.register("Mine")(type("One", (), {}))
    with pytest.raises(ConfigError, match=f"^the hook name 'Mine' is taken by {__name__}; choose another name, or "):
        hooks.register("Mine")(type("Other", (), {}))


def test_build_makes_an_object_from_a_dict_and_does_not_change_it() -> None:
    hooks, given = a_registry(), {"type": "EMAHook", "momentum": 0.5}
    made = hooks.build(given)
    assert isinstance(made, EMAHook)
    assert given == {"type": "EMAHook", "momentum": 0.5}
    assert hooks.build(made) is made
    assert isinstance(hooks.build({"type": EMAHook}), EMAHook)


def test_build_refuses_what_it_cannot_make() -> None:
    hooks = a_registry()
    with pytest.raises(ConfigError, match=r"^unknown hook 'EMAHok'; did you mean 'EMAHook'\?$"):
        hooks.build({"type": "EMAHok"})
    with pytest.raises(ConfigError, match=r"^a hook given as a dict needs a 'type'; this one has \['momentum'\]$"):
        hooks.build({"momentum": 0.5})
    with pytest.raises(ConfigError, match=r"^EMAHook has no parameter 'momentun'; did you mean 'momentum'\?$"):
        hooks.build({"type": "EMAHook", "momentun": 0.5})
