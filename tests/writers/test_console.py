"""ConsoleWriter: one line per record."""

from __future__ import annotations

import io

import numpy as np
import pytest

from hookline.errors import ConfigError
from hookline.testing import toy_runner
from hookline.writers.console import ConsoleWriter


def test_every_record_is_a_line_in_any_stream() -> None:
    stream = io.StringIO()
    runner = toy_runner(max_epochs=1, writers=[ConsoleWriter(stream)], config={"optim": {"lr": 0.1}}, val=None)
    runner.on("before_train")(lambda runner: runner.writers.write_scalars({"a": 0.5, "b": 3, "c": 1e-7}, 0))
    runner.on("after_train")(lambda runner: runner.writers.write_image("x", np.zeros((2, 3)), 4, "a cat"))
    runner.on("after_train")(lambda runner: runner.writers.write_text("note", "over", 4))
    runner.train()
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["step 0  config optim.lr=0.1", "step 0  a 0.5000  b 3  c 1.00e-07"]
    assert lines[2].startswith("step 4  epoch 1  train/lr 0.1000  ")
    assert lines[3:] == ["step 4  x: an image of 3 x 2: a cat", "step 4  note: over"]


def test_it_follows_the_stream_that_is_there_when_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleWriter("stdout").write_scalar("a", 0.5, 1)
    ConsoleWriter("stderr").write_scalar("a", 0.5, 1)
    assert capsys.readouterr() == ("step 1  a 0.5000\n", "step 1  a 0.5000\n")


def test_another_stream_is_refused() -> None:
    with pytest.raises(ConfigError, match="^ConsoleWriter: stream cannot be 'stdin'; available: stdout, stderr$"):
        ConsoleWriter("stdin")  # type: ignore[arg-type]  # the test passes a wrong value
