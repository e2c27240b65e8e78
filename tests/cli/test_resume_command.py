"""The contract of a resume on the command line: `--keep`, previews, and the last line after a signal."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.cli import main
from hookline.cli.continuing import continuing_command
from hookline.launching.options import Options
from tests.faults.children import command

SHORT = ["train.limit_batches=3", "val.limit_batches=1", "test=null"]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "train.max_epochs=1", *SHORT, monkeypatch=monkeypatch) == 0
    capsys.readouterr()


QUESTION = """\
hookline: runs/digits/epoch_1.pth: the length of training has changed (max_epochs 1 -> 2), and so has the length of a \
schedule with 'auto'; decide how the learning rate continues:
  schedule (CosineAnnealingLR): checkpoint T_max=3, config T_max=6
  --keep schedule=checkpoint  to continue the old curve, which keeps its length (the rate rises again after its end)
  --keep schedule=config  to stretch the rest of the curve: not possible: the curve is at its end, so the rate of \
CosineAnnealingLR would stay at 0, and nothing would be trained
  to begin a new curve with these weights, start a new run with load_from=runs/digits/epoch_1.pth
  nothing was loaded
"""


@pytest.mark.usefixtures("trained")
def test_an_extended_run_asks_and_continues_with_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = ["train", "train.max_epochs=2", "optim.optimizer.lr=0.1", *SHORT, "--resume"]
    assert run(*longer, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == QUESTION
    keep = ["--keep", "schedule=checkpoint", "--keep", "lr=config"]
    assert run(*longer, *keep, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[1:5] == [
        "resumed from runs/digits/epoch_1.pth: epoch 1, iteration 3",
        "  lr: checkpoint 0.005, config 0.1: the config wins; to use the checkpoint's: --keep lr=checkpoint",
        "  schedule (CosineAnnealingLR): checkpoint T_max=3, config T_max=6: the checkpoint wins; to use the config's: "
        "--keep schedule=config",
        "  max_epochs: checkpoint 1, config 2: the config wins; to use the checkpoint's: --keep max_epochs=checkpoint",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resume", "--keep", "shedule=config"],
         "--keep shedule=config: unknown key 'shedule'; did you mean 'schedule'?"),
        (["--keep", "lr=config"], "--keep chooses between a checkpoint and the config, so it needs --resume"),
        (["keep=config", "--dry-run"],
         "keep config: this chooses between a checkpoint and the config, so it needs a resume; set resume as well, or "
         "remove keep"),
        (["resume=true", "keep=lr=both"], "keep: keep lr=both: unknown side 'both'; available: checkpoint, config"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_meant_is_refused_before_anything_is_built(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *SHORT, *words, monkeypatch=monkeypatch) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.usefixtures("trained")
def test_keep_is_a_key_of_a_config_as_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    longer = ["train.max_epochs=2", *SHORT, "resume=true", "keep={schedule: checkpoint}"]
    assert run("train", *longer, monkeypatch=monkeypatch) == 0
    assert "config T_max=6: the checkpoint wins; to use the config's: --keep schedule=config" in capsys.readouterr().out


@pytest.mark.usefixtures("trained")
def test_a_dry_run_with_resume_shows_what_a_resume_would_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in Path("runs/digits").iterdir())
    words = ["train", "seed=3", "train.max_epochs=1", *SHORT, "--resume", "--dry-run"]
    assert run(*words, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "dry run: a resume continues from runs/digits/epoch_1.pth: epoch 1, iteration 3",
        "  seed: checkpoint 0, config 3: the config wins (no choice: the data is built with it; to use the "
        "checkpoint's, change the config. From now on, the order of the data is different)",
        "dry run: batches trained: 2, validations: 1",
    ]
    assert sorted(path.name for path in Path("runs/digits").iterdir()) == before
    assert run("train", "work_dir=runs/new", *SHORT, "--resume", "--dry-run", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.startswith("dry run: there is no checkpoint in runs/new yet\n")


@pytest.mark.usefixtures("trained")
def test_inspect_with_a_config_compares_it_also_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["runs/digits/config.yaml", "train.max_epochs=2"]
    assert run("inspect", "runs/digits", *config, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a run with --resume continues from epoch_1.pth",
        "a resume continues from runs/digits/epoch_1.pth: epoch 1, iteration 3",
        "  schedule (CosineAnnealingLR): checkpoint T_max=3, config T_max=6: undecided; --keep schedule=checkpoint "
        "continues the old curve, --keep schedule=config stretches the rest of it",
        "  max_epochs: checkpoint 1, config 2: the config wins; to use the checkpoint's: --keep max_epochs=checkpoint",
    ]
    assert run("inspect", "runs/digits", *config, "--json", monkeypatch=monkeypatch) == 0
    found: Any = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["resumes_from"], found["refusal"]) == ("runs/digits", "epoch_1.pth", "")
    assert [(each["key"], each["winner"], each["keep"]) for each in found["resume"]["differences"]] == [
        ("schedule", "undecided", ["schedule=checkpoint", "schedule=config"]),
        ("max_epochs", "config", ["max_epochs=checkpoint"]),
    ]
    assert run("inspect", "runs/digits/epoch_1.pth", "--json", monkeypatch=monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["sealed"], found["resumable"]) == ("runs/digits/epoch_1.pth", True, True)
    assert (found["position"]["iter"], found["meta"]["asked"]["max_epochs"]) == (3, 1)
    assert list(found["parts"])[:2] == ["state_dict", "optimizer"]


@pytest.mark.usefixtures("trained")
def test_inspect_as_json_ends_with_5_if_a_resume_would_be_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("runs/digits/epoch_1.pth")
    path.write_bytes(path.read_bytes()[:-10])
    assert run("inspect", "runs/digits", "--json", monkeypatch=monkeypatch) == 5
    assert json.loads(capsys.readouterr().out)["refusal"].startswith("cannot resume: there is no intact checkpoint")


@pytest.mark.parametrize(
    ("words", "keep", "allow", "options", "text"),
    [
        ([], [], [], Options(), "hookline train --resume"),
        (["my run.yaml", "a.b=$x"], [], [], Options(), "hookline train 'my run.yaml' 'a.b=$x' --resume"),
        (["run.yaml"], ["lr=config"], ["mine"], Options(nproc=2, max_restarts=3, grace=5.0),
         "hookline train run.yaml --keep lr=config --allow mine --nproc 2 --max-restarts 3 --grace 5 --resume"),
        (["run.yaml"], [], [], Options(nproc=8, nnodes="2", rdzv_endpoint="node1:29400"),
         "hookline train run.yaml --nproc 8 --nnodes 2 --rdzv-endpoint node1:29400 --resume"),
    ],
)  # fmt: skip
def test_the_command_that_continues_a_run_is_the_one_that_started_it(
    words: list[str], keep: list[str], allow: list[str], options: Options, text: str
) -> None:
    assert continuing_command(words, keep, allow, options) == text


def test_under_torchrun_the_command_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert continuing_command(["run.yaml"], [], [], Options()) == "the same command with --resume"


SIGNALS = """
import os, signal
from hookline import Hook

class Signals(Hook):
    def __init__(self, number: int):
        self.number = number

    def before_train_iter(self, runner):
        if runner.iter == 1:
            os.kill(os.getpid(), self.number)
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_last_line_after_a_signal_is_the_command_that_continues_the_run(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "signals.py").write_text(SIGNALS)
    (tmp_path / "my run.yaml").write_text(
        "model: {type: DigitsNet, width: 4}\n"
        "train: {dataloader: {dataset: {type: Digits}, batch_size: 64}, step: cross_entropy, max_epochs: 1}\n"
        "optim: {optimizer: {type: SGD, lr: 0.1}}\n"
        f"custom_hooks: [{{type: 'signals:Signals', number: {number.value}}}]\n"
    )
    code, output = command("train", "my run.yaml", "train.limit_batches=5", cwd=tmp_path)
    assert code == 128 + number
    assert output.splitlines()[-2:] == [
        f"ended by {number.name} after iteration 2: saved {os.path.join('runs', 'my run', 'iter_2.pth')}",
        "Continue with: hookline train 'my run.yaml' train.limit_batches=5 --resume",
    ]
    code, output = command("train", "my run.yaml", "train.limit_batches=5", "--resume", cwd=tmp_path)
    assert code == 0, output


def test_processes_get_the_choices_and_know_the_command_of_their_launcher(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[list[str], str]] = []

    def note(words: list[str], options: Options, say: Any, continuing: str) -> int:
        started.append((words[words.index("train") :], continuing))
        return 0

    monkeypatch.setattr("hookline.cli.launch.run", note)
    words = ["train", *SHORT, "--resume", "--keep", "lr=config", "--nproc", "2"]
    assert run(*words, monkeypatch=monkeypatch) == 0, capsys.readouterr().err
    assert started == [
        (
            ["train", "--resume", "--keep", "lr=config", "--", *SHORT],
            f"hookline train {' '.join(SHORT)} --keep lr=config --nproc 2 --resume",
        )
    ]
    monkeypatch.setattr("hookline.common.launched._launcher", 1)
    monkeypatch.setenv("HOOKLINE_COMMAND", "hookline train --nproc 2 --resume")
    assert continuing_command(["train"], [], [], Options()) == "hookline train --nproc 2 --resume"
