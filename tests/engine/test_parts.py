"""Stateful parts: a snapshot is the state of each, and a new one is one entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner
from hookline.checkpoint import store
from hookline.engine import snapshot
from hookline.engine.host import Host, Part
from hookline.errors import ConfigError, StorageError
from hookline.testing import toy_runner


class Curriculum:
    """A user's object with a state."""

    def __init__(self) -> None:
        self.level = 0

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level = state["level"]


def test_a_checkpoint_has_meta_and_one_entry_for_each_part(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1)
    runner.train()
    saved = store.read(tmp_path / "epoch_1.pth", sealed=True)
    assert list(saved) == ["meta", *runner.parts]
    assert list(runner.parts) == [
        *("state_dict", "optimizer", "param_schedulers", "scaler", "position", "message_hub", "writers", "hooks", "rng")
    ]


def test_a_part_of_the_user_is_saved_and_comes_back(tmp_path: Path) -> None:
    curriculum = Curriculum()
    runner = toy_runner(work_dir=tmp_path, max_epochs=2)
    runner.add_part("curriculum", curriculum)
    assert list(runner.parts)[-3:] == ["curriculum", "hooks", "rng"]
    runner.on("after_train_epoch")(lambda: setattr(curriculum, "level", curriculum.level + 1))
    runner.train()
    assert store.read(tmp_path / "epoch_2.pth", sealed=True)["curriculum"] == {"level": 2}

    again = Curriculum()
    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed.add_part("curriculum", again)
    resumed.train()
    assert again.level == 2


def test_a_part_that_a_checkpoint_does_not_have_starts_fresh_which_is_reported(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed.add_part("curriculum", Curriculum())
    resumed.train()
    assert "not in the checkpoint, so starting from scratch: curriculum" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("rng", Curriculum(), "checkpoints already have a part 'rng'; choose another name"),
        ("meta", Curriculum(), "checkpoints already have a part 'meta'; choose another name"),
        ("mine", object(), "the part 'mine' (object) has no method state_dict"),
    ],
)
def test_a_part_that_cannot_be_saved_is_refused(name: str, part: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner().add_part(name, part)
    assert str(refused.value) == message


def test_nothing_is_loaded_if_one_part_does_not_fit(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()

    class Picky(Part):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def misfits(self, state: Any, checkpoint: Any) -> list[str]:
            return ["the weather: it rains"]

    resumed = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    resumed.parts["position"] = Picky()
    before = {name: value.clone() for name, value in resumed.model.state_dict().items()}
    with pytest.raises(StorageError) as refused:
        resumed.train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} does not fit this run; nothing was loaded:\n  the weather: it rains"
    )
    assert all(value.equal(before[name]) for name, value in resumed.model.state_dict().items())


def test_a_snapshot_is_the_state_of_each_part_of_any_host() -> None:
    class Counts(Part):
        def state_dict(self) -> dict[str, Any]:
            return {"n": 3}

    class Bare(Host):
        def facts(self) -> dict[str, Any]:
            return {"who": "a host"}

    runner, host = toy_runner(), Bare()
    host.plan, host.parts = runner.plan, {"counts": Counts()}
    assert snapshot.take(host) == {"meta": {"who": "a host"}, "counts": {"n": 3}}


@pytest.mark.parametrize(
    ("part", "where", "value", "named"),
    [
        ("position", ("batch",), -1, "position['batch']"),
        ("position", ("epoch",), "1", "position['epoch']"),
        ("message_hub", ("scalars", "train/loss", "values"), ["a"], "message_hub['scalars']['train/loss']"),
        ("message_hub", ("scalars", "train/loss", "values"), torch.zeros(2, 2), "message_hub['scalars']['train/loss']"),
        ("message_hub", ("scalars", "train/loss", "fresh"), None, "message_hub['scalars']['train/loss']"),
        ("meta", ("hooks",), 1, "meta['hooks']"),
        ("meta", ("optims",), [], "meta['optims']"),
    ],
)
def test_a_part_with_a_value_of_another_kind_is_refused_by_name(
    tmp_path: Path, part: str, where: tuple[str, ...], value: Any, named: str
) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            inner = checkpoint[part]
            for key in where[:-1]:
                inner = inner[key]
            inner[where[-1]] = value

    toy_runner(work_dir=tmp_path, max_epochs=1, custom_hooks=[Spoils()]).train()
    with pytest.raises(StorageError) as refused:
        toy_runner(work_dir=tmp_path, max_epochs=2, resume=True).train()
    assert str(refused.value) == (f"{tmp_path}/epoch_1.pth cannot be used: {named} is not of the type that a run saves")
