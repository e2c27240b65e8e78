from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hookline.cli import main
from hookline.testing import toy_runner


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hookline.report.verdict.LEAST_SECONDS", math.inf)  # no verdict about the machine's speed


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def make_run(name: str, **parts: Any) -> None:
    toy_runner(work_dir=Path(name), default_hooks={"report": None}, **parts).train()


def test_one_run_is_written_into_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/a")
    assert run(monkeypatch, "report", "runs/a") == 0
    assert capsys.readouterr().out == "Nothing stands out.\nwrote runs/a/report.html (0.1 MB)\n"
    assert Path("runs/a/report.html").read_text().startswith("<!doctype html>")


def test_several_runs_are_written_into_the_working_directory_and_other_files_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/a")
    make_run("runs/b")
    Path("runs/notes.txt").touch()
    assert run(monkeypatch, "report", "runs/a", "runs/b", "runs/notes.txt") == 0
    shown = capsys.readouterr()
    assert shown.out == "a: Nothing stands out.\nb: Nothing stands out.\nwrote report.html (0.1 MB)\n"
    assert shown.err == (
        "hookline: left out: runs/notes.txt is neither the folder of a run nor a folder with JSONL, CSV or TensorBoard "
        "files\n"
    )


def test_the_verdicts_that_are_not_shown_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        folder = Path(f"runs/{number:02}")
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text('{"step": 1, "train/loss": 1.0}\n')
        (folder / "run.log").touch()
    assert run(monkeypatch, "report", "runs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines[:10]] == [f"{number:02}: " for number in range(10)]
    assert lines[10] == "... and 2 more; the page has all 12 runs"
    assert lines[11].startswith("wrote runs/report.html")


def test_all_runs_of_a_folder_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("runs/a")
    make_run("runs/deeper/b")
    assert run(monkeypatch, "report", "runs") == 0
    shown = capsys.readouterr()
    assert shown.out == "a: Nothing stands out.\nb: Nothing stands out.\nwrote runs/report.html (0.1 MB)\n"
    assert shown.err == ""


def test_a_page_among_the_runs_is_not_mentioned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/a")
    make_run("runs/b")
    assert run(monkeypatch, "report", "runs") == 0
    capsys.readouterr()
    assert run(monkeypatch, "report", *map(str, sorted(Path("runs").iterdir()))) == 0
    shown = capsys.readouterr()
    assert shown.out == "a: Nothing stands out.\nb: Nothing stands out.\nwrote report.html (0.1 MB)\n"
    assert shown.err == ""
    assert run(monkeypatch, "report", "runs/report.html") == 2
    assert "runs/report.html is a file; expected the folder of a run" in capsys.readouterr().err


def test_folders_of_another_program_inside_stay_one_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "validation"):
        Path("other", name).mkdir(parents=True)
        Path("other", name, "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    assert run(monkeypatch, "report", "other", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert [metric["name"] for metric in found["metrics"]] == ["train/loss", "validation/loss"]


def test_the_page_of_the_only_run_among_other_files_is_in_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/b")
    Path("runs/a.txt").touch()
    assert run(monkeypatch, "report", "runs/a.txt", "runs/b") == 0
    assert capsys.readouterr().out == "Nothing stands out.\nwrote runs/b/report.html (0.1 MB)\n"


def test_everything_is_also_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("runs/a")
    assert run(monkeypatch, "report", "runs/a", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["runs"][0]["verdict"]["kind"]) == ("report", "healthy")
    assert not Path("runs/a/report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/x"], "folder runs/x does not exist"),
        (["runs/a", "runs/x"], "runs/x is neither the folder of a run nor"),
        (["runs/a", "--json", "--out", "x"], "--json prints the data, and --out writes a page; leave out one of them"),
        (["runs/a", "--out", "runs"], "--out runs is a folder; expected the name of a file, such as runs/report.html"),
    ],
)
def test_mistakes_are_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/a")
    assert run(monkeypatch, "report", *words) == 2
    assert capsys.readouterr().err.startswith(f"hookline: {message}")


def test_a_page_that_cannot_be_written_is_an_error_of_the_storage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("runs/a")
    assert run(monkeypatch, "report", "runs/a", "--out", "missing/page.html") == 5
    assert capsys.readouterr().err == "hookline: missing/page.html cannot be written: No such file or directory\n"


def test_the_plan_is_also_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "plan", "--json", "--html", "plan.html") == 0
    shown = capsys.readouterr()
    assert shown.err == "wrote plan.html\n"
    points = {point["name"]: [hook["name"] for hook in point["hooks"]] for point in json.loads(shown.out)["points"]}
    assert points["before_run"] == ["RuntimeInfoHook"]
    assert points["after_train_iter"] == [
        *("RuntimeInfoHook", "IterTimerHook", "LoggerHook", "ParamSchedulerHook", "CheckpointHook")
    ]


def test_the_budget_of_a_config_is_part_of_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "plan", "budget=5%") == 0
    capsys.readouterr()
    assert run(monkeypatch, "plan", "budget=500%") == 2
    assert "a budget must be a share of the training time" in capsys.readouterr().err
