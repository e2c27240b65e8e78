"""`hookline test RUN`: which checkpoint it takes, and where it finds the modules of the run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hookline.cli import main
from hookline.common.yaml_file import dump
from hookline.testing import toy_runner

MODULE = """\
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, inputs):
        return super().forward(inputs.flatten(1))
"""


def loop(split: str) -> dict[str, object]:
    return {
        "dataloader": {"dataset": {"type": "Digits", "split": split}, "batch_size": 16},
        "step": "predict",
        "metrics": {"accuracy": "accuracy"},
        "loss": "cross_entropy",
        "limit_batches": 2,
    }


CONFIG = {
    "model": {"type": "net_of_a_run:Net"},
    "train": {
        "dataloader": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 8},
        "step": "cross_entropy",
        "max_epochs": 3,
        "limit_batches": 2,
    },
    "val": loop("val"),
    "test": loop("test"),
    "optim": {"optimizer": {"type": "SGD", "lr": 0.5}},
    "default_hooks": {"checkpoint": {"save_best": ["loss", "accuracy"], "max_keep_best": 2}},
    "work_dir": "runs/mine",
}


def command(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train once, with a config and a module in a folder of their own."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "configs").mkdir()
    (folder / "configs" / "net_of_a_run.py").write_text(MODULE)
    (folder / "configs" / "mine.yaml").write_text(dump(CONFIG))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        assert command("train", "configs/mine.yaml", monkeypatch=patch) == 0
        del sys.modules["net_of_a_run"]
    return folder


@pytest.fixture
def project(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "net_of_a_run", None)
    monkeypatch.delitem(sys.modules, "net_of_a_run")
    return tmp_path / "project"


def losses() -> dict[int, float]:
    records = [json.loads(line) for line in Path("runs/mine/metrics.jsonl").read_text().splitlines()]
    return {record["step"]: record["val/loss"] for record in records if "val/loss" in record}


@pytest.mark.usefixtures("project")
def test_the_best_checkpoint_is_taken_and_the_reason_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted(path.name for path in Path("runs/mine").glob("best_loss*"))
    assert len(names) == 2  # max_keep_best
    best = min(losses(), key=losses().__getitem__)
    assert command("test", "runs/mine", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out.splitlines()
    path = f"runs/mine/best_loss_epoch_{best // 2}.pth"
    assert out[:2] == [
        f"testing {path}: the best checkpoint for loss ({losses()[best]:.4f}); for another one, use --best accuracy",
        f"weights from {path}",
    ]
    assert [line.split()[0] for line in out[-2:]] == ["accuracy", "loss"]
    record = json.loads(Path("runs/mine/metrics.jsonl").read_text().splitlines()[-1])
    assert (record["step"], "test/accuracy" in record) == (best, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--last"], "testing runs/mine/epoch_3.pth: the last checkpoint"),
        (["--checkpoint", "epoch_2.pth"], "weights from runs/mine/epoch_2.pth"),
        (["--checkpoint", "runs/mine/epoch_1.pth"], "weights from runs/mine/epoch_1.pth"),
    ],
)
@pytest.mark.usefixtures("project")
def test_another_checkpoint_can_be_chosen(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("test", "runs/mine", *words, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[0] == line


@pytest.mark.usefixtures("project")
def test_a_run_without_a_best_checkpoint_is_tested_with_its_last_intact_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in Path("runs/mine").glob("best_*"):
        path.unlink()
    Path("runs/mine/epoch_3.pth").write_bytes(b"cut short")
    assert command("test", "runs/mine", "--json", monkeypatch=monkeypatch) == 0
    data = json.loads(capsys.readouterr().out)
    assert {key: data[key] for key in ("checkpoint", "reason")} == {
        "checkpoint": "runs/mine/epoch_2.pth",
        "reason": "the last checkpoint, because the run saved no best one (save_best)",
    }
    assert list(data["metrics"]) == ["accuracy", "loss"]
    for path in Path("runs/mine").glob("epoch_*"):
        path.unlink()
    assert command("test", "runs/mine", monkeypatch=monkeypatch) == 5
    assert capsys.readouterr().err == "hookline: runs/mine has no checkpoint yet\n"


def test_a_run_that_was_moved_is_tested_where_it_is_and_its_modules_are_found_in_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = (project / "runs" / "mine" / "config.yaml").read_text().splitlines()[0]
    assert first.startswith('# resolved from "configs/mine.yaml" in "/')
    shutil.move(project / "runs" / "mine", project.parent / "moved")
    assert command("test", "../moved", "--last", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[0] == "testing ../moved/epoch_3.pth: the last checkpoint"
    assert list((project / "runs").iterdir()) == []
    sys.modules.pop("net_of_a_run")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "project" not in entry])
    monkeypatch.chdir(project.parent)
    assert command("test", "moved", monkeypatch=monkeypatch) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3
    assert "the module 'net_of_a_run' was not found next to the config or under the working directory" in err[1]
    origin = json.loads(first.rpartition(" in ")[2])
    assert err[2] == (
        f"  the config of this run came from configs/mine.yaml in {origin}, and its modules are next to it; run this "
        f"command there: cd {origin}"
    )


def test_a_comment_in_a_config_never_makes_a_folder_elsewhere_trusted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hookline.rundir.origin import Origin, read

    config = project / "runs" / "mine" / "config.yaml"
    found = read(config)
    assert found is not None
    assert found.find_modules() == project / "configs"  # by the relative path, in this working directory
    monkeypatch.chdir(project / "runs")
    assert Origin("configs/mine.yaml", str(project)).find_modules() is None
    assert Origin(str(project / "configs" / "mine.yaml"), "/").find_modules() is None
    config.write_text('# resolved from "a" in "\\u12"\n')
    assert read(config) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["runs/mine", "--best", "acuracy"],
            "runs/mine has no best checkpoint for 'acuracy'; did you mean 'accuracy'?",
        ),
        (
            ["runs/mine", "--best", "loss", "--last"],
            "--checkpoint, --best and --last choose different checkpoints; use only one of them",
        ),
        (
            ["runs"],
            "runs is not the folder of a run: it has no metrics.jsonl, no run.log and no checkpoint; it contains the "
            "runs runs/mine",
        ),
        (
            ["runs/mine/epoch_1.pth"],
            "runs/mine/epoch_1.pth is a checkpoint; name its run, too: hookline test runs/mine --checkpoint "
            "epoch_1.pth",
        ),
        (["runs/nothere"], "folder runs/nothere does not exist; available: mine"),
        (["configs/mine.yaml", "--last"], "--last needs the folder of a run, such as hookline test runs/digits"),
        (
            ["configs/mine.yaml"],
            "choose what to test: the folder of a run, such as hookline test runs/digits, or a checkpoint, such as "
            "--checkpoint runs/digits/epoch_15.pth",
        ),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_mistake_is_one_message_and_exit_code_2(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("test", *words, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == f"hookline: {message}\n"


def test_a_run_that_was_created_in_python_is_tested_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toy_runner(max_epochs=1, work_dir="run").train()
    assert command("test", "run", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == (
        "hookline: run has no config.yaml, because the run was created in Python; test it there, with runner.test(), "
        "or with hookline test CONFIG --checkpoint FILE\n"
    )
