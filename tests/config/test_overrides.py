"""`key.path=value`, also into lists."""

from __future__ import annotations

from typing import Any

import pytest

from hookline.config.loading import from_dict
from hookline.errors import ConfigError

CONFIG = {"lr": 0.1, "optim": {"lr": 0.1}, "hooks": [{"type": "A", "momentum": 0.5}], "gone": None}


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("lr=1e-3", "lr", 0.001),
        ("optim.lr=0.5", "optim", {"lr": 0.5}),
        ("optim.new.deep=[1, 2]", "optim", {"lr": 0.1, "new": {"deep": [1, 2]}}),
        ("optim={type: SGD}", "optim", {"type": "SGD"}),
        ("hooks.0.momentum=0.1", "hooks", [{"type": "A", "momentum": 0.1}]),
        ("hooks[0].momentum=0.1", "hooks", [{"type": "A", "momentum": 0.1}]),
        ("hooks.1={type: B}", "hooks", [{"type": "A", "momentum": 0.5}, {"type": "B"}]),
        ("hooks[1].type=B", "hooks", [{"type": "A", "momentum": 0.5}, {"type": "B"}]),
        ("fresh.0={type: B}", "fresh", [{"type": "B"}]),
        ("gone.x=1", "gone", {"x": 1}),
        ("text=a=b", "text", "a=b"),
        ("empty=", "empty", None),
        (" lr = 2", "lr", 2),
    ],
)
def test_overrides_reach_everywhere(override: str, key: str, value: Any) -> None:
    loaded = from_dict(CONFIG, [override])
    assert loaded.data == {**CONFIG, key: value}


def test_later_overrides_win_and_places_name_them() -> None:
    loaded = from_dict(CONFIG, ["optim.lr=1", "optim.lr=2"])
    assert loaded.data["optim"] == {"lr": 2}
    assert loaded.locate(("optim", "lr")) == "override 'optim.lr=2'"
    assert loaded.locate(("optim",)) == "config"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr", "override 'lr': there is no '='; an override is key.path=value"),
        ("=1", "override '=1': the key is no path; write it like optim.optimizer.lr or custom_hooks[0].type"),
        ("a..b=1", "override 'a..b=1': the key is no path; write it like optim.optimizer.lr or custom_hooks[0].type"),
        ("a[x]=1", "override 'a[x]=1': the key is no path; write it like optim.optimizer.lr or custom_hooks[0].type"),
        ("hooks.3.type=B", "override 'hooks.3.type=B': 'hooks' has 1 item; index 1 would append, 3 is too far"),
        (
            "hooks.momentun=1",
            "override 'hooks.momentun=1': 'hooks' is a list, so an index comes before 'momentun': hooks[0].momentum",
        ),
        ("lr.x=1", "override 'lr.x=1': 'lr' is 0.1, not a mapping or a list"),
        ("optim[0]=1", "override 'optim[0]=1': 'optim' is a mapping, and [0] asks for an item of a list"),
        ("fresh[2]=1", "override 'fresh[2]=1': 'fresh' is not there, and [2] asks for an item of a list"),
        ("lr=[1", "override 'lr=[1': invalid YAML: expected ',' or ']', but got '<stream end>'"),
        (
            "lr=!!python/name:os.system x",
            "override 'lr=!!python/name:os.system x': the tag '!!python/name:os.system' is not allowed; "
            "a config contains only plain values",
        ),
        ("_base_=x.yaml", "override '_base_=x.yaml': '_base_' cannot be overridden; it is read from the file"),
    ],
)
def test_overrides_that_cannot_be_are_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(CONFIG, [override])
    assert str(caught.value) == message


def test_a_path_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="the key is no path"):
        from_dict({}, [".".join("a" * 100_000) + "=1"])
