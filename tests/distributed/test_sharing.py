"""Two processes share the data of any loader, or say before training that they do not."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.distributed.ranks import run

run_case = partial(run, module="sharing_cases")


def test_each_process_trains_on_its_share_and_a_stream_that_is_not_shared_is_reported(tmp_path: Path) -> None:
    names = ["weights", "own", "stream", "shared_stream", "listed"]
    two = run_case("several", tmp_path / "two", names)
    one = run_case("several", tmp_path / "one", names[:2], nproc=0)
    assert (one.code, two.code) == (0, 0), two.output
    for name in names[:2]:
        first, second = (rank[name]["seen"] for rank in two.ranks)
        assert [len(first), len(second)] == [6, 6]  # of 6 batches in each of two epochs
        steps = list(zip_longest(first, second))
        assert [batch for step in steps for batch in step] == one.ranks[0][name]["seen"]
    warned = {name: len(found["warned"]) for name, found in two.ranks[0].items() if name != "seconds"}
    assert warned == {"weights": 0, "own": 0, "stream": 1, "shared_stream": 0, "listed": 1}


@pytest.mark.parametrize(
    ("name", "what", "first", "second"),
    [
        (
            "batch_size",
            "the loader",
            "train: ResumableLoader, Order, batch_size=4, shuffle=True, drop_last=False",
            "train: ResumableLoader, Order, batch_size=5, shuffle=True, drop_last=False",
        ),
        (
            "shuffle",
            "the loader",
            "train: ResumableLoader, Order, batch_size=4, shuffle=True, drop_last=False",
            "train: ResumableLoader, Order, batch_size=4, shuffle=False, drop_last=False",
        ),
        ("seeds", "the order of the data", "", ""),
    ],
)
def test_a_loader_that_differs_in_one_process_is_refused(
    tmp_path: Path, name: str, what: str, first: str, second: str
) -> None:
    done = run_case("refused", tmp_path, name)
    assert [found["code"] for found in done.ranks] == [6, 6]
    lines = done.ranks[1]["message"].splitlines()
    assert lines[0] == f"{what} differs between rank 0 and rank 1, but all processes must train the same:"
    assert lines[1].startswith(f"  rank 0: {first}")
    assert lines[2].startswith(f"  rank 1: {second}")
    assert lines[3:] == (
        [
            "  each process takes its share of one order, so all have to draw the same: seed the generator of the "
            "sampler with the same number; if the sampler shares the data itself, set its attribute shares_data = True"
        ]
        if name == "seeds"
        else []
    )
