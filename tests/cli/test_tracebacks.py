"""The traceback of an error in user code begins there; `--traceback` shows all of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hookline.cli import main

LEFT_OUT = "  (the frames of hookline are left out; to see them, add --traceback)\n"
HEADER = f"Traceback (most recent call last):\n{LEFT_OUT}"

MODULE = """\
import torch
from hookline import HOOKS, Hook


class Net(torch.nn.Linear):
    def forward(self, inputs):
        return fail(inputs)


def fail(inputs):
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("mine") from error


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        raise OSError("no file")


@HOOKS.register(force=True)
class Asking(Hook):
    def before_train(self, runner):
        runner.call_hook("before_val")

    def before_val(self):
        [].remove(1)


@HOOKS.register(force=True)
class Curious(Hook):
    def before_train(self, runner):
        runner.hub.update_scalars([3])
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    path = tmp_path / "failing.py"
    path.write_text(MODULE)
    return path


def error_of(
    *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int = 1, first: str = ""
) -> str:
    """Run `hookline train` without evaluations, and return what it prints to the standard error, without markers."""
    short = ["train.max_epochs=1", "train.limit_batches=1", "val=null", "test=null"]
    command = ["hookline", *([first] if first else []), "train", *short, *words]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    return re.sub(r"^ *[~^]+\n", "", capsys.readouterr().err, flags=re.MULTILINE)


def test_tracebacks_of_the_error_and_its_cause_begin_in_user_code(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = "model={type: 'failing:Net', in_features: 64, out_features: 10}"
    assert error_of(net, monkeypatch=monkeypatch, capsys=capsys) == (
        "Traceback (most recent call last):\n"
        f'  File "{module}", line 12, in fail\n'
        '    {}["key"]\n'
        "KeyError: 'key'\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        f"{HEADER}"
        f'  File "{module}", line 7, in forward\n'
        "    return fail(inputs)\n"
        f'  File "{module}", line 14, in fail\n'
        '    raise ValueError("mine") from error\n'
        "ValueError: mine\n"
        "in the step, epoch=0 iter=0 rank=0\n"
    )


def test_hookline_frames_between_user_frames_are_left_out_and_all_notes_are_shown(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["imports=[failing]", "custom_hooks=[Asking]"]
    assert error_of(*words, monkeypatch=monkeypatch, capsys=capsys) == (
        f"{HEADER}"
        f'  File "{module}", line 28, in before_train\n'
        '    runner.call_hook("before_val")\n'
        f'  File "{module}", line 31, in before_val\n'
        "    [].remove(1)\n"
        "ValueError: list.remove(x): x not in list\n"
        "in hook Asking, at before_val, epoch=0 iter=0 rank=0 (failing.py:30)\n"
        "in hook Asking, at before_train, epoch=0 iter=0 rank=0 (failing.py:27)\n"
    )


def test_an_error_inside_hookline_that_the_user_caused_shows_the_last_frame_of_hookline(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of("imports=[failing]", "custom_hooks=[Curious]", monkeypatch=monkeypatch, capsys=capsys)
    lines = error.splitlines()
    assert lines[:4] == [
        *HEADER.splitlines(),
        f'  File "{module}", line 37, in before_train',
        "    runner.hub.update_scalars([3])",
    ]
    assert re.findall(r'/([^/]+)", line \d+, in (.*)', "\n".join(lines[4:])) == [("hub.py", "update_scalars")]


def test_the_message_of_a_worker_has_its_traceback_and_that_begins_in_the_code_of_the_user(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = "train.dataloader={dataset: {type: 'failing:Samples'}, batch_size: 2, num_workers: 1}"
    assert error_of(loader, monkeypatch=monkeypatch, capsys=capsys, code=3) == (
        "OSError: Caught OSError in DataLoader worker process 0.\n"
        f"Original {HEADER}"
        f'  File "{module}", line 22, in __getitem__\n'
        '    raise OSError("no file")\n'
        "OSError: no file\n"
        "reading sample 0 of epoch 0 in worker 0\n"
        "\n"
        "in the ResumableLoader, at batch 0 of epoch 0\n"
    )


def test_without_code_of_the_user_it_begins_where_hookline_called_a_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = "model={type: Linear, in_features: 3, out_features: 10}"
    error = error_of(net, monkeypatch=monkeypatch, capsys=capsys)
    assert error.startswith(HEADER)
    files = [re.sub(".*/(hookline|torch)/", r"\1/", name) for name in re.findall('  File "(.*)", line', error)]
    assert files[0] == "hookline/engine/steps.py"
    assert {name.partition("/")[0] for name in files[1:]} == {"torch"}
    assert error.endswith("cannot be multiplied (512x8 and 3x10)\nin the step, epoch=0 iter=0 rank=0\n")


def test_an_error_of_hookline_without_code_of_the_user_may_be_a_bug_and_shows_all_frames_of_hookline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hookline.hooks.timer.IterTimerHook._restart", None)
    error = error_of("train.max_epochs=1", monkeypatch=monkeypatch, capsys=capsys)
    files = re.findall('  File "(.*)", line', error)
    assert not [name for name in files if "/typer/" in name]
    assert [re.sub(".*/", "", name) for name in files if "hookline" in name][-1] == "timer.py"
    assert error.startswith("Traceback (most recent call last):\n  File ")
    assert error.endswith(
        "hookline: none of the code above is yours, so this may be a bug in hookline; please report it\n"
    )


@pytest.mark.parametrize("place", ["option of the command", "option of the program"])
def test_with_the_option_nothing_is_left_out(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["imports=[failing]", "custom_hooks=[Asking]"]
    if place == "option of the command":
        error = error_of(*words, "--traceback", monkeypatch=monkeypatch, capsys=capsys)
    else:
        error = error_of(*words, monkeypatch=monkeypatch, capsys=capsys, first="--traceback")
    assert re.match(r'Traceback \(most recent call last\):\n  File ".*/hookline/cli/__init__.py", line', error)
    assert '/hookline/engine/loops.py", line' in error
    assert '  File "<hookline before_train ' in error
    assert "left out" not in error
    assert error_of(*words, monkeypatch=monkeypatch, capsys=capsys).startswith(HEADER)  # it holds for one command


def test_with_the_option_even_an_error_of_hookline_has_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of("seed=x", "--traceback", monkeypatch=monkeypatch, capsys=capsys, code=2)
    assert error.startswith("Traceback (most recent call last):\n")
    assert "hookline.errors.ConfigError: " in error
    assert error_of("seed=x", monkeypatch=monkeypatch, capsys=capsys, code=2).startswith("hookline: ")
