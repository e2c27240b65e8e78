"""A small project in the shape of those of OpenMMLab. The real ones: `make test-openmmlab`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.registry import MODELS, DefaultScope
from hookline.dialects.mmengine.runner import Runner
from hookline.errors import ConfigError

PROJECT = Path(__file__).parent / "toy_project"


@pytest.fixture(autouse=True)
def _project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the project on the path, and forget it afterwards."""
    monkeypatch.syspath_prepend(PROJECT)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "toyseg"]:
        del sys.modules[name]
    for registry in _registries():
        registry.children.pop("toyseg", None)
    DefaultScope._current = None


def _registries() -> list[Any]:
    from hookline.dialects.mmengine import registry

    return [each for each in vars(registry).values() if isinstance(each, registry.Registry)]


class Stop(Exception):  # noqa: N818  # it stands for a kill
    pass


class StopAt(Hook):
    """Ends the run in the middle of an epoch, as a kill would."""

    priority = "LOWEST"

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter + 1 == self.at:
            raise Stop


def runner_of(name: str, work_dir: Path, **changes: Any) -> Any:
    config = Config.fromfile(PROJECT / "configs" / name, allow_python_config=True)
    config.work_dir = str(work_dir)
    for key, value in changes.items():
        config[key] = value
    return Runner.from_cfg(config)


def test_the_scope_of_a_config_imports_the_registries_of_its_project(tmp_path: Path) -> None:
    assert "toyseg" not in sys.modules
    runner = runner_of("old.py", tmp_path / "run")
    assert type(runner.model).__name__ == "Segmentor"
    assert type(runner.model.backbone).__module__ == "toyseg.models"
    built = MODELS.build({"type": "Backbone", "_scope_": "toyseg", "channels": 2})
    assert type(built) is type(runner.model.backbone) is MODELS.get("toyseg.models.Backbone")


def test_both_kinds_of_configs_train_the_same(tmp_path: Path) -> None:
    old, new = (runner_of(name, tmp_path / name) for name in ("old.py", "new.py"))
    for runner in (old, new):
        runner.train()
        assert runner.train_loop.samples == 3 * 11
        assert (runner.epoch, runner.iter) == (3, 3 * 6)
    for mine, theirs in zip(old.model.state_dict().values(), new.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_batch_has_images_of_one_shape_and_every_image_comes_once_per_epoch(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Look(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            assert len({image.shape for image in data_batch["inputs"]}) == 1
            seen.append([sample.number for sample in data_batch["data_samples"]])

    runner_of("old.py", tmp_path / "run", custom_hooks=[Look()]).train()
    epochs = [seen[first : first + 6] for first in (0, 6, 12)]
    assert [sorted(number for batch in epoch for number in batch) for epoch in epochs] == [list(range(11))] * 3
    assert epochs[0] != epochs[1]


def test_a_run_that_was_cut_off_resumes_to_the_same_bits(tmp_path: Path) -> None:
    saves = {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 4}}
    whole = runner_of("old.py", tmp_path / "whole", default_hooks=saves)
    whole.train()
    with pytest.raises(Stop):
        runner_of("old.py", tmp_path / "cut", default_hooks=saves, custom_hooks=[StopAt(11)]).train()
    resumed = runner_of("old.py", tmp_path / "cut", default_hooks=saves, resume=True)
    resumed.train()
    assert resumed.resumed_at == 8  # in the middle of the second epoch
    ends = [torch.load(tmp_path / name / "iter_18.pth", weights_only=True) for name in ("whole", "cut")]
    for part in ("state_dict", "optimizer", "rng"):
        assert str(ends[0][part]) == str(ends[1][part])
    for mine, theirs in zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_checkpoint_is_tested(tmp_path: Path) -> None:
    trained = runner_of("old.py", tmp_path / "run")
    trained.train()
    tested = runner_of("new.py", tmp_path / "test", load_from=str(tmp_path / "run" / "epoch_3.pth"))
    assert tested.test() == trained.val()


def test_the_modes_of_a_norm_that_is_not_trained_match_mmengine(tmp_path: Path) -> None:
    seen: list[tuple[str, bool, bool]] = []

    class Look(Hook):
        pass

    for stage in ("before_train_epoch", "after_train_iter", "before_val", "after_val_iter", "after_val", "after_train"):

        def record(self: Any, runner: Any, *args: Any, _stage: str = stage, **kwargs: Any) -> None:
            seen.append((_stage, runner.model.training, runner.model.backbone.norm.training))

        setattr(Look, stage, record)
    runner_of("old.py", tmp_path / "run", custom_hooks=[Look()]).train()
    shown = list(dict.fromkeys(seen))
    assert shown == [
        ("before_train_epoch", True, True),  # as it was built
        ("after_train_iter", True, False),
        ("before_val", True, False),
        ("after_val_iter", False, False),
        ("after_val", False, False),
        ("before_train_epoch", False, False),  # the model stays in evaluation mode until the epoch begins
        ("after_train", False, False),
    ]


def test_a_name_that_cannot_be_imported_fails_where_it_is_used(tmp_path: Path) -> None:
    config = Config.fromfile(PROJECT / "configs" / "new.py", allow_python_config=True)
    name = "toyseg.nowhere.NotInstalled"
    assert config.to_dict()["not_used"] == {"type": name}
    with pytest.raises(ConfigError, match=rf"uses '{name}', which cannot be imported: No module named 'toyseg"):
        MODELS.build(config.not_used)


def test_near_misses_and_configs_without_permission_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is Python code, so reading it would run it"):
        Config.fromfile(PROJECT / "configs" / "old.py")
    with pytest.raises(ConfigError, match=r"unknown model 'Segmentr'; did you mean 'Segmentor'\?"):
        runner_of("old.py", tmp_path / "run", model={"type": "Segmentr"})
    with pytest.raises(ConfigError, match=r"'custom_hoks'.*did you mean 'custom_hooks'"):
        runner_of("old.py", tmp_path / "run", custom_hoks=[])
