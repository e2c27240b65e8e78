"""Whatever names a run meets, no command shows a control code that came from one."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import hookline.cli
from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.cli import main
from hookline.common.yaml_file import dump
from hookline.errors import ConfigError
from hookline.testing import toy_runner

NAME = "a\x1b[2J\x9b1m\r\nb\u202e\u200b"
SHOWN = "a\\x1b[2J\\x9b1m\\r\\nb\\u202e\\u200b"
KEY, SHOWN_KEY = "a\x1bb\nc", "a\\x1bb\\nc"  # a bracket is part of a path
CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\ud800-\udfff]")

MODULE = f"""
from hookline import HOOKS, Hook

NAME = {NAME!r}


class Score:
    def reset(self): ...
    def update(self, preds, target): ...
    def compute(self): return {{NAME: 0.5}}


def fail(self, runner):
    raise RuntimeError(NAME)


HOOKS.register("Speaking", force=True)(type(NAME, (Hook,), {{
    "__module__": __name__,
    "__init__": lambda self, word="": None,
    "before_train_epoch": lambda self, runner: runner.hub.update_scalar("train/" + NAME, 1.0),
    "state_dict": lambda self: {{"said": 1}},
    "load_state_dict": lambda self, state: None,
}}))
HOOKS.register("Failing", force=True)(type("Failing", (Hook,), {{"__module__": __name__, "before_train": fail}}))
"""
CONFIG = {
    "imports": ["hostile_names"],
    "model": {"type": "DigitsNet", "width": 4},
    "train": {
        "dataloader": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 8},
        "step": "cross_entropy",
        "max_epochs": 1,
        "limit_batches": 2,
    },
    "val": {
        "dataloader": {"dataset": {"type": "Digits", "split": "val"}, "batch_size": 8},
        "step": "predict",
        "metrics": {"score": "hostile_names:Score"},
        "limit_batches": 1,
    },
    "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
    "default_hooks": {"logger": {"interval": 1}, "checkpoint": {"save_best": f"score/{NAME}", "rule": "greater"}},
    "custom_hooks": [{"type": "Speaking", "word": NAME}],
    "writers": ["jsonl", "console"],
    "work_dir": "run",
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "hostile_names", raising=False)
    (tmp_path / "hostile_names.py").write_text(MODULE)
    (tmp_path / "config.yaml").write_text(dump(CONFIG))
    return tmp_path


def run(*words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and what it printed, in which no code may be left."""
    monkeypatch.setattr(sys, "argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert CODES.findall(out + err) == []
    return int(ended.value.code or 0), out, err


def test_every_command_prints_with_the_function_that_escapes() -> None:
    calls = {
        (path.name, node.func.id)
        for path in Path(hookline.cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "print_exc")
    }
    assert calls == {("common.py", "print")}


def test_a_run_shows_and_logs_names_escaped_and_so_do_the_commands_that_read_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run("train", "config.yaml", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    best = "best_score_a__2J_1m__b___epoch_1.pth"
    named = [line for line in out.splitlines() if SHOWN in line and not line.startswith("│")]
    # A line of the screen may come a moment after that of the writer, so the order between them is not fixed.
    assert sorted(re.sub(r"  \S+time \S+|(  train/|  train |  )loss.*", "", line) for line in named) == [
        f"epoch 1  val  score/{SHOWN} 0.5000",
        f"epoch 1/1  iter 1/2  lr 0.1000  {SHOWN} 1.0000",
        f"new best score/{SHOWN}: 0.5000, to be saved as {best}",
        f"step 0  config custom_hooks.0.word={SHOWN}",
        f"step 0  config default_hooks.checkpoint.save_best=score/{SHOWN}",
        f"step 1  epoch 1  train/lr 0.1000  train/{SHOWN} 1.0000",
        f"step 2  epoch 1  val/score/{SHOWN} 0.5000",
    ]
    log = (project / "run" / "run.log").read_text(encoding="utf-8")
    assert CODES.findall(log) == []
    assert f"epoch 1  val  score/{SHOWN} 0.5000  train loss " in log
    assert f"│ val score/{SHOWN} " in log
    plan = (project / "run" / "plan.txt").read_text(encoding="utf-8")
    assert CODES.findall(plan) == []
    assert [line.split()[:2] for line in plan.splitlines() if SHOWN in line] == [["3", SHOWN]]

    code, out, _ = run("plan", "config.yaml", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, [line.split()[1] for line in out.splitlines() if SHOWN in line]) == (0, [SHOWN])
    code, out, _ = run("plan", "config.yaml", "--tree", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert f"2: {SHOWN}.<lambda>" in out
    code, out, _ = run("inspect", "run/epoch_1.pth", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert f"DistSamplerSeedHook, {SHOWN}, LoggerHook" in out
    assert f"hook states       {SHOWN}, LoggerHook\n" in out
    code, out, _ = run("compare", "run", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert [line.split("  ")[1] for line in out.splitlines() if SHOWN in line] == [
        *[f"train/{SHOWN}", f"val/score/{SHOWN}"]
    ]


def test_the_error_of_a_hook_is_shown_and_logged_escaped(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run("train", "config.yaml", "custom_hooks=[Failing]", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert "RuntimeError: a\\x1b[2J\\x9b1m\\r\nb\\u202e\\u200b\nin hook Failing, at before_train" in err
    log = (project / "run" / "run.log").read_text(encoding="utf-8")
    assert CODES.findall(log) == []
    assert "RuntimeError: a\\x1b[2J\\x9b1m\\r\nb\\u202e\\u200b\n" in log


def test_keys_and_values_of_a_config_are_escaped_in_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.yaml").write_text(dump({**CONFIG, NAME: 1, "seed": NAME, "writers": [NAME]}))
    code, out, err = run("train", "bad.yaml", monkeypatch=monkeypatch, capsys=capsys)
    lines = err.splitlines()
    assert (code, out, lines[0], len(lines)) == (2, "", "hookline: bad.yaml: 3 errors", 4)
    assert [re.sub(r"^ *bad.yaml:\S+  ", "", line) for line in lines[1:]] == [
        f"writers[0]: unknown writer '{SHOWN}'; available: console, csv, jsonl, memory, mlflow, tensorboard, wandb",
        f"{SHOWN}: unknown key '{SHOWN}'; available: model, train, val, test, optim, default_hooks, custom_hooks, "
        "budget, writers, work_dir, experiment_name, seed, device, strategy, precision, load_from, "
        "resume, trial_batch, compile, channels_last, threads, prefetch, keep, points, imports, sweep",
        f"seed: expected an int, found {NAME!r}",
    ]
    words = ("train", "config.yaml", f"custom_hooks.{KEY}=1")
    code, _, err = run(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (
        2,
        f"hookline: override 'custom_hooks.{SHOWN_KEY}=1': 'custom_hooks' is a list, so write an index before "
        f"'{SHOWN_KEY}': custom_hooks[0].{SHOWN_KEY}\n",
    )


def test_text_from_a_checkpoint_is_escaped(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "config.yaml", monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    checkpoint = torch.load("run/epoch_1.pth", weights_only=True)
    checkpoint["meta"] |= {"experiment_name": NAME, "hooks": [NAME], "time": NAME, "torch": NAME, "device": NAME}
    checkpoint["position"]["stopped"] = NAME
    checkpoint["state_dict"][NAME] = torch.zeros(1)
    checkpoint["hooks"][NAME] = {}
    checkpoint[NAME] = {}
    store.write(checkpoint, Path("odd.pth"), Note(step=2, validations=1, complete=True))
    code, out, _ = run("inspect", "odd.pth", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines() if not line.startswith(" "))
    assert [rows[key] for key in ("run", "on", "hooks")] == [
        *[f"{SHOWN}, seed 0", f"{SHOWN}, threads: {torch.get_num_threads()}, processes: 1", SHOWN]
    ]
    assert rows["position"].endswith(f"; stopped: {SHOWN}")
    assert rows[SHOWN] == "dict"
    code, _, err = run("train", "config.yaml", "resume=odd.pth", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (
        5,
        f"hookline: odd.pth does not fit this run; nothing was loaded:\n  surplus: {SHOWN}\n",
    )


def test_a_file_name_is_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    (Path("folder") / f"{NAME}.pth").write_bytes(b"x")
    code, out, _ = run("inspect", "folder", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out.splitlines()[0].partition("  it ")[0], len(out.splitlines())) == (
        *(0, f"{SHOWN}.pth    1 bytes  iteration ?       ", 2),
    )
    code, _, err = run("inspect", NAME, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (
        5,
        f"hookline: there is no checkpoint {SHOWN}; to list a run's checkpoints: hookline inspect FOLDER\n",
    )


def test_a_work_dir_or_an_experiment_name_with_a_control_code_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run("train", "config.yaml", 'work_dir="a\\nb"', monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (2, "hookline: work_dir must be in one line and without control codes, not 'a\\nb'\n")
    override = 'experiment_name="a\\x9bb"'
    code, _, err = run("train", "config.yaml", override, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (
        2,
        f"hookline: config.yaml: 1 error\n  override {override!r}  experiment_name: this name must be in one line and "
        "without control codes, not 'a\\x9bb'\n",
    )
    with pytest.raises(
        ConfigError, match="^experiment_name must be in one line and without control codes, not 'a.x9bb'$"
    ):
        toy_runner(experiment_name="a\x9bb")


def test_a_real_terminal_gets_no_code_from_a_name(project: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    hooks = "custom_hooks=[Speaking, ProgressHook]"
    command = [sys.executable, "-m", "hookline", "train", "config.yaml", hooks, "writers=[]"]
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # raised when the terminal is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert f"epoch 1  val  score/{SHOWN} 0.5000" in text
    assert re.findall("\x1b\\[2J|[\x9b\u202e\u200b]", text) == []
