"""Reading settings from the command line."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from hookline.dialects.robo_orchard_core.utils.cli import SettingConfig, pydantic_from_argparse


class Data(SettingConfig):
    root: str | None = Field(description="Where the pictures are.", default=None)
    dummy: bool = Field(description="Make pictures up.", default=False)

    def __post_init__(self) -> None:
        if not self.dummy and self.root is None:
            raise ValueError("give root, or dummy")


class Training(SettingConfig):
    data: Data = Field(description="The data.")
    batch_size: int = Field(description="Samples of a batch.", default=8)


def parse(monkeypatch: pytest.MonkeyPatch, *words: str, cls: Any = Training, **options: Any) -> Any:
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    return pydantic_from_argparse(cls, argparse.ArgumentParser("train.py"), **options)


def test_settings_come_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = parse(monkeypatch, "--data.root", "photos", "--batch_size", "64")
    assert cfg == Training(data=Data(root="photos"), batch_size=64)
    assert parse(monkeypatch, "--data.dummy", "true").batch_size == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch_size", "many", "--data.dummy", "true"], "batch_size: Input should be a valid integer, unable to "),
        (["--data.dummy", "false"], "data: Value error, give root, or dummy"),
        (["--batch_size", "3"], "data: Field required"),
        (["--bogus", "3", "--data.dummy", "true"], "unrecognized arguments: --bogus 3"),
    ],
)
def test_wrong_arguments_end_the_program_as_argparse_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(monkeypatch, *words)
    assert caught.value.code == 2
    assert f"train.py: error: {message}" in capsys.readouterr().err


def test_help_shows_the_descriptions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(monkeypatch, "--help")
    assert "Samples of a batch." in capsys.readouterr().out


def test_the_environment_is_read_only_where_a_class_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asks(SettingConfig):
        model_config = SettingsConfigDict(env_prefix="ORCHARD_")
        batch_size: int = 8

    monkeypatch.setenv("BATCH_SIZE", "77")
    monkeypatch.setenv("ORCHARD_BATCH_SIZE", "99")
    assert Training(data=Data(dummy=True)).batch_size == 8
    assert Asks().batch_size == 99


def test_settings_are_configs_without_a_type_in_their_text() -> None:
    cfg = Training(data=Data(dummy=True))
    assert cfg.to_str() == '{"data":{"root":null,"dummy":true},"batch_size":8}'
    assert Training.from_str(cfg.to_str("toml"), "toml") == cfg
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Training(data=Data(dummy=True), bogus=1)  # type: ignore[call-arg]
