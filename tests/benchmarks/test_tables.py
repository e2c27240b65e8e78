"""The tables of saves and of counted instructions, as they are published, and the work that is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

import checkpoint
import instructions
import rows
from peers import ENGINES

PEERS = {engine.name for engine in ENGINES} - {"hookline"}


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


def test_counted_cases_are_ratios_to_the_first_one_of_their_group() -> None:
    found = {"a step": {"bare loop": 2000.0, "hookline": 2100.0, "other": 3000.0}, "a batch": {"bare loop": 1.0}}
    assert instructions.as_rows(found) == [
        ["a step", "hookline / bare loop", "2,000", "2,100", "1.05"],
        ["a step", "other / bare loop", "2,000", "3,000", "1.50"],
    ]


def test_the_instructions_of_the_main_thread_are_read_from_the_last_dump(tmp_path: Path) -> None:
    (tmp_path / "7-01").write_text("totals: 1\nfn=(1)\ntotals: 25\n")
    (tmp_path / "7-02").write_text("totals: 100\n")
    assert instructions.total(tmp_path, "7") == 25


def test_every_group_is_done_in_whole_periods_of_the_ledger() -> None:
    groups = rows.groups()
    assert {instructions.times_of(group) % 31 for group in groups} == {0}
    assert all(len(cases) > 1 for cases in groups.values())


@pytest.mark.parametrize("group", list(rows.groups()))
def test_every_case_of_ours_does_its_work(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {name: work for name, work in rows.groups()[group].items() if name not in PEERS}
    for work in ours.values():
        work(2)
