"""Bad input is refused in every dialect, with one message and the exit code of its kind, and runs no code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from hookline.dialects.imix.utils.config import Config
from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig
from hookline.errors import ConfigError, StorageError, exit_code_of
from tests.dialects.imix.engines import engine_in
from tests.dialects.pointrix.scene import SceneTrainer, config
from tests.dialects.robo_orchard_lab import parts

BAD_CONFIG, BAD_STORAGE = 2, 5


class Runs:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def hostile_file(folder: Path, how: str) -> Path:
    """Write a checkpoint that runs code when it is unpickled: as torch does, or as a bare pickle."""
    path, content = folder / "hostile.pth", {"model": Runs(folder / "ran"), "global_step": 3}
    if how == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    return path


def load_in_pointrix(path: Path, folder: Path) -> None:
    SceneTrainer(config(), folder).load_model(path)


def resume_in_pointrix(path: Path, folder: Path) -> None:
    SceneTrainer(config(resume=str(path)), folder).train_loop()


def load_in_imix(path: Path, folder: Path) -> None:
    engine_in(folder, load_from=str(path)).train()


def resume_in_imix(path: Path, folder: Path) -> None:
    engine_in(folder, resume_from=str(path)).train()


def resume_in_robo_orchard(path: Path, folder: Path) -> None:
    parts.trainer(folder, hooks=SaveCheckpointConfig(), max_epoch=1)()
    checkpoint = folder / "checkpoints" / "checkpoint_0"
    path.rename(checkpoint / "trainer_state.pth")
    parts.trainer(resume_from=ResumeCheckpointConfig(resume_from=str(checkpoint)))


LOADS: list[Callable[[Path, Path], None]] = [
    *(load_in_pointrix, resume_in_pointrix, load_in_imix, resume_in_imix, resume_in_robo_orchard)
]


@pytest.mark.parametrize("how", ["torch", "pickle"])
@pytest.mark.parametrize("load", LOADS)
def test_a_pickle_that_runs_code_is_refused(load: Callable[[Path, Path], None], how: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        load(hostile_file(tmp_path, how), tmp_path / "run")
    assert exit_code_of(refused.value) == BAD_STORAGE
    assert not (tmp_path / "ran").exists()


def test_a_file_that_pointrix_wrote_is_loaded(tmp_path: Path) -> None:
    trainer = SceneTrainer(config(), tmp_path)
    weights = {name: torch.full_like(value, 0.5) for name, value in trainer.model.state_dict().items()}
    optimizer = trainer.optimizer.state_dict()
    for name, key in (("chkpnt40000.pth", "model"), ("chkpnt30001.pth", "point_cloud")):
        kept = weights if key == "model" else {n.removeprefix("point_cloud."): each for n, each in weights.items()}
        torch.save({"global_step": 3, "optimizer": optimizer, key: kept}, tmp_path / name)
        trainer.model.point_cloud.position.data.zero_()
        trainer.load_model(tmp_path / name)
        assert all(each.eq(0.5).all() for each in trainer.model.state_dict().values())


def test_a_config_in_python_does_not_run_without_permission(tmp_path: Path) -> None:
    (tmp_path / "cfg.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    with pytest.raises(ConfigError) as refused:
        Config.fromfile(str(tmp_path / "cfg.py"))
    assert str(refused.value) == (
        f"{tmp_path / 'cfg.py'} is Python code, which would be executed. If you trust it, say so: "
        "Config.fromfile(path, allow_python_config=True)"
    )
    assert exit_code_of(refused.value) == BAD_CONFIG
    assert not (tmp_path / "ran").exists()


def test_a_near_miss_of_a_key_is_refused_with_the_right_one(tmp_path: Path) -> None:
    for build, message in (
        (lambda: SceneTrainer(config(max_step=5), tmp_path), "has no key 'max_step'; did you mean 'max_steps'?"),
        (lambda: engine_in(tmp_path, optimizer_confg={}), "which nothing reads; did you mean 'optimizer_config'?"),
    ):
        with pytest.raises(ConfigError) as refused:
            build()
        assert message in str(refused.value)
        assert exit_code_of(refused.value) == BAD_CONFIG
    with pytest.raises(ValidationError, match="did you mean 'save_step_freq'?"):
        SaveCheckpointConfig(save_stepfreq=3)  # type: ignore[call-arg]
