"""`hookline compare` with many runs: one run per row."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hookline.cli import main
from hookline.cli.run_table import display
from hookline.rundir.leaderboard import Column


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, lr, hidden, scores in (
        ("a", 0.1, 32, [0.5, 0.75, 0.7]),
        ("b", 0.01, 64, [0.25, 0.5, 0.9]),
        ("c", 0.001, 32, [float("nan")]),
        ("d", 0.1, 64, []),
    ):
        records: list[dict[str, Any]] = [
            {"step": 10, "epoch": 1, "train/lr": lr / 2, "train/loss": lr, "train/time": 0.002},
            *({"step": 10 * n, "epoch": n, "val/score": n, "val/accuracy": v} for n, v in enumerate(scores, 1)),
        ]
        folder = Path("runs") / name
        folder.mkdir(parents=True)
        text = "".join(json.dumps(record).replace("NaN", "null") + "\n" for record in records)
        (folder / "metrics.jsonl").write_text(text)
        config = f"model: {{hidden: {hidden}, deep: true}}\noptim: {{optimizer: {{lr: {lr}}}}}\nwork_dir: runs/{name}\n"
        (folder / "config.yaml").write_text(config)


def compare(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["hookline", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


ALL = ["runs/a", "runs/b", "runs/c", "runs/d"]


def test_a_folder_of_runs_stands_for_all_runs_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*ALL, monkeypatch=monkeypatch) == 0
    expected = capsys.readouterr()
    for words in (["runs"], ["runs/a", "runs"], ["."]):
        assert compare(*words, monkeypatch=monkeypatch) == 0
        assert capsys.readouterr() == expected


def test_more_than_two_runs_are_rows_with_the_keys_and_numbers_that_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*ALL, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr() == (
        "run  model.hidden  optim.optimizer.lr  train/lr  train/loss  val/score  val/accuracy  epochs  iterations  "
        "step_time\n"
        "a    32            0.1                 0.0500    0.1000      3.0000     0.7500        3       30          "
        "2.00 ms\n"
        "b    64            0.01                0.0050    0.0100      3.0000     0.9000 *      3       30          "
        "2.00 ms\n"
        "c    32            0.001               5.00e-04  0.0010 *    1.0000     -             1       10          "
        "2.00 ms\n"
        "d    64            0.1                 0.0500    0.1000      -          -             1       10          "
        "2.00 ms\n"
        "* best in its column\n"
        "metrics: the best value of each run (the last one of train/lr, val/score)\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "rows", "line"),
    [
        (["--sort", "val/accuracy"], "b a c d", "sorted by val/accuracy, the best first"),
        (["--sort", "accuracy", "--reverse"], "a b c d", "sorted by val/accuracy, the worst first"),
        (["--sort", "accuracy", "--last"], "b a c d", "sorted by val/accuracy, the best first"),
        (["--sort", "train/loss"], "c b a d", "sorted by train/loss, the best first"),
        (["--sort", "lr"], "c b a d", "sorted by optim.optimizer.lr, the smallest first"),
        (["--sort", "iterations", "--reverse"], "a b c d", "sorted by iterations, the greatest first"),
        (["--top", "2"], "b a", "sorted by val/accuracy, the best first; 2 of 4 runs"),
        (["--sort", "hidden", "--top", "1"], "a", "sorted by model.hidden, the smallest first; 1 of 4 runs"),
        (
            ["--sort", "score"],
            "c a b d",
            "sorted by val/score, the smallest first, because its name does not show whether greater or less is "
            "better; --reverse turns this around",
        ),
    ],
)
def test_rows_are_sorted_by_a_metric_or_a_key_and_cut_to_the_top(
    words: list[str], rows: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*ALL, *words, monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[0] for text in lines[1 : 1 + len(rows.split())]] == rows.split()
    assert line in lines
    assert compare(*ALL, *words, "--json", monkeypatch=monkeypatch) in (0, 2)
    out = capsys.readouterr().out
    assert "--last" in words or [path.removeprefix("runs/") for path in json.loads(out)["runs"]] == rows.split()


def test_columns_are_chosen_by_name_end_or_pattern_also_keys_that_are_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--columns", "lr", "--columns", "val/*", "--columns", "model.deep", "--sort", "epochs", "--last"]
    assert compare("runs/a", "runs/b", *words, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run  optim.optimizer.lr  val/score  val/accuracy  model.deep",
        "a    0.1                 3.0000     0.7000        true",
        "b    0.01                3.0000     0.9000 *      true",
        "* best in its column",
        "metrics: the last value of each run",
        "sorted by epochs, the smallest first",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "val/acuracy"], "--sort: unknown column 'val/acuracy'; did you mean 'val/accuracy'?"),
        (["--columns", "hiden"], "--columns: unknown column 'hiden'; did you mean 'model.hidden'?"),
        (["--reverse"], "--reverse needs a column to sort by: add --sort NAME"),
        (
            ["--json", "--all"],
            "--json shows all columns; use --metric to choose the metrics, or leave out --json",
        ),
        (
            ["--side-by-side", "--columns", "lr"],
            "--side-by-side shows all columns; use --metric to choose the metrics, or leave out --side-by-side",
        ),
        (
            ["--json", "--last"],
            "--json shows the last and the best values; leave out --last, or sort by it with --sort NAME",
        ),
        (["runs/e"], "folder runs/e does not exist; available: a, b, c, d"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*ALL, *words, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr() == ("", f"hookline: {message}\n")


def test_the_top_without_any_metric_that_shows_which_run_is_best_needs_a_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        Path("runs", name, "metrics.jsonl").write_text('{"step": 1, "val/score": 1}\n')
    assert compare(*ALL[:3], "--top", "1", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == (
        "hookline: --top needs a column to sort by, because no metric shows which run is best: add --sort NAME\n"
    )


def test_other_folders_are_skipped_and_an_unreadable_run_exits_with_5_after_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs/notes").mkdir()
    Path("runs/study.db").write_text("x")
    Path("runs/moved").symlink_to("elsewhere")
    everything = [*ALL, "runs/notes", "runs/study.db", "runs/moved"]
    left_out = (
        "hookline: left out: runs/notes is not the folder of a run: it has no metrics.jsonl, no run.log and no "
        "checkpoint\n"
        "hookline: left out: runs/study.db is a file; expected the folder of a run, with metrics.jsonl, run.log and "
        "checkpoints\n"
        "hookline: left out: runs/moved is a link to elsewhere, which does not exist\n"
    )
    assert compare(*everything, "--sort", "accuracy", monkeypatch=monkeypatch) == 0
    out, err = capsys.readouterr()
    assert ([line[0] for line in out.splitlines()[:5]], err) == (list("rbacd"), left_out)
    Path("runs/b/metrics.jsonl").write_text("no record\n")
    broken = (
        "runs/b/metrics.jsonl:1: not a record: 'no record'; a record is one line of JSON with a step and numbers, such "
        'as {"step": 120, "train/loss": 0.41}'
    )
    assert compare(*everything, "--sort", "accuracy", monkeypatch=monkeypatch) == 5
    out, err = capsys.readouterr()
    assert ([line[0] for line in out.splitlines()[:4]], err) == (
        list("racd"),
        f"hookline: left out: {broken}\n{left_out}",
    )
    assert compare(*everything, "--json", monkeypatch=monkeypatch) == 5
    data = json.loads(capsys.readouterr().out)
    assert list(data["runs"]) == ["runs/a", "runs/c", "runs/d"]
    assert list(data["left_out"]) == ["runs/b", "runs/notes", "runs/study.db", "runs/moved"]
    assert data["left_out"]["runs/b"] == broken


def drawn(width: int, columns: list[Column], every: bool = False) -> tuple[list[str], list[str]]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    missing = display(console, ["first", "second"], columns, columns, every)
    return file.getvalue().splitlines(), [column.name for column in missing]


def test_a_table_fits_the_screen_and_the_least_informative_columns_are_left_out() -> None:
    columns = [
        Column("val/accuracy", "metric", {0: 0.5, 1: 0.75}, winners={1}),
        Column("optim.optimizer.lr", "config", {0: 0.1, 1: 0.01}),
        Column("model.type", "config", {0: "Net", 1: "a long name of a class"}),
        Column("step_time", "fact", {0: 0.001}),
    ]
    assert drawn(50, columns) == (
        [
            "┏━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━┳━━━━━━━━━━━┓",
            "┃ run    ┃ val/accuracy ┃   lr ┃ step_time ┃",
            "┡━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━━━━┩",
            "│ first  │     0.5000   │  0.1 │   1.00 ms │",
            "│ second │     0.7500 * │ 0.01 │         - │",
            "└────────┴──────────────┴──────┴───────────┘",
        ],
        ["model.type"],
    )
    for width in (30, 40, 50, 70, 100):
        lines, _ = drawn(width, columns)
        assert max(map(len, lines)) <= width
    lines, missing = drawn(20, columns, every=True)
    assert (missing, len(set(map(len, lines)))) == ([], 1)
    assert len(lines[0]) > 60


def test_a_time_can_be_a_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("runs/a", "runs/b", "--columns", "train/time", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["run  train/time", "a    0.0020"]


def test_a_hundred_runs_are_a_hundred_lines_besides_the_frame_and_the_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(100):
        folder = Path("many") / f"{number:02}"
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(f'{{"step": 1, "val/accuracy": {number / 100}}}\n')
        (folder / "config.yaml").write_text(f"seed: {number}\n")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    assert compare(*map(str, sorted(Path("many").iterdir())), "--sort", "accuracy", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[3:103]] == [f"{number:02}" for number in reversed(range(100))]
    assert len(lines) == 107
    assert lines[-3:] == [
        "* best in its column",
        "metrics: the best value of each run",
        "sorted by val/accuracy, the best first",
    ]
