"""Pointrix's launch scripts and examples: the third argument, the list of hooks, logproject, old files."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects import alias
from hookline.dialects.pointrix.dataset import DATA_SET_REGISTRY
from hookline.dialects.pointrix.engine.base_trainer import looks_like_device
from hookline.dialects.pointrix.hook import CheckPointHook, Hook, LogHook
from hookline.dialects.pointrix.logger.writer import logproject
from hookline.dialects.pointrix.model import MODEL_REGISTRY
from hookline.dialects.pointrix.renderer import RENDERER_REGISTRY
from hookline.dialects.pointrix.utils.visualize import visualize_depth
from hookline.errors import ConfigError, HookError, StorageError
from tests.dialects.pointrix.scene import Scene, SceneTrainer, config

LAUNCH = """
import os
import sys

from pointrix.engine.default_trainer import DefaultTrainer
from pointrix.logger.writer import Logger, logproject
from pointrix.model import MODEL_REGISTRY
from pointrix.utils.config import load_config
from tests.dialects.pointrix import test_launch, test_parts

cfg = load_config(sys.argv[1], cli_args=sys.argv[2:])
logproject(os.path.dirname(os.path.abspath(__file__)), os.path.join(cfg.exp_dir, "project_file"), ["py", "yaml"])
trainer = DefaultTrainer(cfg.trainer, cfg.exp_dir, cfg.name)
trainer.hooks.append(test_launch.Counts())
trainer.train_loop()
path = os.path.join(cfg.exp_dir, "chkpnt" + str(trainer.global_step) + ".pth")
trainer.save_model(path=path)
trainer.test()
Logger.print("\\nTraining complete.")
for hook in trainer.hooks:
    hook.exception()
"""


class Counts(Hook):
    steps = 0

    def after_train_iter(self, trainner: Any) -> None:
        self.steps += 1


def test_a_launch_script_of_pointrix_runs_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf

    from tests.dialects.pointrix import test_parts

    for registry, made in (
        (DATA_SET_REGISTRY, test_parts.Pictures),
        (MODEL_REGISTRY, test_parts.PictureScene),
        (RENDERER_REGISTRY, test_parts.PlainBlur),
    ):
        if made.__name__ not in registry:
            registry.register()(made)
    project = tmp_path / "project"
    (project / "more").mkdir(parents=True)
    (project / "launch.py").write_text(LAUNCH)
    (project / "more/launch.py").write_text("# another file of the same name")
    (project / "notes.txt").write_text("not code")
    sections = {
        **test_parts.SECTIONS,
        "max_steps": 3,
        "val_interval": 2,
        "device": "cpu",
        "hooks": {"l": {"name": "LogHook"}},
    }
    experiment = {"name": "garden", "exp_dir": str(tmp_path / "run"), "trainer": sections}
    (project / "scene.yaml").write_text(OmegaConf.to_yaml(experiment))
    monkeypatch.setattr(sys, "argv", ["launch.py", str(project / "scene.yaml"), "trainer.max_steps=4"])
    alias("pointrix")
    ran = runpy.run_path(str(project / "launch.py"))
    trainer = ran["trainer"]
    assert (trainer.name, trainer.device, trainer.global_step) == ("garden", "cpu", 5)
    assert [type(hook).__name__ for hook in trainer.hooks] == ["LogHook", "Counts"]
    assert trainer.hooks[1].steps == 4
    saved = tmp_path / "run/project_file"
    assert sorted(str(path.relative_to(saved)) for path in saved.rglob("*.*")) == [
        "launch.py",
        "more/launch.py",
        "scene.yaml",
    ]
    assert (tmp_path / "run/chkpnt5.pth").is_file()


def test_the_third_argument_is_a_name_unless_it_looks_like_a_device(tmp_path: Path) -> None:
    trainer = SceneTrainer(config(), tmp_path, "garden-1")
    assert (trainer.name, trainer.device) == ("garden-1", "cpu")
    assert SceneTrainer(config(), tmp_path, "cpu").name == tmp_path.name
    for near_miss in ("gpu", "cuda99", "CUDA:0", ""):
        assert looks_like_device(near_miss)
        with pytest.raises(ConfigError, match="device"):
            SceneTrainer(config(), tmp_path, near_miss)


def test_the_hooks_are_a_list_that_may_be_changed(tmp_path: Path) -> None:
    trainer = SceneTrainer(config(hooks={"log": {"name": "LogHook"}}), tmp_path)
    one, two, three = Counts(), Counts(), Counts()
    trainer.hooks.append(three)
    trainer.hooks.insert(1, two)
    trainer.hooks.insert(0, one)
    log = trainer.hooks[1]
    assert isinstance(log, LogHook)
    assert trainer.hooks == [one, log, two, three]
    trainer.hooks.remove(log)
    trainer.hooks.extend([save := CheckPointHook()])
    assert (trainer.hooks[-1], len(trainer.hooks), two in trainer.hooks) == (save, 4, True)
    del trainer.hooks[2:]
    assert repr(trainer.hooks) == repr([one, two])
    trainer.train_loop()
    assert (one.steps, two.steps, three.steps) == (5, 5, 0)

    class Misspelled(Hook):
        def after_trian_iter(self, trainner: Any) -> None: ...

    with pytest.raises(HookError, match="after_train_iter"):
        trainer.hooks.insert(0, Misspelled())
    assert trainer.hooks == [one, two]


def test_a_hook_that_is_appended_during_training_runs_from_the_next_point_on(tmp_path: Path) -> None:
    late = Counts()

    class Appends(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 2:
                trainner.hooks.append(late)

    trainer = SceneTrainer(config(val_interval=0), tmp_path)
    trainer.hooks = [Appends()]
    trainer.train_loop()
    assert late.steps == 3


def test_weights_that_pointrix_wrote_are_loaded(tmp_path: Path) -> None:
    theirs = Scene(9)
    whole = {"global_step": 7, "optimizer": {}, "model": {**theirs.state_dict(), "num_pts": 9, "sh_degree": 0}}
    torch.save(whole, tmp_path / "chkpnt7.pth")
    torch.save({"global_step": 7, "point_cloud": theirs.point_cloud.state_dict()}, tmp_path / "chkpnt00007.pth")
    for name in ("chkpnt7.pth", "chkpnt00007.pth"):
        trainer = SceneTrainer(config(), tmp_path / "run")
        trainer.load_model(tmp_path / name)
        assert len(trainer.model.point_cloud) == 9
        for key, value in theirs.state_dict().items():
            assert torch.equal(trainer.model.state_dict()[key], value)
    torch.save({"global_step": 7}, tmp_path / "empty.pth")
    with pytest.raises(
        StorageError, match="has no weights: it has no state_dict, model or point_cloud, only global_step"
    ):
        trainer.load_model(tmp_path / "empty.pth")
    torch.save({"model": {"another": torch.zeros(1)}}, tmp_path / "other.pth")
    with pytest.raises(StorageError, match="does not fit the model; nothing was loaded"):
        trainer.load_model(tmp_path / "other.pth")


class Runs:
    def __reduce__(self) -> Any:
        return (print, ("this must never be printed",))


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": {"point_cloud.position": Runs()}}, tmp_path / "evil.pth")
    with pytest.raises(StorageError):
        SceneTrainer(config(), tmp_path / "run").load_model(tmp_path / "evil.pth")
    assert "never" not in capsys.readouterr().out


def test_newer_models_get_the_step_and_the_mode(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Newer(Scene):
        def forward(self, batch: Any, training: bool = True, render: bool = True, iteration: Any = None) -> Any:
            seen.append((training, iteration))
            return super().forward(batch)

        def get_loss_dict(self, results: Any, batch: Any, step: int) -> Any:  # type: ignore[override]
            seen.append(step)
            return super().get_loss_dict(results, batch)

    trainer = SceneTrainer(config(max_steps=1), tmp_path)
    trainer.model = Newer()
    trainer.optimizer.optimizer = torch.optim.Adam(trainer.model.parameters())
    trainer.train_loop()
    assert seen == [(True, 1), 1, (False, None), (False, None)]


def test_pictures_of_depths() -> None:
    shown = visualize_depth(torch.tensor([[1.0, 2.0, 3.0]]))
    assert shown.tolist() == [[[127, 0, 0], [127, 255, 127], [0, 0, 127]]]
    assert visualize_depth(torch.zeros(2, 2), tensorboard=True).shape == (3, 2, 2)


def test_logproject_leaves_out_links_hidden_folders_and_its_own_folder(tmp_path: Path) -> None:
    for name in ("a.py", ".git/b.py", "sub/c.yaml", "sub/d.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    for _ in range(2):
        logproject(tmp_path, tmp_path / "out/project_file", ["py", "yaml"])
    target = tmp_path / "out/project_file"
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.*")) == ["a.py", "sub/c.yaml"]
