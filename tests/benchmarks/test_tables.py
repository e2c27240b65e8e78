"""The tables of saves and dialects, as they are published."""

from __future__ import annotations

import checkpoint
import dialects


def test_the_figures_of_saves_are_ratios_to_torch() -> None:
    found = {"save": {"torch.save, fsync": 200.0, "hookline": 300.0}, "resume": {"at step 5": 4.0, "later": 5.0}}
    assert checkpoint.as_page(found, 100).splitlines()[2:] == [
        "| a save of 100 MB: training waits | milliseconds | ratio |",
        "| --- | --- | --- |",
        "| torch.save, fsync | 200 | 1.00 |",
        "| hookline | 300 | 1.50 |",
        "",
        "| a resume: until its first batch | milliseconds | ratio |",
        "| --- | --- | --- |",
        "| at step 5 | 4.0 | 1.00 |",
        "| later | 5.0 | 1.25 |",
    ]


def test_a_dialect_has_one_row_for_each_run_that_it_is_compared_with() -> None:
    found = {"native": 100.0, "by hand": 200.0, "dialect": 101.0}
    ratios: dict[str, dict[str, float]] = {"native": {}, "by hand": {}, "dialect": {"native": 1.01, "by hand": 0.505}}
    assert dialects.as_page(found, ratios).splitlines()[2:] == [
        "|  | microseconds per step | ratio | to |",
        "| --- | --- | --- | --- |",
        "| dialect | 101 | 1.01 | native (100) |",
        "| dialect | 101 | 0.51 | by hand (200) |",
    ]
