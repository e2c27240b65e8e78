"""Stateful parts: a snapshot is the state of each, and a new one is one entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.engine import snapshot
from hookline.engine.host import Host, Part
from hookline.errors import ConfigError, StorageError
from hookline.hooks import EarlyStoppingHook, EMAHook
from hookline.testing import toy_model, toy_runner


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
        ("meta", ("threads",), torch.zeros(2), "meta['threads']"),
        ("param_schedulers", (0, "base_lrs"), ["0.1"], "param_schedulers[0]['base_lrs'][0]"),
        ("param_schedulers", (0, "last_epoch"), None, "param_schedulers[0]['last_epoch']"),
        ("hooks", ("EMAHook",), 5, "hooks['EMAHook']"),
    ],
)
def test_a_part_with_a_value_of_another_kind_is_refused_by_name(
    tmp_path: Path, part: str, where: tuple[Any, ...], value: Any, named: str
) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            inner = checkpoint[part]
            for key in where[:-1]:
                inner = inner[key]
            inner[where[-1]] = value

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True).train()
    path = tmp_path / "best_accuracy_epoch_1.pth"
    assert str(refused.value) == f"{path} cannot be used: {named} is not of the type that a run saves"


def scheduled(folder: Path, epochs: int, *hooks: Hook, **more: Any) -> Runner:
    """Return a runner with a scheduler and hooks that have states."""
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return toy_runner(
        model=model,
        work_dir=folder,
        max_epochs=epochs,
        optim=Optim(optimizer, schedulers=[torch.optim.lr_scheduler.StepLR(optimizer, 1)]),
        custom_hooks=[*hooks, EMAHook(), EarlyStoppingHook("accuracy")],
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        **more,
    )


@pytest.mark.parametrize(
    ("hook", "entry", "value", "found"),
    [
        ("CheckpointHook", "accuracy", {"values": ["0.5"], "names": ["a.pth"]}, "the best value of accuracy['values']"),
        ("EarlyStoppingHook", "best", "0.5", "the best value of accuracy['best']"),
        ("EarlyStoppingHook", "waited", [], "the state of EarlyStoppingHook['waited']"),
        ("LoggerHook", "logged_at", "1", "the state of LoggerHook['logged_at']"),
    ],
)
def test_the_state_of_a_hook_with_a_value_of_another_kind_is_refused_by_name(
    tmp_path: Path, hook: str, entry: str, value: Any, found: str
) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            checkpoint["hooks"].setdefault(hook, {})[entry] = value

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True).train()
    found += "[0]" * (entry == "accuracy")
    assert str(refused.value) == f"{found} in the checkpoint is not of the type that a run saves"
    assert refused.value.__notes__[0] == f"in hook {hook}, while restoring its state from a checkpoint"


def test_a_state_that_a_builtin_hook_cannot_use_names_the_hook_and_the_reason(tmp_path: Path) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            del checkpoint["hooks"]["LoggerHook"]["logged_at"]

    scheduled(tmp_path, 1, Spoils()).train()
    with pytest.raises(StorageError) as refused:
        scheduled(tmp_path, 2, resume=True).train()
    assert str(refused.value) == ("the state of LoggerHook in the checkpoint cannot be restored: KeyError: 'logged_at'")
