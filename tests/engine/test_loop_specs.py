"""TrainLoop and EvalLoop: their length, their intervals and their data."""

from __future__ import annotations

from typing import Any

import pytest

from hookline import EvalLoop, TrainLoop
from hookline.engine.loop_specs import eval_loops
from hookline.errors import ConfigError
from hookline.run.position import Position

DATA = [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"max_epochs": 5}, [1, 2, 3, 4, 5]),
        ({"max_epochs": 5, "val_interval": 2}, [2, 4, 5]),
        ({"max_epochs": 5, "val_interval": 2, "val_begin": 3}, [4, 5]),
        ({"max_epochs": 5, "val_interval": 9, "val_begin": 0}, [0, 5]),
    ],
)
def test_validation_is_due_by_the_interval_from_the_beginning_and_after_the_last_epoch(
    options: dict[str, int], due: list[int]
) -> None:
    loop = TrainLoop(DATA, **options)  # type: ignore[arg-type]
    positions = [Position(epoch=epoch, iter=3 * epoch) for epoch in range(6)]
    assert [position.epoch for position in positions if loop.validation_due(position)] == due
    done = Position(epoch=5, iter=15, validated_at=15)
    assert not loop.validation_due(done)
    assert not loop.validation_due(Position(epoch=2, iter=7, batch=1))


def test_a_loop_is_over_by_epochs_or_by_iterations() -> None:
    assert [TrainLoop(DATA, max_epochs=2).is_over(Position(epoch=n)) for n in (1, 2, 3)] == [False, True, True]
    assert [TrainLoop(DATA, max_iters=2).is_over(Position(iter=n)) for n in (1, 2, 3)] == [False, True, True]


def test_a_loop_is_shortened_for_a_dry_run() -> None:
    by_epoch, by_iter, evaluation = TrainLoop(DATA, max_epochs=9), TrainLoop(DATA, max_iters=9), EvalLoop(DATA)
    for loop in (by_epoch, by_iter, evaluation):
        loop.shorten(2)
        assert (loop.limit_batches, loop.length) == (2, 2)
    assert (by_epoch.max_epochs, by_iter.max_iters) == (1, 2)
    limited = EvalLoop(DATA, limit_batches=1)
    limited.shorten(2)
    assert limited.length == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "TrainLoop needs either max_epochs or max_iters"),
        ({"max_epochs": 1, "max_iters": 1}, "TrainLoop needs either max_epochs or max_iters"),
        ({"max_epochs": 0}, "max_epochs must be an int of at least 1, not 0"),
        ({"max_epochs": 1, "val_begin": -1}, "val_begin must be an int of at least 0, not -1"),
    ],
)
def test_a_length_that_cannot_be_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TrainLoop(DATA, **options)  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_evaluation_loops_have_names() -> None:
    loop = EvalLoop(DATA)
    assert eval_loops(None, "val") == {}
    assert eval_loops(loop, "val") == {"": loop}
    assert eval_loops({"a": loop}, "val") == {"a": loop}
    wrong: Any = {"a": DATA}
    with pytest.raises(ConfigError) as refused:
        eval_loops(wrong, "val")
    assert str(refused.value) == "val must be an EvalLoop or a dict of them by name, not a list"


def test_a_hook_counts_like_the_loop_unless_set_otherwise() -> None:
    by_epoch, by_iter = TrainLoop(DATA, max_epochs=1), TrainLoop(DATA, max_iters=1)
    assert [by_epoch.counts_epochs(given, "X") for given in (None, True, False)] == [True, True, False]
    assert [by_iter.counts_epochs(given, "X") for given in (None, False)] == [False, False]
    with pytest.raises(ConfigError) as refused:
        by_iter.counts_epochs(True, "X")
    assert str(refused.value) == "X: by_epoch=True needs training by epochs, but this run trains by iterations"
