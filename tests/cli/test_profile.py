from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hookline import Hook
from hookline.cli import main
from hookline.cli.profile import measure, shape_of
from hookline.hooks import CheckpointHook
from hookline.report.speed import Shape
from hookline.testing import toy_runner


def test_a_config_is_profiled_without_leaving_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hookline", "profile", "--steps", "24", "val.limit_batches=2"])
    with pytest.raises(SystemExit) as ended:
        main()
    lines = capsys.readouterr().out.splitlines()
    assert (ended.value.code or 0) == 0
    assert lines[0] == "13 steps of digits on cpu, after 4 to warm up"
    names = [re.split(r"  +", line)[0] for line in lines[2:8]]
    assert names == ["the model", "waiting for data", "hooks", "the loop", "a validation", "a save"]
    assert lines[-1].startswith(("The model takes", "The largest part beside the model is"))
    assert list(tmp_path.iterdir()) == []


class Counts(Hook):
    """Counts its calls."""

    calls = 0

    def after_train_iter(self) -> None:
        """Count."""
        self.calls += 1


def test_steps_span_epochs_and_only_those_after_the_warm_up_are_measured(tmp_path: Path) -> None:
    counts = Counts()
    runner = toy_runner(max_epochs=50, work_dir=tmp_path / "run", custom_hooks=[counts], quiet=True)
    length = runner.train_loop.length
    assert length is not None
    _, measured = measure(runner, 3 * length, tmp_path)
    assert (counts.calls, runner.epoch) == (3 * length, 3)
    assert measured == 3 * length - int(3 * length * 0.25)
    (cost,) = [hook for hook in runner.costs().hooks if hook.name == "Counts"]
    assert cost.points["after_train_iter"].measured == measured


def test_the_whole_run_is_described(tmp_path: Path) -> None:
    runner = toy_runner(
        max_epochs=6,
        work_dir=tmp_path,
        default_hooks={"checkpoint": CheckpointHook(interval=2)},
        quiet=True,
    )
    length = runner.train_loop.length
    assert length is not None
    steps = 6 * length
    batches = [(loop.length, loop.length) for loop in runner.val_loops.values()]
    runner._host.shorten(1)
    expected = (sum(1 for _ in batches), sum(whole or 0 for _, whole in batches))
    assert shape_of(runner) == Shape(steps, 6, 3, expected, 0)
