from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from hookline.common import escape
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.utils.base import BaseObject
from hookline.dialects.pointrix.utils.config import (
    ExperimentConfig,
    config_to_primitive,
    dump_config,
    load_config,
    parse_structured,
)
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.errors import ConfigError
from tests.dialects.pointrix.scene import SceneTrainer

BASE = """
name: garden
use_timestamp: false
trainer:
  output_path: {folder}
  max_steps: 100
  val_interval: ${{trainer.max_steps}}
  hooks:
    log: {{name: LogHook}}
"""
MORE = """
trainer:
  hooks:
    save: {name: CheckPointHook, save_step: 50}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    base, more = tmp_path / "base.yaml", tmp_path / "more.yaml"
    base.write_text(BASE.format(folder=tmp_path / "out"))
    more.write_text(MORE)
    return [base, more]


def test_files_are_merged_with_the_command_line_and_keywords_and_references_resolved(files: list[Path]) -> None:
    cfg = load_config(*files, cli_args=["trainer.max_steps=7"], name="house")
    assert cfg.name == "house"
    assert (cfg.trainer.max_steps, cfg.trainer.val_interval) == (7, 7)
    assert list(cfg.trainer.hooks) == ["log", "save"]
    assert cfg.exp_dir == str(files[0].parent / "out" / "house")
    assert Path(cfg.exp_dir).is_dir()


@pytest.mark.parametrize(
    ("given", "hooks"),
    [
        ("trainer.hooks={}", ["LogHook", "CheckPointHook"]),
        ("trainer.hooks=null", []),
        ("trainer.hooks.log=null", ["CheckPointHook"]),
        ("trainer.hooks.save.max_keep=3", ["LogHook", "CheckPointHook"]),
        ("trainer=null", []),
    ],
)
def test_null_on_the_command_line_removes_an_entry_of_a_file(files: list[Path], given: str, hooks: list[str]) -> None:
    cfg = load_config(*files, cli_args=[given, f"exp_dir={files[0].parent / 'out'}"])
    trainer = DefaultTrainer(cfg.trainer, cfg.exp_dir, "cpu")
    assert [type(hook).__name__ for hook in trainer.hooks] == hooks


def test_a_null_section_is_empty_unless_its_field_allows_none(tmp_path: Path) -> None:
    sections = ("model", "renderer", "optimizer", "scheduler", "writer", "hooks", "datapipeline")
    trainer = DefaultTrainer(dict.fromkeys(sections), tmp_path, "cpu")
    assert (trainer.cfg.hooks, trainer.cfg.model, trainer.cfg.scheduler) == ({}, {}, None)
    with pytest.raises(ConfigError, match=r"^BaseTrainer\.Config: max_steps: "):
        DefaultTrainer({"max_steps": None}, tmp_path, "cpu")


def test_the_experiment_folder_has_its_name_and_by_default_a_timestamp(tmp_path: Path) -> None:
    stamped = load_config(f"trainer: {{output_path: {tmp_path}}}", from_string=True)
    assert re.fullmatch(re.escape(f"{tmp_path}/default") + r"@\d{8}-\d{6}", stamped.exp_dir)
    assert stamped.exp_dir.endswith(stamped.timestamp)
    named = load_config(from_string=True, exp_dir=str(tmp_path / "mine"), trainer={})
    assert named.exp_dir == str(tmp_path / "mine")
    assert Path(named.exp_dir).is_dir()


def test_a_trainer_takes_the_result_of_load_config(files: list[Path]) -> None:
    cfg = load_config(*files)
    before = OmegaConf.to_yaml(cfg)
    trainer = DefaultTrainer(cfg.trainer, cfg.exp_dir, "cpu")
    assert [type(hook).__name__ for hook in trainer.hooks] == ["LogHook", "CheckPointHook"]
    assert (trainer.cfg.max_steps, trainer.cfg.save_step, trainer.cfg.bar_upd_interval) == (100, 40000, 10)
    assert OmegaConf.to_yaml(cfg) == before


def test_the_fields_and_defaults_of_a_trainers_config() -> None:
    found = config_to_primitive(DefaultTrainer.Config())
    sections = [name for name, value in found.items() if value == {}]
    assert sections == [
        *("model", "renderer", "optimizer", "scheduler", "writer", "hooks", "exporter", "controller", "gui"),
        "datapipeline",
    ]
    assert {name: value for name, value in found.items() if name not in sections} == {
        "dataset_name": "NeRFDataset",
        "device": "cuda",
        "training": True,
        "test_model_path": "",
        "batch_size": 1,
        "num_workers": 0,
        "max_steps": 30000,
        "val_interval": 2000,
        "spatial_lr_scale": True,
        "bar_upd_interval": 10,
        "output_path": "output",
        "save_step": 40000,
        "enable_gui": True,
        "resume": False,
        "report": True,
        "seed": None,
    }


@dataclass
class Fields:
    steps: int = 3
    scale: float = 1.0
    more: dict[str, Any] = field(default_factory=dict)


def test_parse_structured_takes_mappings_nodes_dataclasses_and_nothing() -> None:
    for given in ({"steps": 5}, OmegaConf.create({"steps": 5}), Fields(steps=5)):
        assert parse_structured(Fields, given) == {"steps": 5, "scale": 1.0, "more": {}}
    assert parse_structured(Fields).steps == parse_structured(Fields, None).steps == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": 5}, "Fields has no key 'step'; did you mean 'steps'?"),
        ({"steps": "many"}, "Fields: steps: Value 'many' of type 'str' could not be converted to Integer"),
    ],
)
def test_an_invalid_config_raises_a_type_error_and_value_error(given: dict[str, Any], message: str) -> None:
    for kind in (ConfigError, TypeError, ValueError):
        with pytest.raises(kind) as caught:
            parse_structured(Fields, given)
        assert str(caught.value) == message


def test_a_missing_file_or_a_dangling_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^config file not found: .*none\.yaml$"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"^the config cannot be read: Interpolation key 'b' not found$"):
        load_config("a: ${b}", from_string=True)
    with pytest.raises(ConfigError, match=r"^ExperimentConfig has no key 'trainr'; did you mean 'trainer'\?$"):
        load_config("trainr: {}", from_string=True)


def test_without_omegaconf_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hookline.dialects.pointrix.utils.config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^these configs need omegaconf, .*: pip install 'hookline\[pointrix\]'$"):
        parse_structured(Fields)


def test_a_config_is_written_as_yaml_and_read_again(tmp_path: Path) -> None:
    dump_config(tmp_path / "a.yaml", {"steps": 5, "more": {"names": ["a", "b"]}})
    assert config_to_primitive(OmegaConf.load(tmp_path / "a.yaml")) == {"steps": 5, "more": {"names": ["a", "b"]}}
    assert config_to_primitive(5) == 5
    assert ExperimentConfig(exp_dir=str(tmp_path)).trainer == {}


def test_an_object_with_a_config_is_set_up_with_the_other_arguments() -> None:
    class Grid(BaseObject):
        Config = Fields  # type: ignore[assignment]  # any dataclass will do

        def setup(self, size: int, device: str = "cuda") -> None:
            self.size = (size * self.cfg.steps, device)

    assert Grid({"steps": 2}, 4, device="cpu").size == (8, "cpu")


def test_a_registry_imports_its_modules_at_the_first_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry("SHAPE", modules=["own_shapes"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tests.dialects.pointrix.test_config.SHAPES", registry, raising=False)
    (tmp_path / "own_shapes.py").write_text(
        "from tests.dialects.pointrix.test_config import SHAPES\n@SHAPES.register()\nclass Cube: ...\n"
    )
    assert registry.get("Cube").__name__ == "Cube"
    with pytest.raises(KeyError, match=r"^unknown shape 'Cubes'; did you mean 'Cube'\?$"):
        registry.get("Cubes")


def test_several_processes_are_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError) as caught:
        DefaultTrainer({"device": "cpu"}, tmp_path)
    assert str(caught.value) == (
        "a trainer of Pointrix trains in one process, but this one is one of 2 (WORLD_SIZE): each would add and remove "
        "points on its own; start one process, or use hookline's own Runner"
    )


def test_a_value_of_the_environment_is_in_no_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escape, "_references", {})
    monkeypatch.setenv("TOKEN", "s3cr3t-Token/1")
    monkeypatch.setenv("WHERE", str(tmp_path / "out"))
    text = """
        name: a
        use_timestamp: false
        trainer:
          output_path: ${oc.env:WHERE}
          max_steps: 2
          exporter: {url: "https://u:${oc.env:TOKEN}@host", copy: "${trainer.exporter.url}", to: "${oc.env:WHERE}"}
    """
    cfg = load_config(text, from_string=True)
    trainer = SceneTrainer(cfg.trainer, cfg.exp_dir)
    assert trainer.cfg.exporter["copy"] == "https://u:s3cr3t-Token/1@host"
    trainer.train_loop()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {"config.yaml", "report.html", "run.log"} <= {path.name for path in files}
    assert [path for path in files if b"s3cr3t" in path.read_bytes()] == []
    written: Any = OmegaConf.to_container(OmegaConf.load(tmp_path / "out/a/config.yaml"))
    assert written["exporter"] == {
        "url": "https://u:${oc.env:TOKEN}@host",
        "copy": "https://u:${oc.env:TOKEN}@host",
        "to": str(tmp_path / "out"),
    }
