from __future__ import annotations

import io
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

import peer_tables
import peers
from engines import bare
from engines.models import MODELS
from engines.results import Case, Engine, Results
from engines.task import Task, Times
from terminals import on_a_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MLP = MODELS[0]


def interrupted(task: Task) -> None:
    raise SystemExit(143)


def wrong(task: Task) -> None:
    bare.train(task)
    with torch.no_grad():
        next(task.model.parameters()).add_(0.01)


def failing(task: Task) -> None:
    raise ValueError("no\nidea")


def impatient(task: Task) -> None:
    del task.data[5:]
    bare.train(task)


FAKES = {"wrong": wrong, "failing": failing, "impatient": impatient}


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    ours, missing = peers.ENGINES[0], Engine("missing", "engines.no_such_engine", "no-such-package")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, train in FAKES.items():
            monkeypatch.setitem(sys.modules, f"engines.{name}", SimpleNamespace(train=train))
        engines = [ours, *(Engine(name, f"engines.{name}", name) for name in FAKES), missing]
        yield peers.measure(engines, [MLP], steps=20, rounds=2, minutes=0, shown=io.StringIO())


def test_every_case_has_times_or_a_reason(results: Results) -> None:
    measured = {(case.engine, case.everything): len(times) for case, times in results.times.items()}
    assert measured == {(name, on): 2 for name in ("bare loop", "hookline") for on in (False, True)}
    assert results.reasons() == {
        "missing": ["ModuleNotFoundError: No module named 'engines.no_such_engine'"],
        "wrong": ["its weights are not those of the bare loop: they differ by up to 0.01"],
        "failing": ["ValueError: no idea"],
        "impatient": ["RuntimeError: it made 5 steps instead of 31"],
    }
    assert len(results.failures) == 8


def test_a_signal_ends_the_comparison_and_is_not_a_failure_of_an_engine() -> None:
    results = Results([])
    with pytest.raises(SystemExit):
        peers.run_once(Case("hookline", "MLP", False), MLP, interrupted, results, steps=10)
    assert not results.failures


def test_no_engine_is_left_out_of_the_tables_and_the_chart(results: Results) -> None:
    names = ["hookline", "wrong", "failing", "impatient", "missing"]
    plain = peer_tables.plain_text(results, [MLP])
    assert [line.split()[0] for line in plain.splitlines() if line and line[0] != " "] == [
        *("MLP,", "bare", *names),
        *("MLP,", "by", *names),
        "Measured",
    ]
    assert plain.count("ValueError: no idea") == 2
    assert peer_tables.readme_text(results, MLP).splitlines()[2].endswith(" | failed | failed | failed | failed |")
    page = peer_tables.long_tables(results, [MLP])
    assert "| failing | failed |  |  | failed |  |  |  |  |" in page
    assert "failing has no figures: ValueError: no idea." in page
    assert "no-such-package (not installed)" in page
    assert peer_tables.chart(results, [MLP]).count(">failed</text>") == 8


def test_the_ratio_is_to_the_bare_loop_alone_and_of_the_fastest_rounds(results: Results) -> None:
    case, base = Case("hookline", "MLP", True), Case("bare loop", "MLP", False)
    expected = min(t.wall for t in results.times[case]) / min(t.wall for t in results.times[base])
    found = results.ratios(*case)
    assert found is not None
    assert found[0] == pytest.approx(expected)
    assert results.ratios(*base) == (1.0, 1.0)


def test_a_bare_loop_that_is_not_steady_is_reported() -> None:
    results = Results([])
    for wall in (1.0, 1.05, 1.3):
        results.times.setdefault(Case("bare loop", "MLP", False), []).append(Times(wall, 1.0, 0.0, 0.0))
    assert peer_tables.find_noise(results, [MLP]) == ""
    results.times[Case("bare loop", "MLP", False)].append(Times(1.4, 1.0, 0.0, 0.0))
    assert peer_tables.find_noise(results, [MLP]) == (
        "The machine was not quiet: the rounds of the bare loop differ (MLP 18%). Measure again later."
    )


def test_a_task_measures_whole_intervals_between_two_steps(tmp_path: Path) -> None:
    for model in MODELS:
        assert model.steps % 10 == 0
        task = Task(model, tmp_path, everything=False, steps=10)
        times = task.run(bare.train)
        assert len(task.data) == task.steps == 21
        assert min(times) >= 0


def test_engines_draw_on_a_terminal() -> None:
    was = os.fstat(1), os.fstat(2)
    with on_a_terminal() as shown:
        assert os.isatty(1)
        assert os.isatty(2)
        assert os.get_terminal_size(1).columns == 120
        assert os.fstat(shown.fileno()) == was[1]
        os.write(1, b"x" * 100_000)  # more than a terminal holds, so somebody reads it
    assert (os.fstat(1).st_ino, os.fstat(2).st_ino) == (was[0].st_ino, was[1].st_ino)
