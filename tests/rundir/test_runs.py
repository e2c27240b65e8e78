from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hookline
from hookline.checkpoint.seal import read_note
from hookline.errors import ConfigError, HooklineError, StorageError
from hookline.rundir import ownership, runs
from hookline.rundir.columns import UnknownMetricError
from hookline.testing import toy_runner

RECORDS: list[dict[str, Any]] = [
    {"step": 2, "epoch": 1, "train/loss": 0.5},
    {"step": 4, "epoch": 1, "train/loss": 0.25},
    {"step": 4, "epoch": 1, "val/accuracy": 0.5, "val/loss": None},
    {"step": 8, "epoch": 2, "val/accuracy": 0.75, "val/loss": 2},
    {"step": 12, "epoch": 3, "val/accuracy": 0.75, "val/loss": 1.5},
]


def make_run(folder: Path, records: list[dict[str, Any]] | str = RECORDS) -> Path:
    """Create a folder with these records."""
    folder.mkdir(parents=True, exist_ok=True)
    text = records if isinstance(records, str) else "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def refused(kind: type[HooklineError], path: Path, part: str) -> str:
    with pytest.raises(kind) as found:
        getattr(runs.load(path), part)
    return str(found.value)


# ---------------------------------------------------------------------------------------------------- a real run


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "toy"
    hooks = {"checkpoint": {"save_best": "accuracy", "max_keep_best": 9}, "logger": {"interval": 2}}
    config = {"optim": {"lr": 0.1, "note": "a ${b} and $c"}, "tags": ["1e-3", 1e-3]}
    toy_runner(max_epochs=2, work_dir=folder, default_hooks=hooks, config=config).train()
    return folder


def test_config_metrics_plan_and_log_are_read_back(real: Path) -> None:
    run = runs.load(str(real))
    assert (run.name, run.path, run.has_config, run.running) == ("toy", real, True, False)
    assert run.config == {"optim": {"lr": 0.1, "note": "a ${b} and $c"}, "tags": ["1e-3", 1e-3]}
    assert run.plan == (real / "plan.txt").read_text()
    assert run.log == (real / "run.log").read_text().splitlines()
    assert run.metrics["step"].tolist() == [2, 4, 4, 6, 8, 8]
    assert run.metrics["epoch"].tolist() == [1, 1, 1, 2, 2, 2]
    lines = [json.loads(line) for line in (real / "metrics.jsonl").read_text().splitlines()]
    losses = [line.get("train/loss", float("nan")) for line in lines]
    np.testing.assert_array_equal(run.metrics["train/loss"], losses)
    assert np.isnan(losses).tolist() == [False, False, True, False, False, True]
    assert run.metrics.steps("val/accuracy").tolist() == [4, 8]
    assert run.final("val/accuracy") == (lines[-1]["val/accuracy"], 8)


def test_checkpoints_are_in_the_order_of_the_run_with_the_facts_from_names_and_seals(real: Path) -> None:
    found = runs.load(real).checkpoints
    names = ["epoch_1.pth", "best_accuracy_epoch_1.pth", "epoch_2.pth", "best_accuracy_epoch_2.pth"]
    assert [each.path for each in found] == [real / name for name in names if (real / name).exists()]
    facts = {each.path.name: (each.step, each.epoch, each.metric, each.is_best, each.complete) for each in found}
    assert facts["epoch_1.pth"] == (4, 1, None, False, True)
    assert facts["best_accuracy_epoch_1.pth"] == (4, 1, "accuracy", True, True)
    assert facts["epoch_2.pth"] == (8, 2, None, False, True)
    assert all(each.is_intact() for each in found)


def test_damaged_and_custom_named_checkpoints_are_listed_and_files_of_other_programs_are_not(
    real: Path, tmp_path: Path
) -> None:
    data = (real / "epoch_1.pth").read_bytes()
    make_run(tmp_path)
    for name in ("model_7.pth", "best_clean_loss_iter_4.pth"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "epoch_3.pth").write_bytes(data[:-300])
    (tmp_path / "iter_9.pth").write_bytes(data[:-300])
    (tmp_path / "theirs.pth").write_bytes(b"theirs")
    (tmp_path / "iter_1.pth").mkdir()
    (tmp_path / "flipped_1.pth").write_bytes(data[:999] + bytes([data[999] ^ 1]) + data[1000:])
    found = runs.load(tmp_path).checkpoints
    assert [(each.path.name, each.step, each.epoch, each.metric, each.complete) for each in found] == [
        ("epoch_3.pth", None, 3, None, False),
        ("best_clean_loss_iter_4.pth", 4, None, "clean_loss", True),
        ("flipped_1.pth", 4, None, None, True),
        ("model_7.pth", 4, None, None, True),
        ("iter_9.pth", 9, None, None, False),
    ]
    assert {each.path.name: each.damage() for each in found if not each.is_intact()} == {
        "epoch_3.pth": "it does not end with a seal, so it was cut short, damaged, or written by something else",
        "flipped_1.pth": "its bytes do not match its SHA-256",
        "iter_9.pth": "it does not end with a seal, so it was cut short, damaged, or written by something else",
    }


def test_a_checkpoint_that_vanishes_while_the_folder_is_read_is_left_out(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(path: Path) -> Any:
        if path.name == "epoch_1.pth":
            raise FileNotFoundError(path)
        return read_note(path)

    monkeypatch.setattr(runs, "read_note", vanish)
    assert "epoch_1.pth" not in [each.path.name for each in runs.load(real).checkpoints]


def test_a_run_in_progress_can_be_read_from_inside_and_keeps_its_lock(tmp_path: Path) -> None:
    seen: list[Any] = []
    runner = toy_runner(work_dir=tmp_path, default_hooks={"logger": {"interval": 2}})

    @runner.on("after_train_epoch")
    def look(runner: Any) -> None:
        runner.writers.flush()
        run = runs.load(tmp_path)
        seen.append((run.running, run.metrics["step"].tolist(), [each.step for each in run.checkpoints]))
        code = "import sys, pathlib; from hookline.rundir.ownership import *\nwith locked(pathlib.Path(sys.argv[1])): 1"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert f"is in use by process {os.getpid()}" in other.stderr

    runner.train()
    assert seen == [(True, [2, 4], []), (True, [2, 4, 4, 6, 8], [4])]
    assert runs.load(tmp_path).running is False


HOLDS = """
import sys
from pathlib import Path
from hookline.rundir.ownership import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    input()
"""


def test_a_run_is_running_while_a_process_has_its_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(make_run(tmp_path))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        run = runs.load(tmp_path)
        assert run.running is True
        lock = json.loads((tmp_path / ownership.LOCK).read_text())
        assert lock["pid"] == other.pid
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert run.running is False, "it is gone, although its parent has not noticed yet"
    assert run.running is False
    (tmp_path / ownership.LOCK).write_text(json.dumps(lock | {"pid": os.getpid()}))
    assert run.running is False, "the number now belongs to another process"
    (tmp_path / ownership.LOCK).write_text(json.dumps(lock | {"host": "elsewhere"}))
    assert run.running is None
    (tmp_path / ownership.LOCK).write_text("")
    assert run.running is None


def test_reading_a_run_neither_imports_torch_nor_writes(real: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [real, *real.iterdir()]}
    code = (
        "import sys, hookline\n"
        "run = hookline.runs.load(sys.argv[1])\n"
        "run.config, run.metrics['train/loss'], run.plan, run.log, run.best('val/accuracy'), run.running\n"
        "assert run.checkpoints[0].is_intact()\n"
        "assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(real)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in [real, *real.iterdir()]} == before


def test_the_module_is_a_public_name() -> None:
    assert hookline.rundir.runs is runs
    assert "runs" in hookline.__all__


# ------------------------------------------------------------------------------------------------------ columns


def test_columns_have_one_row_per_record_and_nan_where_it_has_no_value(tmp_path: Path) -> None:
    metrics = runs.load(make_run(tmp_path)).metrics
    assert list(metrics) == ["step", "epoch", "train/loss", "val/accuracy", "val/loss"]
    assert metrics.names == ["train/loss", "val/accuracy", "val/loss"]
    assert (len(metrics), metrics.rows) == (5, 5)
    nan = float("nan")
    np.testing.assert_array_equal(metrics["train/loss"], [0.5, 0.25, nan, nan, nan])
    np.testing.assert_array_equal(metrics["val/loss"], [nan, nan, nan, 2, 1.5])
    assert [metrics[name].dtype for name in metrics] == [np.int64, np.int64, np.float64, np.float64, np.float64]
    assert metrics["step"].tolist() == [2, 4, 4, 8, 12]
    assert metrics["epoch"].tolist() == [1, 1, 1, 2, 3]
    assert repr(metrics) == f"<{tmp_path}/metrics.jsonl: 5 records of train/loss, val/accuracy, val/loss>"


def test_a_series_has_no_gaps_but_keeps_recorded_values_that_are_not_finite(tmp_path: Path) -> None:
    metrics = runs.load(make_run(tmp_path)).metrics
    steps, values = metrics.series("train/loss")
    assert (steps.tolist(), values.tolist()) == ([2, 4], [0.5, 0.25])
    steps, values = metrics.series("val/loss")
    assert steps.tolist() == metrics.steps("val/loss").tolist() == [4, 8, 12]
    np.testing.assert_array_equal(values, [float("nan"), 2, 1.5])


def test_modifying_a_column_does_not_change_the_metrics(tmp_path: Path) -> None:
    metrics = runs.load(make_run(tmp_path)).metrics
    metrics["val/accuracy"][:] = 0
    metrics["step"][:] = 0
    assert metrics.series("val/accuracy")[1].tolist() == [0.5, 0.75, 0.75]
    assert metrics["step"].tolist() == [2, 4, 4, 8, 12]


def test_records_without_an_epoch_leave_gaps_in_its_column(tmp_path: Path) -> None:
    metrics = runs.load(make_run(tmp_path, [{"step": 1, "mine": True}, {"step": 2, "epoch": 1}])).metrics
    np.testing.assert_array_equal(metrics["epoch"], [float("nan"), 1])
    np.testing.assert_array_equal(metrics["mine"], [1, float("nan")])


def test_an_unknown_name_raises_a_key_error_with_the_nearest_name(tmp_path: Path) -> None:
    metrics = runs.load(make_run(tmp_path)).metrics
    message = f"{tmp_path}/metrics.jsonl: unknown metric 'val/acuracy'; did you mean 'val/accuracy'?"
    for ask in (metrics.__getitem__, metrics.series, metrics.steps):
        with pytest.raises(UnknownMetricError) as found:
            ask("val/acuracy")
        assert str(found.value) == message
    assert isinstance(found.value, ConfigError)
    assert isinstance(found.value, KeyError)
    assert ("val/acuracy" in metrics, metrics.get("val/acuracy")) == (False, None)


def test_a_half_written_last_line_is_ignored_and_a_complete_one_is_read(tmp_path: Path) -> None:
    whole = "".join(json.dumps(record) + "\n" for record in RECORDS[:2])
    for half in ('{"step": 4, "epo', '{"step": 4', "{", "\u00e4"):
        assert runs.load(make_run(tmp_path, whole + half)).metrics["step"].tolist() == [2, 4], half
    (tmp_path / "metrics.jsonl").write_bytes(whole.encode() + "ä".encode()[:1])
    assert runs.load(tmp_path).metrics["step"].tolist() == [2, 4]
    assert runs.load(make_run(tmp_path, whole + '{"step": 6}')).metrics["step"].tolist() == [2, 4, 6]
    assert runs.load(make_run(tmp_path, "")).metrics["step"].tolist() == []


@pytest.mark.parametrize(
    "line",
    [
        "a line of somebody else",
        '{"step": 4, "epo{"step": 6}',
        "[1, 2]",
        '{"train/loss": 0.5}',
        '{"step": 1.5}',
        '{"step": true}',
        '{"step": 1, "train/loss": "0.5"}',
        '{"step": 1, "train/loss": [0.5]}',
        '{"step": 1' + 100 * "0" + "}",
        "[" * 100_000,
    ],
)
def test_a_line_that_is_not_a_record_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    make_run(tmp_path, f'{{"step": 1}}\n\n{line}\n{{"step": 2}}\n')
    shown = repr(line) if len(line) <= 60 else f"{line[:60]!r}..."
    assert refused(StorageError, tmp_path, "metrics") == (
        f"{tmp_path}/metrics.jsonl:3: not a record: {shown}; a record is one line of JSON with a step and numbers, "
        'such as {"step": 120, "train/loss": 0.41}'
    )


def test_an_odd_record_does_not_hide_the_others(tmp_path: Path) -> None:
    lines = [
        '{"step": 1, "epoch": null, "big": 1' + 20 * "0" + "}",
        '{"step": 2, "epoch": 1.5, "big": 1' + 400 * "0" + "}",
    ]
    metrics = runs.load(make_run(tmp_path, "\n".join(lines) + "\n")).metrics
    assert metrics["step"].tolist() == [1, 2]
    np.testing.assert_array_equal(metrics["epoch"], [np.nan, 1.5])
    np.testing.assert_array_equal(metrics["big"], [1e20, np.nan])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_convert_to_a_data_frame_if_its_library_is_installed(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = runs.load(make_run(tmp_path)).metrics
    convert = getattr(metrics, f"to_{library}")
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    message = f"{library} is not installed; install it with: pip install 'hookline[{library}]'"
    with pytest.raises(ConfigError, match=re.escape(message)):
        convert()
    fake: Any = types.ModuleType(library)
    fake.DataFrame = lambda columns: {name: column.tolist() for name, column in columns.items()}
    monkeypatch.setitem(sys.modules, library, fake)
    frame = convert()
    assert list(frame) == ["step", "epoch", "train/loss", "val/accuracy", "val/loss"]
    assert (frame["step"], frame["val/accuracy"][2:]) == ([2, 4, 4, 8, 12], [0.5, 0.75, 0.75])


# ------------------------------------------------------------------------------------------------------- results


def test_best_is_the_first_best_value_by_the_rule_of_the_name_or_the_given_rule(tmp_path: Path) -> None:
    run = runs.load(make_run(tmp_path))
    assert run.best("val/accuracy") == runs.Result(value=0.75, step=8)
    assert run.best("val/accuracy", rule="less") == (0.5, 4)
    assert run.best("val/loss") == (1.5, 12)
    assert run.best("train/loss", "greater") == (0.5, 2)
    assert run.final("val/loss") == (1.5, 12)


def test_best_is_refused_if_there_is_no_best_value(tmp_path: Path) -> None:
    run = runs.load(make_run(tmp_path, [{"step": 1, "val/loss": None, "speed": 3}]))
    assert np.isnan(run.final("val/loss").value)
    for metric, rule, message in (
        ("val/los", None, "/metrics.jsonl: unknown metric 'val/los'; did you mean 'val/loss'?"),
        ("val/loss", None, ": no value of 'val/loss' is a finite number, so there is no best one"),
        ("val/loss", "more", ": best: the rule for 'val/loss' must be 'greater' or 'less', not 'more'"),
        (
            *("speed", None),
            ": best: the name 'speed' does not show whether higher or lower is better; set rule: greater or rule: less",
        ),
    ):
        with pytest.raises(HooklineError) as found:
            run.best(metric, rule)
        assert str(found.value) == f"{tmp_path}{message}"
    assert run.best("speed", "greater") == (3.0, 1)


# --------------------------------------------------------------------------------------------- missing parts


def test_missing_parts_are_refused_by_name_and_missing_records_are_empty(real: Path, tmp_path: Path) -> None:
    (tmp_path / "epoch_1.pth").write_bytes((real / "epoch_1.pth").read_bytes())
    run = runs.load(tmp_path)
    assert (run.has_config, run.name, run.metrics.names) == (False, tmp_path.name, [])
    assert refused(StorageError, tmp_path, "config") == (
        f"{tmp_path} has no config.yaml: the run was created in Python; to record a config, pass Runner(config=...)"
    )
    assert refused(StorageError, tmp_path, "plan") == f"{tmp_path}/plan.txt cannot be read: No such file or directory"
    assert refused(StorageError, tmp_path, "log") == f"{tmp_path}/run.log cannot be read: No such file or directory"
    (tmp_path / "metrics.jsonl").mkdir()
    assert refused(StorageError, tmp_path, "metrics") == f"{tmp_path}/metrics.jsonl cannot be read: Is a directory"


def test_a_malformed_config_is_refused_with_its_position(tmp_path: Path) -> None:
    (make_run(tmp_path) / "config.yaml").write_text("- 1\n")
    assert refused(ConfigError, tmp_path, "config") == (
        f"{tmp_path}/config.yaml:1:1: a config must be a mapping of keys to values, not a list"
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("folder", "Is a directory"),
        ("pipe", "it is a named pipe, not a regular file"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_a_config_that_cannot_be_opened_is_an_error_of_the_storage(
    real: Path, tmp_path: Path, kind: str, reason: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(real, folder)
    path = folder / "config.yaml"
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)
    with pytest.raises(StorageError) as refused:
        _ = runs.load(folder).config
    assert str(refused.value) == f"{path} cannot be read: {reason}"


def test_the_config_may_name_the_run(tmp_path: Path) -> None:
    (make_run(tmp_path) / "config.yaml").write_text("experiment_name: first try\n")
    assert runs.load(tmp_path).name == "first try"


def test_a_folder_without_a_run_is_refused_with_a_guess_at_the_intended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/digits"))
    make_run(Path("runs/faces"))
    Path("project").mkdir()
    Path("project/config.yaml").write_text("model: {type: Linear}\n")
    Path("project/theirs.pth").write_bytes(b"theirs")
    no_run = "is not the folder of a run: it has no metrics.jsonl, no run.log and no checkpoint"
    for number in range(60):
        make_run(Path(f"many/{number:02}"))
    names = [f"many/{number:02}" for number in range(50)]
    for path, message in (
        ("runs", f"runs {no_run}; it contains the runs runs/digits, runs/faces"),
        ("many", f"many {no_run}; it contains the runs {', '.join(names)} and 10 more"),
        ("many/x", f"folder many/x does not exist; available: {', '.join(name[5:] for name in names)} and 10 more"),
        ("project", f"project {no_run}"),
        ("runs/digit", "folder runs/digit does not exist; did you mean 'digits'?"),
        ("runs/x", "folder runs/x does not exist; available: digits, faces"),
        ("nowhere/x", "folder nowhere/x does not exist"),
        (
            "runs/digits/metrics.jsonl",
            "runs/digits/metrics.jsonl is a file; expected the folder of a run, with metrics.jsonl, run.log and "
            "checkpoints",
        ),
    ):
        with pytest.raises(ConfigError) as found:
            runs.load(path)
        assert str(found.value) == message
