from __future__ import annotations

import io
import json
import os
import pty
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hookline.cli import compare, main
from hookline.cli.side_by_side import Row, display

COMMAND = [sys.executable, "-c", "from hookline.cli import main; main()", "compare"]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_run(name: str, records: list[dict[str, Any]], config: str | None = None) -> None:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if config is not None:
        (folder / "config.yaml").write_text(config)


def two_runs() -> None:
    make_run(
        "slow",
        [
            {"step": 10, "epoch": 1, "train/lr": 0.01, "train/time": 0.004, "train/loss": 0.5},
            {"step": 20, "epoch": 2, "train/lr": 0.001, "train/time": 0.002, "train/loss": 0.25},
            {"step": 20, "epoch": 2, "val/time": 0.1, "val/accuracy": 0.75},
            {"step": 40, "epoch": 4, "val/time": 0.1, "val/accuracy": 0.5},
        ],
        "optim: {lr: 0.01, betas: [0.9, 0.99]}\nseed: 0\ncustom_hooks: [{type: EMAHook}]\nwork_dir: runs/slow\n",
    )
    make_run(
        "fast",
        [
            {"step": 20, "epoch": 2, "train/lr": 0.1, "train/time": 0.002, "train/loss": 0.25},
            {"step": 20, "epoch": 2, "val/time": 0.1, "val/accuracy": 0.7, "val/loss": None},
        ],
        "optim: {lr: 0.1, betas: [0.9, 0.999]}\nseed: 0.0\ncustom_hooks: []\nwork_dir: runs/fast\n",
    )


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["hookline", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_differences_in_config_and_results_are_shown_with_one_column_per_run_and_the_best_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs()
    assert run("runs/slow", "runs/fast", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "                        slow            fast",
        "",
        "config",
        "  optim.lr              0.01            0.1",
        "  optim.betas[1]        0.99            0.999",
        "  custom_hooks[0].type  EMAHook         -",
        "  custom_hooks          -               []",
        "",
        "results",
        "  epochs                4               2",
        "  iterations            40              20",
        "  total step time       0.06s           0.04s",
        "  time per step         3.00 ms         2.00 ms *",
        "  train/lr              0.0010 at 20    0.1000 at 20",
        "  train/loss            0.2500 at 20    0.2500 at 20",
        "    best                0.2500 at 20    0.2500 at 20",
        "  val/accuracy          0.5000 at 40    0.7000 at 20 *",
        "    best                0.7500 at 20 *  0.7000 at 20",
        "  val/loss              -               nan at 20",
        "    best                -               -",
        "* best in its row",
    ]


def test_one_run_alone_shows_its_results_and_marks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs()
    assert run("runs/fast", "runs/fast/", "--metric", "val/accuracy", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "                   fast",
        "",
        "results",
        "  epochs           2",
        "  iterations       20",
        "  total step time  0.04s",
        "  time per step    2.00 ms",
        "  val/accuracy     0.7000 at 20",
        "    best           0.7000 at 20",
    ]


def test_metrics_are_chosen_by_name_or_pattern_and_an_unknown_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs()
    make_run("odd", [{"step": 1, "norm[0]": 2.0}, {"step": 2, "line\nbreak": 3.0}])
    for words, labels in (
        (["runs/slow", "--metric", "val/*"], ["val/time", "val/accuracy"]),
        (["runs/slow", "--metric", "val/accuracy", "--metric", "train/l*"], ["train/lr", "train/loss", "val/accuracy"]),
        (["runs/odd", "--metric", "norm[0]"], ["norm[0]"]),
        (["runs/odd"], ["norm[0]", "line\\nbreak"]),
    ):
        assert run(*words, monkeypatch=monkeypatch) == 0
        found = [line[2:].split("  ")[0] for line in capsys.readouterr().out.splitlines() if " at " in line]
        assert [label for label in found if label] == labels
    assert run("runs/slow", "runs/fast", "--metric", "val/acuracy", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr() == (
        "",
        "hookline: --metric: unknown metric 'val/acuracy'; did you mean 'val/accuracy'?\n",
    )


def test_json_has_the_same_content(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs()
    words = ["runs/slow", "runs/fast", "--json", "--metric", "val/accuracy", "--metric", "val/loss"]
    assert run(*words, monkeypatch=monkeypatch) == 0
    assert json.loads(capsys.readouterr().out) == {
        "runs": {
            "runs/slow": {
                "name": "slow",
                "epochs": 4,
                "iterations": 40,
                "seconds": pytest.approx(0.06),
                "step_seconds": pytest.approx(0.003),
                "final": {"val/accuracy": {"value": 0.5, "step": 40}},
                "best": {"val/accuracy": {"value": 0.75, "step": 20}},
            },
            "runs/fast": {
                "name": "fast",
                "epochs": 2,
                "iterations": 20,
                "seconds": pytest.approx(0.04),
                "step_seconds": pytest.approx(0.002),
                "final": {"val/accuracy": {"value": 0.7, "step": 20}, "val/loss": {"value": None, "step": 20}},
                "best": {"val/accuracy": {"value": 0.7, "step": 20}},
            },
        },
        "config": {
            "optim.lr": {"runs/slow": 0.01, "runs/fast": 0.1},
            "optim.betas[1]": {"runs/slow": 0.99, "runs/fast": 0.999},
            "custom_hooks[0].type": {"runs/slow": "EMAHook"},
            "custom_hooks": {"runs/fast": []},
        },
        "left_out": {},
    }


def test_runs_of_the_same_name_are_titled_by_their_paths_and_missing_configs_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a/digits", "b/digits"):
        make_run(name, [{"step": 1, "epoch": 1}], "seed: .nan\nname: [on]\n")
    make_run("c", [])
    Path("runs/c/iter_7.pth").write_bytes(b"cut short")
    words = ["runs/a/digits", "runs/b/digits", "runs/c", "--side-by-side"]
    assert run(*words, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "              runs/a/digits  runs/b/digits  runs/c",
        "",
        "results",
        "  epochs      1              1              0",
        "  iterations  1              1              7",
        "no config recorded in runs/c",
        "the configs are the same",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/slow", "runs/fats"], "hookline: folder runs/fats does not exist; did you mean 'fast'?\n"),
        (
            ["runs/empty"],
            "hookline: runs/empty is not the folder of a run: it has no metrics.jsonl, no run.log and no checkpoint\n",
        ),
    ],
)
def test_a_folder_without_a_run_ends_with_2_and_one_message(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs()
    Path("runs/empty").mkdir()
    assert run(*words, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr() == ("", message)
    assert run(monkeypatch=monkeypatch) == 2


def test_records_that_cannot_be_read_end_with_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs()
    Path("runs/fast/metrics.jsonl").write_text("no record\n")
    assert run("runs/slow", "runs/fast", monkeypatch=monkeypatch) == 5
    assert "hookline: runs/fast/metrics.jsonl:1: not a record: 'no record'" in capsys.readouterr().err


def test_in_a_pipe_there_are_no_control_characters_and_no_torch() -> None:
    two_runs()
    code = "import sys; from hookline.cli import main; sys.argv[0] = 'hookline'\n"
    code += "try: main()\nfinally: assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code, "compare", "runs/slow", "runs/fast"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "val/accuracy          0.5000 at 40    0.7000 at 20 *\n" in ended.stdout
    assert all(character.isprintable() or character == "\n" for character in ended.stdout)


def test_on_a_screen_it_is_a_table() -> None:
    import fcntl
    import termios

    two_runs()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    without = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**without, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    words = [*COMMAND, "runs/slow", "runs/fast", "--metric", "val/accuracy"]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, env=environment) as child:
        os.close(theirs)
        shown = read_all(ours)
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert "│ \x1b[1mresults             \x1b[0m │                │                │\r\n" in shown
    assert "│ optim.lr             │ 0.01           │ 0.1            │\r\n" in shown
    assert "│   best               │ \x1b[1m0.7500 at 20 *\x1b[0m │ 0.7000 at 20   │\r\n" in shown
    assert shown.endswith("┘\r\n* best in its row\r\n")


def read_all(descriptor: int) -> str:
    """Read from a terminal until nobody writes to it anymore."""
    parts = []
    try:
        while part := os.read(descriptor, 4096):
            parts.append(part)
    except OSError:  # Linux raises this when the other end is closed
        pass
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()


def drawn(width: int, titles: list[str], rows: list[Row]) -> list[str]:
    file = io.StringIO()
    display(Console(file=file, width=width, force_terminal=True, color_system=None), titles, {"results": rows})
    return file.getvalue().splitlines()


def test_a_table_fits_the_screen_long_values_are_cut_and_marks_stay() -> None:
    rows = [
        Row("optim.optimizer.name.of.a.long.key.lr", ["a long value " * 5, "実験実験実験実験実験実験実験実験"], {0})
    ]
    assert drawn(70, ["a/long/path/of/the/first/run", "b"], rows) == [
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┓",
        "┃                              ┃ ...the/first/run ┃ b                ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━┩",
        "│ results                      │                  │                  │",
        "│ ...zer.name.of.a.long.key.lr │ a long valu... * │ 実験実験実験...  │",
        "└──────────────────────────────┴──────────────────┴──────────────────┘",
    ]


def test_runs_that_do_not_fit_beside_the_others_get_a_table_below() -> None:
    titles = [f"run_{number}" for number in range(5)]
    rows = [Row("val/accuracy", [f"0.{number}000 at 10000" for number in range(5)], {4})]
    lines = drawn(80, titles, rows)
    assert [line.split("┃")[2:-1] for line in lines if line.startswith("┃")] == [
        [f" run_{number}           " for number in range(3)],
        [" run_3           ", " run_4             "],
    ]
    assert [line.split("│")[2:-1] for line in lines if "accuracy" in line] == [
        [f" 0.{number}000 at 10000 " for number in range(3)],
        [" 0.3000 at 10000 ", " 0.4000 at 10000 * "],
    ]
    for width in (20, 30, 40, 80, 140):
        assert max(map(len, drawn(width, titles, rows))) <= width


HOSTILE = "a\x1b[2J\x9b\n\u202e\ud800"
SHOWN = "a\\x1b[2J\\x9b\\n\\u202e\\ud800"


def hostile_runs() -> tuple[str, str]:
    """Make two runs whose names, metrics and configs have control codes and unpaired surrogates."""
    names = "odd\x1b[2J\n", os.fsdecode(b"\xff")
    for number, name in enumerate(names):
        config = f'"k\\e[2J": "v{number}\\e[2J\\n"\n'
        make_run(name, [{"step": 1, HOSTILE: 0.5 + number, "val/accuracy": 0.5}], config)
    return f"runs/{names[0]}", f"runs/{names[1]}"


def test_names_and_values_with_control_codes_and_surrogates_are_shown_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = hostile_runs()
    assert run(*runs, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "                              odd\\x1b[2J\\n     \\udcff",
        "",
        "config",
        '  k\\x1b[2J                    "v0\\u001b[2J\\n"  "v1\\u001b[2J\\n"',
        "",
        "results",
        "  epochs                      0                0",
        "  iterations                  1                1",
        f"  {SHOWN}  0.5000 at 1      1.5000 at 1",
        "  val/accuracy                0.5000 at 1      0.5000 at 1",
        "    best                      0.5000 at 1      0.5000 at 1",
    ]
    assert run(*runs, "--json", monkeypatch=monkeypatch) == 0
    data = json.loads(capsys.readouterr().out)
    assert [found["final"][HOSTILE]["value"] for found in data["runs"].values()] == [0.5, 1.5]
    assert run(*runs, "--metric", "\udcfe\x1b", monkeypatch=monkeypatch) == 2
    error = f"hookline: --metric: unknown metric '\\udcfe\\x1b'; available: {SHOWN}, val/accuracy\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize("screen", [False, True])
def test_a_stream_that_encodes_strictly_gets_no_surrogate_and_no_code_from_a_name(
    screen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Path(each) for each in hostile_runs()]
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "200")
    if screen:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    compare.run(runs)
    stream.seek(0)
    shown = stream.read()
    assert shown.count(SHOWN) == 1
    assert ("┏" in shown, "\x1b[2J" in shown) == (screen, False)
