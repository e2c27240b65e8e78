"""A value of an environment variable may be a secret: objects get it, and nothing that is written holds it."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline import Runner, cli
from hookline.common import escape
from hookline.common.environment import FromEnvironment, hidden_in
from hookline.config import build_runner, dump, from_dict, load, read
from hookline.errors import ConfigError
from hookline.sweeps.space import Space
from hookline.sweeps.studies import describe
from hookline.writers.memory import MemoryWriter

Write = Callable[[str, str], Path]

SECRET, OTHER = "s3cr3t-Token/1", "an0ther-Token/2"

MODULE = """
import torch
from hookline import Hook
from mynet import Data, Net


class Remote(Data):
    def __init__(self, url: str, headers: dict, n: int = 8):
        super().__init__(n)
        if n < 0:
            raise ValueError(f"no server at {url}")
        self.url, self.headers = url, headers


class Notify(Hook):
    def __init__(self, token: str, url: str = "", at: int = 100, **more):
        self.token, self.url, self.at, self.more = token, url, at, more

    def after_train_iter(self, runner):
        if runner.iter == self.at:
            raise RuntimeError(f"{self.url} answered 403")
"""

CONFIG = """
imports: [mynet]
model: {type: "mynet:Net"}
train:
  dataloader:
    dataset:
      type: remote:Remote
      url: https://u:${oc.env:TOKEN}@host
      headers: {Authorization: "${custom_hooks[0].token}", kept: "\\\\${x}"}
    batch_size: 4
  step: mynet:loss_of
  max_epochs: 2
optim: {optimizer: {type: SGD, lr: 0.1}}
custom_hooks:
- type: remote:Notify
  token: ${oc.env:TOKEN}
  url: ${train.dataloader.dataset.url}/x
  extra: ["${oc.env:TOKEN}"]
writers: [jsonl, csv, tensorboard]
work_dir: out
"""


@pytest.fixture
def project(mynet: Write, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setattr(escape, "_references", {})
    monkeypatch.setenv("TOKEN", SECRET)
    mynet("remote.py", MODULE)
    mynet("run.yaml", CONFIG)
    return mynet


def holders(folder: str, *secrets: str) -> list[str]:
    """Return the files of a folder that contain a secret."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert len(files) > 5
    return [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


def test_objects_get_the_values_as_plain_texts(project: Write) -> None:
    runner = Runner.from_config("run.yaml")
    hook: Any = next(entry.hook for entry in runner.plan if entry.name == "Notify")
    dataset: Any = runner.train_loop.dataloader.dataset  # type: ignore[attr-defined]  # it is a ResumableLoader
    assert (hook.token, hook.url, hook.more) == (SECRET, f"https://u:{SECRET}@host/x", {"extra": [SECRET]})
    assert (dataset.url, dataset.headers) == (f"https://u:{SECRET}@host", {"Authorization": SECRET, "kept": "${x}"})
    kinds = {type(each) for each in (hook.token, hook.url, *hook.more["extra"], dataset.url, *dataset.headers.values())}
    assert kinds == {str}


def test_no_file_of_a_run_has_the_value_and_its_config_can_be_run_again(project: Write) -> None:
    Runner.from_config("run.yaml", ["experiment_name=a", "custom_hooks[0].more=${oc.env:TOKEN}!"]).train()
    assert holders("out", SECRET) == []
    config = read("out/config.yaml")
    assert config["custom_hooks"][0] == {
        "type": "remote:Notify",
        "token": "${oc.env:TOKEN}",
        "url": "https://u:${oc.env:TOKEN}@host/x",
        "extra": ["${oc.env:TOKEN}"],
        "more": "${oc.env:TOKEN}!",
    }
    assert (
        load("out/config.yaml").data
        == load("run.yaml", ["experiment_name=a", "custom_hooks[0].more=${oc.env:TOKEN}!"]).data
    )


def test_a_changed_value_is_no_difference_for_a_resume(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Runner.from_config("run.yaml").train()
    monkeypatch.setenv("TOKEN", OTHER)
    resumed = Runner.from_config("run.yaml", ["resume=true", "train.max_epochs=3", "custom_hooks[0].at=50"])
    found = resumed.preview_resume()
    assert found is not None
    assert [(each.key, each.checkpoint, each.config) for each in found.differences] == [
        ("max_epochs", 2, 3),
        ("hooks", {"at": 100}, {"at": 50}),
    ]
    resumed.train()
    assert holders("out", SECRET, OTHER) == []
    shown = "".join(capsys.readouterr())
    assert SECRET not in shown
    assert OTHER not in shown


def test_writers_get_the_reference(project: Write) -> None:
    memory = MemoryWriter()
    loaded = load("run.yaml")
    runner = build_runner(loaded, writers=[memory])
    runner.train()
    runner.writers.write_config("again", {"hooks": runner.config["custom_hooks"]}, 8)  # type: ignore[index]  # it has one
    (_, first, _), (_, again, _) = memory.configs
    assert first == hidden_in(loaded.data)
    assert first["custom_hooks"] == again["hooks"]
    assert again["hooks"][0]["url"] == "https://u:${oc.env:TOKEN}@host/x"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "hookline", *words], capture_output=True, text=True, check=False)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """Run a command, and return its exit code."""
    monkeypatch.setattr("sys.argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_an_error_of_a_hook_shows_the_reference(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "train", "run.yaml", "custom_hooks[0].at=1") == 1
    shown = "".join(capsys.readouterr())
    assert "RuntimeError: https://u:${oc.env:TOKEN}@host/x answered 403" in shown
    assert SECRET not in shown
    assert holders("out", SECRET) == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.hidden=${oc.env:TOKEN}",
            "model.hidden: expected an int, found '${oc.env:TOKEN}'",
        ),
        (
            "train.dataloader.dataset.n=-1",
            "Remote(...) failed: ValueError: no server at https://u:${oc.env:TOKEN}@host",
        ),
        ("custom_hooks[0].at=${oc.env:TOKEN}", "custom_hooks[0].at: expected an int, found '${oc.env:TOKEN}'"),
        ("precision=${oc.env:TOKEN}", "precision: expected 'fp32', 'bf16' or 'fp16', found '${oc.env:TOKEN}'"),
        ("model.type=mynet:${oc.env:TOKEN}", "'mynet:${oc.env:TOKEN}' is not a valid name"),
        ("optim.optimizer.lr=${oc.env:TOKEN}", "optim.optimizer.lr: "),
        ("optim=${oc.env:TOKEN}", "optim: expected a mapping, found '${oc.env:TOKEN}'"),
        ('imports=["${oc.env:TOKEN}"]', "'${oc.env:TOKEN}' is not a valid module name"),
        ("x=${custom_hooks[0].token.y}", "'custom_hooks[0].token' is '${oc.env:TOKEN}'"),
    ],
)
def test_a_refusal_shows_the_reference(project: Write, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Runner.from_config("run.yaml", [override])
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_commands_show_the_reference(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "plan", "run.yaml") == 0
    assert run(monkeypatch, "train", "run.yaml", "--dry-run") == 0
    assert SECRET not in "".join(capsys.readouterr())


def test_short_values_paths_and_settings_of_the_run_stay_readable_in_messages(
    project: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {"SHORT": "cpu", "FOLDER": str(tmp_path), "NAME": "baseline-3"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = {
        "experiment_name": "${oc.env:NAME}",
        "model": {
            "a": "${oc.env:SHORT}",
            "b": "${oc.env:FOLDER}",
            "c": "${oc.env:NAME}",
            "d": "${oc.env:UNSET,default}",
        },
    }
    assert from_dict(config).data["model"] == {"a": "cpu", "b": str(tmp_path), "c": "baseline-3", "d": "default"}
    assert escape._references == {}


def test_a_text_from_the_environment_keeps_its_reference_through_copies(project: Write) -> None:
    loaded = from_dict({"custom_hooks": [{"token": "${oc.env:TOKEN}"}]})
    token = loaded.data["custom_hooks"][0]["token"]
    for copied in (
        copy.deepcopy(token),
        pickle.loads(pickle.dumps(token)),
        from_dict(loaded.data).data["custom_hooks"][0]["token"],
    ):
        assert (type(copied), copied, copied.reference) == (FromEnvironment, SECRET, "${oc.env:TOKEN}")
    assert json.loads(json.dumps(token)) == SECRET
    assert SECRET not in repr(loaded.data) + dump(loaded.data)


def test_the_config_of_a_runner_has_the_references(project: Write) -> None:
    """A hook or a callback may write it to any place."""
    runner = Runner.from_config("run.yaml")
    assert json.loads(json.dumps(runner.config))["custom_hooks"][0] == {
        "type": "remote:Notify",
        "token": "${oc.env:TOKEN}",
        "url": "https://u:${oc.env:TOKEN}@host/x",
        "extra": ["${oc.env:TOKEN}"],
    }
    assert SECRET not in f"{runner.config} {runner.config!r}"


def test_load_from_may_name_a_variable(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    Runner.from_config("run.yaml", ["work_dir=first"]).train()
    monkeypatch.setenv("WEIGHTS", "first/epoch_2.pth")
    Runner.from_config("run.yaml", ["load_from=${oc.env:WEIGHTS}"]).train()
    assert "first/epoch_2.pth" in Path("out/run.log").read_text()
    assert read("out/config.yaml")["load_from"] == "${oc.env:WEIGHTS}"


VAL = """
val: {dataloader: {dataset: {type: "mynet:Data", n: 8}, batch_size: 4}, loss: mynet:loss_of}
"""


@pytest.mark.processes
def test_no_file_of_a_sweep_has_the_value(project: Write) -> None:
    project("sweep.yaml", CONFIG + VAL)
    words = [
        "sweep.yaml",
        "optim.optimizer.lr=0.1,0.2",
        "--metric",
        "val/loss",
        "--dir",
        "trials",
        "--pruner",
        "none",
        "--sampler",
        "grid",
    ]
    found = command("sweep", *words)
    assert found.returncode == 0, found.stdout + found.stderr
    assert [len(list(Path("trials").rglob(name))) for name in ("config.yaml", "epoch_2.pth", "*.db")] == [2, 2, 1]
    assert holders("trials", SECRET) == []
    assert SECRET not in found.stdout + found.stderr


@pytest.mark.long
@pytest.mark.processes
def test_no_file_of_a_resumed_run_with_all_writers_has_the_value(project: Write) -> None:
    more = "{type: wandb, mode: offline}, {type: mlflow, tracking_uri: 'sqlite:///out/ml.db'}"
    for words in (["train.max_epochs=1"], ["--resume"]):
        found = command("train", "run.yaml", f"writers=[jsonl, csv, tensorboard, {more}]", *words)
        assert found.returncode == 0, found.stdout + found.stderr
        assert SECRET not in found.stdout + found.stderr
    names = {path.name for path in Path("out").rglob("*") if path.is_file()}
    assert {"config.yaml", "run.log", "events.jsonl", "ml.db", "report.html"} <= names
    assert any(name.endswith(".wandb") for name in names)
    assert holders("out", SECRET) == []


def test_no_file_of_a_resumed_run_that_fails_has_the_value(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "train", "run.yaml", "train.max_epochs=1") == 0
    assert run(monkeypatch, "train", "run.yaml", "--resume", "custom_hooks[0].at=3") == 1
    for words in (
        ["export", "out/epoch_1.pth", "--out", "out/weights.safetensors"],
        ["report", "out"],
        ["inspect", "out"],
    ):
        assert run(monkeypatch, *words) == 0
    assert SECRET not in "".join(capsys.readouterr())
    names = {path.name for path in Path("out").rglob("*") if path.is_file()}
    assert {"config.yaml", "run.log", "events.jsonl", "resume.json", "report.html", "weights.safetensors"} <= names
    assert holders("out", SECRET) == []


def test_a_study_of_a_sweep_records_the_reference(project: Write) -> None:
    recorded = describe("val/accuracy", "maximize", Space({}), load("run.yaml").data)
    assert recorded["config"]["custom_hooks[0].token"] == "${oc.env:TOKEN}"
    assert SECRET not in json.dumps(recorded)
