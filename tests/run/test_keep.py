from __future__ import annotations

from typing import Any

import pytest

from hookline.errors import ConfigError
from hookline.run.keep import Keep, parse_keep
from hookline.testing import toy_runner


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, []),
        ("config", ["config"]),
        ("lr=config", ["lr=config"]),
        (" lr=config , schedule=checkpoint", ["lr=config", "schedule=checkpoint"]),
        (["checkpoint", "lr=config"], ["checkpoint", "lr=config"]),
        ({"max_epochs": "checkpoint"}, ["max_epochs=checkpoint"]),
        (["lr=config", "lr=config"], ["lr=config"]),
    ],
)
def test_choices_are_read_from_texts_lists_and_mappings(given: Any, words: list[str]) -> None:
    assert parse_keep(given).words == words


def test_one_key_wins_over_all_keys_and_all_keys_over_the_default() -> None:
    keep = parse_keep(["config", "lr=checkpoint"])
    assert [keep.winner(key) for key in ("lr", "schedule", "max_epochs")] == ["checkpoint", "config", "config"]
    assert [Keep().winner(key) for key in ("lr", "schedule", "max_epochs")] == ["checkpoint", "checkpoint", "config"]
    assert [keep.side("lr"), Keep().side("lr")] == ["checkpoint", None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("shedule=config", "keep shedule=config: unknown key 'shedule'; did you mean 'schedule'?"),
        ("lr=confg", "keep lr=confg: unknown side 'confg'; did you mean 'config'?"),
        ("lr", "keep lr: expected a side, or key=side, but found 'lr'; available: checkpoint, config"),
        (
            "seed=checkpoint",
            "keep seed=checkpoint: there is no choice for 'seed': the data is built with it; to use the checkpoint's, "
            "change the config",
        ),
        ("hooks=config",
         "keep hooks=config: there is no choice for 'hooks': hooks are built from the config, and their states come "
         "from the checkpoint"),
        (["lr=config", "lr=checkpoint"], "keep was given twice for lr: config and checkpoint; use one"),
        (["config", "checkpoint"], "keep was given twice: config and checkpoint; use one"),
        ([3], "keep must be a text such as 'lr=config', a list of them, or a mapping, not [3]"),
        (3, "keep must be a text such as 'lr=config', a list of them, or a mapping, not 3"),
        ({"lr": True}, "keep must be a text such as 'lr=config', a list of them, or a mapping, not {'lr': True}"),
        ({1: "config"}, "keep must be a text such as 'lr=config', a list of them, or a mapping, not {1: 'config'}"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_meant_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_keep(given)
    assert str(refused.value) == message


def test_keep_without_a_resume_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(keep="lr=config")
    assert str(refused.value) == (
        "keep lr=config: this chooses between a checkpoint and the config, so it needs a resume; set resume as well, "
        "or remove keep"
    )
