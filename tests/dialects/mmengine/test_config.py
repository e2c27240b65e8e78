"""Configs: YAML, JSON and, if the caller allows it, Python."""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine.config import Config, ConfigDict, DictAction, read_base
from hookline.errors import ConfigError
from tests.dialects.mmengine.parts import runner_of

BASE_YAML = "model: {type: Net, depth: 10, norm: {type: BN, eps: 1.0e-5}}\nlr: 0.1\n"
BASE_PY = "model = dict(type='Net', depth=10, norm=dict(type='BN', eps=1e-5))\nlr = 0.1\nstages = [1, 2]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE_YAML)
    (tmp_path / "base.py").write_text(BASE_PY)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def python(path: Path) -> Config:
    return Config.fromfile(path, allow_python_config=True)


# -- reading


def test_yaml_is_merged_into_its_base(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "me")
    path = write(
        folder,
        "sub/child.yaml",
        "_base_: ../base.yaml\n"
        "model: {depth: 20, norm: {_delete_: true, type: GN}}\n"
        "same: {{ _base_.lr }}\n"
        "name: 'a {{_base_.model.type}}'\n"
        "here: '{{ fileDirname }}/{{fileBasenameNoExtension}}{{ fileExtname }}'\n"
        "user: '{{ $WHO:you }}'\n"
        "other: '{{ $NOBODY_HAS_THIS:you }}'\n",
    )
    config = Config.fromfile(path)
    assert config.to_dict() == {
        "model": {"type": "Net", "depth": 20, "norm": {"type": "GN"}},
        "lr": 0.1,
        "same": 0.1,
        "name": "a Net",
        "here": str(path),
        "user": "me",
        "other": "you",
    }
    assert config.filename == str(path)
    assert config.env_variables == {"WHO": "me", "NOBODY_HAS_THIS": "you"}
    assert "depth: 20" in config.text


def test_json_is_merged_into_several_bases(folder: Path) -> None:
    write(folder, "other.json", '{"data": {"size": 3}}')
    path = write(
        folder, "child.json", '{"_base_": ["base.yaml", "other.json"], "lr": {{_base_.data.size}}, "data": {"n": 1}}'
    )
    config = Config.fromfile(path)
    assert (config.lr, config.data, config.model.depth) == (3, {"size": 3, "n": 1}, 10)


def test_python_is_merged_into_its_base(folder: Path) -> None:
    path = write(
        folder,
        "sub/child.py",
        "_base_ = ['../base.py']\n"
        "import os.path as osp\n"
        "def twice(x):\n    return 2 * x\n"
        "lr2 = twice(_base_.lr)\n"
        "lr3 = {{_base_.lr}}\n"
        "here = '{{ fileDirname }}'\n"
        "model = dict(depth=20, norm=dict(_delete_=True, type='GN'))\n"
        "optimizer = dict(type='SGD', lr=_base_.lr, nested=[dict(a=1), (2, 3)])\n"
        "stages = []\n"
        "stages.append(7)\n",
    )
    config = python(path)
    assert config.to_dict() == {
        "model": {"type": "Net", "depth": 20, "norm": {"type": "GN"}},
        "lr": 0.1,
        "stages": [7],
        "lr2": 0.2,
        "lr3": 0.1,
        "here": str(folder / "sub"),
        "optimizer": {"type": "SGD", "lr": 0.1, "nested": [{"a": 1}, (2, 3)]},
    }
    assert config.optimizer.nested[0].a == 1


def test_changes_of_the_base_take_effect(folder: Path) -> None:
    # base_changes.py has many more, which are compared with the mmengine package
    path = write(
        folder,
        "child.py",
        "_base_ = 'base.py'\n"
        "_base_.model.depth = 20\n"
        "del _base_.model.norm.eps\n"
        "_base_.stages.append(3)\n"
        "del _base_.lr\n"
        "model = dict(norm=dict(groups=4))\n",
    )
    config = python(path)
    assert config.to_dict() == {
        "model": {"type": "Net", "depth": 20, "norm": {"type": "BN", "groups": 4}},
        "stages": [1, 2, 3],
    }
    again = python(write(folder, "grandchild.py", "_base_ = 'child.py'\n_base_.stages.append(dict(n=4))\n"))
    assert (again.stages[3].n, again.model) == (4, config.model)
    assert python(folder / "base.py").stages == [1, 2]


REASSIGNED = (
    "_base_ must be set once, to a literal path or a list of literal paths, with `_base_ = ...` and nothing around it. "
    "To change the bases' values, set entries: _base_.lr = 0.1"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("_base_ = 'other.py'", f"3: {REASSIGNED}"),
        ("_base_: list = ['other.py']", f"3: {REASSIGNED}"),
        ("x = _base_ = 'other.py'", f"3: {REASSIGNED}"),
        ("if True:\n    _base_ = 'other.py'", f"3: {REASSIGNED}"),
        ("import os as _base_", f"3: {REASSIGNED}"),
        ("def change():\n    global _base_\n    _base_ = {}\nchange()", f"6: {REASSIGNED}"),
        (
            "x = [{{_base_.lr}}]\ny = 1\n_base_.lr = 5",
            "5: _base_.lr is changed here, but {{_base_.lr}} on line 3 has already read it; "
            "move the change above line 3",
        ),
        (
            "x = {{_base_.model.norm}}\ndel _base_.model.norm",
            "4: _base_.model.norm is changed here, but {{_base_.model.norm}} on line 3 has already read it; "
            "move the change above line 3",
        ),
    ],
)
def test_a_change_of_the_base_that_would_be_lost_is_refused(folder: Path, change: str, message: str) -> None:
    path = write(folder, "child.py", f"_base_ = 'base.py'\n\n{change}\n")
    with pytest.raises(ConfigError) as failure:
        python(path)
    assert str(failure.value) == f"{path}:{message}"


def test_a_change_of_the_base_that_fails_names_its_line(folder: Path) -> None:
    for change, error, message in (
        ("del _base_.modle", AttributeError, "'ConfigDict' object has no attribute 'modle'; did you mean 'model'?"),
        ("_base_.modle.x = 1", AttributeError, "'ConfigDict' object has no attribute 'modle'; did you mean 'model'?"),
        (
            "_base_.model.items = 1",
            AttributeError,
            "'items' is a method of 'ConfigDict', so it cannot be set as an attribute; set the entry as ['items']",
        ),
        ("del _base_['modle']", KeyError, "'modle'"),
    ):
        path = write(folder, "child.py", f"_base_ = 'base.py'\n{change}\n")
        with pytest.raises(error) as failure:
            python(path)
        assert (str(failure.value), failure.value.__notes__) == (message, [f"in the config {path}:2"])
    path = write(folder, "child.py", "_base_ = 'base.py'\n_base_.text = 1\n")
    with pytest.raises(
        ConfigError, match=r"child.py: 'text' cannot be a key of a config: it names an attribute of Conf"
    ):
        python(path)


def test_imported_bases_have_no_base_variable(folder: Path) -> None:
    path = write(folder, "child.py", "with read_base():\n    from .base import *\n_base_.lr = 5\n")
    with pytest.raises(NameError, match=r"^name '_base_' is not defined") as failure:
        python(path)
    assert failure.value.__notes__ == [f"in the config {path}:3"]


def test_python_runs_only_if_the_caller_allows_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = write(folder, "bad.py", "open('ran', 'w').close()\n")
    monkeypatch.chdir(folder)
    with pytest.raises(
        ConfigError, match=r"bad.py is Python code, so reading it would run it. If you trust it, say so: Config.fromf"
    ):
        Config.fromfile(bad)
    with pytest.raises(
        ConfigError, match=r"bad.py, a base of .*child.yaml, is Python code, so reading it would run it"
    ):
        Config.fromfile(write(folder, "child.yaml", "_base_: bad.py\n"))
    with pytest.raises(ConfigError, match=r"config.py is Python code"):
        Config.fromstring("open('ran', 'w').close()", ".py")
    assert not (folder / "ran").exists()
    monkeypatch.setattr(Config, "allow_python_config", True)
    Config.fromfile(bad)
    assert (folder / "ran").exists()


def test_custom_imports_are_code_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "brings_a_mark.py", "import torch\ntorch.brought = True\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(torch, "brought", False, raising=False)
    path = write(folder, "config.yaml", "custom_imports: {imports: [brings_a_mark]}\n")
    with pytest.raises(
        ConfigError, match=r"config.yaml: custom_imports names modules, and importing them runs their code."
    ):
        Config.fromfile(path)
    assert Config.fromfile(path, import_custom_modules=False).custom_imports.imports == ["brings_a_mark"]
    assert "brings_a_mark" not in sys.modules
    python(path)
    assert torch.brought  # type: ignore[attr-defined]
    missing = write(folder, "missing.yaml", "custom_imports: {imports: [no_such_module]}\n")
    with pytest.raises(ImportError, match=r"^the module 'no_such_module' cannot be imported: No module named"):
        python(missing)


def test_bases_can_be_imported(folder: Path) -> None:
    path = write(
        folder,
        "lazy.py",
        "from torch.optim import SGD\n"
        "from mmengine.config import read_base\n"
        "with read_base():\n"
        "    from .base import *\n"
        "    from .base import lr as rate\n"
        "model.update(depth=5)\n"
        "model.norm.eps = 0.5\n"
        "optimizer = dict(type=SGD, lr=rate)\n",
    )
    config = python(path)
    assert config.to_dict() == {
        "model": {"type": "Net", "depth": 5, "norm": {"type": "BN", "eps": 0.5}},
        "lr": 0.1,
        "stages": [1, 2],
        "rate": 0.1,
        "optimizer": {"type": "torch.optim.sgd.SGD", "lr": 0.1},
    }
    assert config.optimizer.type is torch.optim.SGD
    config.dump(folder / "dumped.json")
    assert json.loads((folder / "dumped.json").read_text()) == config.to_dict()
    assert "mmengine" not in sys.modules
    assert "type='torch.optim.sgd.SGD'" in config.pretty_text
    with read_base():
        pass
    with pytest.raises(
        ConfigError, match=r"bad_lazy.py:2: only imports from files are allowed under read_base\(\): from .base import"
    ):
        python(write(folder, "bad_lazy.py", "with read_base():\n    x = 1\n"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "x: [1\n", r"a.yaml:2:1: invalid YAML: "),
        ("a.yaml", "x: 1\nx: 2\n", r"a.yaml:2:1 x: duplicate key, already given at .*a.yaml:1:1"),
        ("a.yaml", "- 1\n", r"a.yaml: a config must be a mapping of names to values, not a list$"),
        ("a.json", '{"x": 1,\n}', r"a.json:2:1: this is not JSON: "),
        ("a.py", "x = 1\ny = (\n", r"a.py:2: this is not Python: "),
        (
            "a.py",
            "_base_ = find()\n",
            r"a.py:1: _base_ must be a path or a list of paths. It is read before the rest of the file, so it cannot "
            r"use its names: name 'find' is not defined$",
        ),
        (
            "a.py",
            "x = 1\n_base_ = [1 / 0]\n",
            r"a.py:2: _base_ must be a path or a list of paths, but computing it failed: ZeroDivisionError: division",
        ),
        ("a.py", "_base_ = ['b.py', 3]\n", r"a.py:1: _base_ must be a path or a list of paths, not \['b.py', 3\]$"),
        ("a.txt", "", r"a.txt: the name of a config must end with one of .py, .json, .yaml, .yml$"),
        ("a.yaml", "_base_: a.yaml\n", r"a.yaml is a base of itself: .*a.yaml -> .*a.yaml$"),
        ("a.yaml", "_base_: b.yaml\n", r"^the config .*b.yaml, a base of .*a.yaml cannot be read: No such file"),
        (
            "a.yaml",
            "_base_: base.yaml\nx: '{{_base_.modle}}'\n",
            r"a.yaml: _base_.modle is not in the bases, which have no 'm",
        ),
        (
            "a.yaml",
            "_base_: base.yaml\nlr: {x: 1}\n",
            r"^lr is a dict here, but the value to merge it into is a float; put _delete_=T",
        ),
        (
            "a.yaml",
            "_base_: [base.yaml, base.yaml]\n",
            r"^two bases, .*base.yaml and .*base.yaml, both define 'model'; ",
        ),
        (
            "a.yaml",
            "text: 1\n",
            r"a.yaml: 'text' cannot be a key of a config: it names an attribute of Config$",
        ),
    ],
)
def test_invalid_files_are_refused_with_their_location(folder: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        python(write(folder, name, text))


def test_an_error_in_a_python_config_keeps_its_type_and_names_its_line(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        python(write(folder, "fails.py", "x = 1\ny = x / 0\n"))
    assert failure.value.__notes__ == [f"in the config {folder / 'fails.py'}:2"]


# -- as a dict


def test_entries_are_attributes() -> None:
    given = {"a": 1, "b": {"c": [1, {"d": 2}]}}
    config = Config(given)
    assert (config.a, config["b"].c[1].d, config.get("x", 5), "a" in config, len(config)) == (1, 2, 5, True, 2)
    config.b.e = {"f": 3}
    config["g"] = {"h": 3}
    config.update(g={"h": 4})
    assert (config.b.e.f, config.g.h) == (3, 4)
    assert config.pop("a") == 1
    assert config.pop("a", None) is None
    assert list(config) == ["b", "g"]
    assert dict(config.items())["g"] == {"h": 4}
    assert given == {"a": 1, "b": {"c": [1, {"d": 2}]}}
    del config.g
    assert repr(config) == "Config (path: None): {'b': {'c': [1, {'d': 2}], 'e': {'f': 3}}}"


def test_missing_entries_name_the_nearest() -> None:
    config = Config({"model": {"depth": 1}})
    with pytest.raises(AttributeError, match=r"^'ConfigDict' object has no attribute 'modle'; did you mean 'model'\?$"):
        _ = config.modle
    with pytest.raises(KeyError, match=r"^the config has no 'dept' here; did you mean 'depth'\?$"):
        _ = config.model["dept"]
    assert not hasattr(config, "modle")
    with pytest.raises(KeyError, match=r"^'filename' cannot be a key of a Config: it names an attribute of Config$"):
        Config({"filename": "x"})
    with pytest.raises(TypeError, match=r"^a Config is built from a dict, not from a list$"):
        Config([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_copies_are_independent(folder: Path, again: Any) -> None:
    config = python(folder / "base.py")
    other = again(config)
    assert (other, other.filename, other.text) == (config, config.filename, config.text)
    other.model.depth = 1
    other.stages.append(3)
    assert (config.model.depth, config.stages) == (10, [1, 2])
    shallow = config.copy()
    shallow.lr = 5
    shallow.model.depth = 7
    assert (config.lr, config.model.depth) == (0.1, 7)


def test_a_config_dict_is_a_dict() -> None:
    config = ConfigDict({"a": {"b": 1}}, c=2)
    config.update({"d": {"e": 3}})
    assert config.setdefault("f", {"g": 4}).g == 4
    assert type((config | {"h": {"i": 5}}).h) is ConfigDict
    assert ({"d": {"e": 5, "x": 6}} | config).d == {"e": 3, "x": 6}
    config.update(d={"more": 1})
    assert config.d == {"e": 3, "more": 1}
    config.merge({"d": {"_delete_": True, "e": 3}})
    assert (config.d, type(config.d)) == ({"e": 3}, ConfigDict)
    assert (config.pop("missing"), config.pop("missing", 1)) == (None, 1)
    config |= {"j": {"k": 6}}
    assert config.j.k == 6
    assert {**config} == config
    assert type(config.to_dict()["a"]) is dict
    assert isinstance(config, dict)
    assert ConfigDict.fromkeys(["a"], {"b": 1}).a.b == 1
    assert pickle.loads(pickle.dumps(config)).d.e == 3
    del config.a
    with pytest.raises(AttributeError):
        del config.a


# -- changing and writing


def test_options_reach_inside() -> None:
    config = Config({"model": {"depth": 1, "norm": {"type": "BN"}}, "hooks": [{"type": "A"}, 3]})
    config.merge_from_dict({"model.depth": 2, "new.entry": 3, "hooks.0.interval": 4, "hooks.1": 5})
    config.merge_from_dict({"model.norm": {"_delete_": True, "eps": 1}})
    assert config.to_dict() == {
        "model": {"depth": 2, "norm": {"eps": 1}},
        "hooks": [{"type": "A", "interval": 4}, 5],
        "new": {"entry": 3},
    }
    with pytest.raises(KeyError, match=r"^hooks.7: the list has only 2 entries$"):
        config.merge_from_dict({"hooks.7": 1})
    with pytest.raises(TypeError, match=r"^hooks.x: list entries are numbered 0, 1, ..., so 'x' is not one of them$"):
        config.merge_from_dict({"hooks.x": 1})
    with pytest.raises(TypeError, match=r"^model.depth is a dict here, but the value to merge it into is a int; "):
        config.merge_from_dict({"model.depth.x": 1})
    with pytest.raises(TypeError, match=r"^the options set both 'depth' and an entry inside it: 'model.depth.x'$"):
        config.merge_from_dict({"model.depth": 3, "model.depth.x": 1})
    config.merge_from_dict({"hooks": [1]}, allow_list_keys=False)
    assert config.hooks == [1]


@pytest.mark.parametrize("ending", [".py", ".json", ".yaml"])
def test_a_written_config_can_be_read_again(tmp_path: Path, ending: str) -> None:
    content = {
        "model": {
            "type": "Net",
            "stages": [1, 2, 3],
            "names": {"x-y": 1, "class": 2},
            "none": None,
            "deep": {"a": [{}]},
        },
        "train": {f"a_long_name_{number}": [number] * 20 for number in range(5)},
        "text": "it's",
        "empty": [],
    }
    content["words"] = content.pop("text")
    config = Config(content)
    config.dump(tmp_path / f"written{ending}")
    again = python(tmp_path / f"written{ending}")
    assert again.to_dict() == content
    assert Config(content, filename=f"x{ending}").dump() == (tmp_path / f"written{ending}").read_text()
    assert Config.fromstring(config.pretty_text, ".py", allow_python_config=True) == config


def test_the_text_is_pretty() -> None:
    config = Config({"b": {"x": (1,), "y": float("inf")}, "a": {"k" * 45: 1, "v" * 45: {"type": torch.nn.Linear}}})
    assert config.pretty_text == (
        "a = dict(\n"
        f"    {'k' * 45}=1,\n"
        f"    {'v' * 45}=dict(type='torch.nn.modules.linear.Linear'),\n"
        ")\n"
        'b = dict(x=(1,), y=float("inf"))\n'
    )
    with pytest.raises(ConfigError, match=r"^x.txt: a config can only be written to a .py, .json, .yaml or .yml file$"):
        config.dump("x.txt")


def test_the_difference_of_two_is_shown() -> None:
    found = Config.diff(Config({"a": 1, "b": 2}), Config({"a": 1, "b": 3}))
    assert [line for line in found.splitlines() if line[:2] in ("-b", "+b")] == ["-b = 2", "+b = 3"]


def test_options_come_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    given = ["model.depth=5", "lr=1e-3", "on=true", "none=None", "sizes=1,2", "nested=[(1,2),[a,b]]", "name='x=y'"]
    assert parser.parse_args(["--options", *given]).options == {
        "model.depth": 5,
        "lr": 0.001,
        "on": True,
        "none": None,
        "sizes": [1, 2],
        "nested": [(1, 2), ["a", "b"]],
        "name": "x=y",
    }
    for wrong, message in (
        ("depth", "expected KEY=VALUE"),
        ("a=[1", "opened but not closed"),
        ("a=1)", "closed but not opened"),
    ):
        with pytest.raises(SystemExit):
            parser.parse_args(["--options", wrong])
        assert message in capsys.readouterr().err


def test_a_config_describes_a_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        "run.yaml",
        "optim_wrapper: {optimizer: {type: SGD, lr: 0.5}}\n"
        "param_scheduler: [{type: MultiStepLR, milestones: [1], gamma: 0.5}]\n"
        "train_cfg: {by_epoch: true, max_epochs: 2}\n",
    )
    config = Config.fromfile(tmp_path / "run.yaml")
    kept = config.to_dict()
    runner = runner_of(tmp_path / "run", **config)
    runner.train()
    assert runner.optim_wrapper.get_lr() == {"lr": [0.25]}
    assert config.to_dict() == kept


def test_functions_are_settings_where_the_original_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def f(): ...\nvalue = 1\n")
    (tmp_path / "imports.py").write_text("import torch\ndef f(): ...\nvalue = torch.e\n")
    (tmp_path / "newer.py").write_text(
        "from mmengine.config import read_base\nwith read_base():\n    from .plain import *\ndef g(): ...\n"
    )
    (tmp_path / "based.py").write_text("import torch\n_base_ = ['./pl' + 'ain.py']\ndef g(): ...\n")
    names = {
        name: sorted(Config.fromfile(tmp_path / f"{name}.py", allow_python_config=True))
        for name in ("plain", "imports", "newer", "based")
    }
    assert names == {
        "plain": ["value"],
        "imports": ["f", "value"],
        "newer": ["f", "g", "value"],
        "based": ["value"],
    }
