from __future__ import annotations

from pathlib import Path

import pytest

from hookline.dialects.imix.utils import Config
from hookline.dialects.plain import plain_data
from hookline.errors import ConfigError


def test_keys_are_attributes_all_the_way_down_and_what_it_is_made_of_stays() -> None:
    given = {"a": {"b": [{"c": 1}]}}
    cfg = Config(given, d=2)
    cfg.a.b[0].c = 5
    cfg.e = 3
    assert (cfg.a.b[0].c, cfg.d, cfg["e"]) == (5, 2, 3)
    assert given == {"a": {"b": [{"c": 1}]}}
    assert not hasattr(cfg, "f")
    with pytest.raises(AttributeError) as caught:
        _ = Config(work_dir="x").workdir
    assert str(caught.value) == "the config has no 'workdir'; did you mean 'work_dir'?"


def test_a_yaml_file_with_its_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("total_epochs: 2\nlog_config: {period: 5}\n")
    (tmp_path / "run.yaml").write_text("_base_: base.yaml\nlog_config: {period: 1}\n")
    cfg = Config.fromfile(tmp_path / "run.yaml")
    assert cfg == {"total_epochs": 2, "log_config": {"period": 1}}
    assert cfg.log_config.period == 1


def test_a_python_file_is_run_only_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("lr_config = dict(policy='StepLR', step_size=3)\nseed = 13\nfp16 = dict(a=1)\n")
    (tmp_path / "other.py").write_text("max_iter = 14\nlr_config = dict(policy='StepLR', step_size=3)\n")
    (tmp_path / "run.py").write_text(
        "import math\n_base_ = ['base.py', 'other.py']\nlr_config = dict(step_size=math.floor(5.5))\n"
        "fp16 = dict(_delete_=True, b=2)\n"
    )
    path = tmp_path / "run.py"
    with pytest.raises(
        ConfigError,
        match=r"run\.py is Python code, which would be executed\. If you trust it, say so: Config\.fromfile\(",
    ):
        Config.fromfile(path)
    assert Config.fromfile(path, allow_python_config=True) == {
        "lr_config": {"policy": "StepLR", "step_size": 5},
        "seed": 13,
        "max_iter": 14,
        "fp16": {"b": 2},
    }


def test_the_first_of_two_python_bases_counts_and_two_yaml_bases_must_agree(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    helper = "import numpy\ndef helper(): ...\n_own, sizes = object(), numpy.ones(3)\n"
    (tmp_path / "one.py").write_text(f"{helper}seed = 13\nfp16 = dict(a=1, x=1)\nlog_config = dict(period=5)\n")
    (tmp_path / "two.py").write_text(f"{helper}seed = 14\nfp16 = dict(b=2, x=2)\nlog_config = dict(period=5)\n")
    run = tmp_path / "run.py"
    bases = "_base_ = ['one.py', 'two.py']\n"
    warned = (
        f"{run}: its base files one.py and two.py have different values for '%s'; the first one counts, as in iMIX. To "
        "choose another one, set '%s' in run.py"
    )
    first = {"a": 1, "x": 1}
    for own, seed, fp16, keys in (
        ("", 13, first, ["seed", "fp16"]),
        ("seed = 1\n", 1, first, ["fp16"]),
        ("seed = 1\nfp16 = dict(c=3)\n", 1, {**first, "c": 3}, ["fp16"]),
        ("seed = 1\nfp16 = dict(_delete_=True, c=3)\n", 1, {"c": 3}, []),
        ("seed, fp16 = 1, None\n", 1, None, []),
    ):
        run.write_text(bases + own)
        caplog.clear()
        found = Config.fromfile(run, allow_python_config=True)
        assert (found.seed, found.fp16, found.log_config) == (seed, fp16, {"period": 5})
        assert [record.getMessage() for record in caplog.records] == [warned % (key, key) for key in keys]
    for name, seed in ("one", 13), ("two", 14):
        (tmp_path / f"{name}.yaml").write_text(f"seed: {seed}\n")
    yaml = tmp_path / "run.yaml"
    yaml.write_text("_base_: [one.yaml, two.yaml]\n")
    with pytest.raises(
        ConfigError, match=r"run\.yaml: its base files disagree: .*two\.yaml:1:1 seed: 14 replaces 13 from "
    ):
        Config.fromfile(yaml)


def test_files_that_cannot_be_configs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("_base_ = 'b.py'\n")
    (tmp_path / "b.py").write_text("_base_ = 'a.py'\n")
    with pytest.raises(ConfigError, match=r"a\.py: its _base_ files form a cycle$"):
        Config.fromfile(tmp_path / "a.py", allow_python_config=True)
    with pytest.raises(ConfigError, match=r"gone\.py: cannot read the file: No such file or directory$"):
        Config.fromfile(tmp_path / "gone.py", allow_python_config=True)
    with pytest.raises(ConfigError, match=r"a\.json: a config must be a \.yaml, \.yml or \.py file$"):
        Config.fromfile(tmp_path / "a.json")


def test_the_recorded_config_is_plain_data() -> None:
    cfg = Config(a=(1, None), f=plain_data, p=Path("x"), o=Config.fromfile)
    assert plain_data(cfg) == {
        "a": [1, None],
        "f": "hookline.dialects.plain:plain_data",
        "p": "x",
        "o": "hookline.dialects.imix.utils.config:Config.fromfile",
    }
