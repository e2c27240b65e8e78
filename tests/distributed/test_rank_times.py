"""The slowest of two processes is named, although both take the same time per step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.comparing import SLOW
from tests.distributed.ranks import run


@pytest.mark.parametrize("part", ["forward", "backward", "hooks"])
def test_the_slowest_process_is_named_with_the_part_in_which_it_is_slow(tmp_path: Path, part: str) -> None:
    done = run("slow", tmp_path, part, module="tests.distributed.comparing")
    assert done.code == 0, done.output
    main, other = (found["values"] for found in done.ranks)
    assert list(main) == [
        f"train/ranks/{name}"
        for name in (
            *("backward_spread", "data_spread", "fastest", "forward_spread", "hooks_spread", "slowest", "slowest_rank"),
        )
    ]
    assert main == other
    assert main["train/ranks/slowest_rank"] == [1.0] * 4  # in the iterations 2, 4, 6 and 8
    assert min(main[f"train/ranks/{part}_spread"]) > 0.5 * SLOW
    lines = re.findall(r"rank \d is slower.*", (tmp_path / "run" / "run.log").read_text())
    assert [re.sub(r"[\d.]+ ms", "n ms", line) for line in lines] == [
        f"rank 1 is slower than the others: n ms of its own work per step against n ms, mostly because of {part} "
        "(n ms more)"
    ]
    assert [found["left"] for found in done.ranks] == [0, 0]
