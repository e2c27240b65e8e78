"""RankTimesHook: which process is the slowest, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hookline.errors import ConfigError
from hookline.hooks import RankTimesHook
from hookline.hooks.rank_times import describe
from hookline.testing import toy_runner


def test_one_process_has_nothing_to_compare_and_the_hook_says_so(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, custom_hooks=[RankTimesHook(interval=1)])
    runner.train()
    line = "RankTimesHook: there is only one process, so there is nothing to compare"
    assert (tmp_path / "run.log").read_text().count(line) == 1
    assert "train/ranks/slowest" not in runner.hub.scalars


def test_the_line_names_the_slowest_process_and_the_part_that_takes_longer() -> None:
    usual = [0.001, 0.002, 0.003, 0.0]
    assert describe(1, [usual, [0.001, 0.002, 0.023, 0.001], usual]) == (
        "rank 1 is slower than the others: 27.0 ms of its own work per step against 6.0 ms, mostly because of backward "
        "(20.0 ms more)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0}, "RankTimesHook: interval must be an int of at least 1, not 0"),
        ({"factor": 0.5}, "RankTimesHook: factor must be a number of at least 1, not 0.5"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RankTimesHook(**options)
    assert str(raised.value) == message
