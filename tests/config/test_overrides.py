"""Overrides: `key.path=value`, also for items of lists."""

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


def test_later_overrides_win_and_positions_name_them() -> None:
    loaded = from_dict(CONFIG, ["optim.lr=1", "optim.lr=2"])
    assert loaded.data["optim"] == {"lr": 2}
    assert loaded.locate(("optim", "lr")) == "override 'optim.lr=2'"
    assert loaded.locate(("optim",)) == "config"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr", "override 'lr': missing '='; write an override as key.path=value"),
        ("=1", "override '=1': the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type"),
        (
            "a..b=1",
            "override 'a..b=1': the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type",
        ),
        (
            "a[x]=1",
            "override 'a[x]=1': the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type",
        ),
        (
            "a\udcff=1",
            "override 'a\\udcff=1': the key is not a valid path; write it like optim.optimizer.lr or "
            "custom_hooks[0].type",
        ),
        ("hooks.3.type=B", "override 'hooks.3.type=B': 'hooks' has 1 item; index 1 would append, but 3 is too large"),
        (
            "hooks.momentun=1",
            "override 'hooks.momentun=1': 'hooks' is a list, so write an index before 'momentun': hooks[0].momentum",
        ),
        ("lr.x=1", "override 'lr.x=1': 'lr' is 0.1, not a mapping or a list"),
        ("optim[0]=1", "override 'optim[0]=1': 'optim' is a mapping, but [0] needs a list"),
        ("fresh[2]=1", "override 'fresh[2]=1': 'fresh' does not exist, but [2] needs a list"),
        ("lr=[1", "override 'lr=[1': invalid YAML: expected ',' or ']', but got '<stream end>'"),
        (
            "lr=!!python/name:os.system x",
            "override 'lr=!!python/name:os.system x': the tag '!!python/name:os.system' is not allowed; "
            "a config must contain only plain values",
        ),
        ("_base_=x.yaml", "override '_base_=x.yaml': '_base_' cannot be overridden; it is read from the file"),
    ],
)
def test_invalid_overrides_are_explained(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(CONFIG, [override])
    assert str(caught.value) == message


@pytest.mark.parametrize("number", ["0x" + "F" * 100_000, "0o" + "7" * 100_000, "9" * 100_000])
def test_a_number_that_python_cannot_print_is_refused(number: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_dict({}, [f"seed={number}"])
    # The override is shown shortened.
    assert str(refused.value) == (f"override 'seed={number[:191]}...: the number has 100000 digits, too many to read")


def test_a_long_number_in_a_text_is_not_shortened() -> None:
    number = "7" * 100
    assert from_dict({"n": int(number), "text": "a ${n}"}).data["text"] == f"a {number}"


def test_an_endless_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="the key is not a valid path"):
        from_dict({}, [".".join("a" * 100_000) + "=1"])
