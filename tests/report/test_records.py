from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hookline.report import records
from hookline.report.records import Columns, read_lines, read_table


def read(path: Path, text: str | bytes) -> Columns:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    columns = Columns()
    (read_table if path.suffix == ".csv" else read_lines)(path, columns)
    return columns


def points(columns: Columns) -> dict[str, list[tuple[int, float | None]]]:
    found = {name: curve.points(100) for name, curve in columns.curves.items()}
    return {name: list(zip(each["steps"], each["values"], strict=True)) for name, each in found.items()}


def test_records_become_curves(tmp_path: Path) -> None:
    lines = '{"step": 1, "epoch": 1, "a": 1.5}\n{"step": 2, "epoch": 1, "a": null, "b": 7}\n{"step": 2, "c": 1}\n'
    columns = read(tmp_path / "m.jsonl", lines)
    assert points(columns) == {"a": [(1, 1.5), (2, None)], "b": [(2, 7.0)], "c": [(2, 1.0)]}
    assert (columns.steps, columns.epochs, columns.records, columns.bad_lines) == (2, 1, 3, 0)


def test_lines_that_are_not_records_are_counted_and_half_a_line_is_not(tmp_path: Path) -> None:
    lines = b'{"step": 1, "a": 1}\nnot json\n[1]\n{"note": "x"}\n\n{"step": 2, "a": 2}\n\xff\xfe\n{"step": 3, "a'
    columns = read(tmp_path / "m.jsonl", lines)
    assert points(columns) == {"a": [(1, 1.0), (2, 2.0)]}
    assert (columns.bad_lines, columns.first_bad) == (4, 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"global_step": 7, "loss": 1}', {"loss": [(7, 1.0)]}),
        ('{"_step": 7, "_timestamp": 5, "loss": 1}', {"loss": [(7, 1.0)]}),
        (
            '{"train": {"loss": 1, "deep": {"er": 2}}, "step": 7}',
            {"train/loss": [(7, 1.0)], "train/deep/er": [(7, 2.0)]},
        ),
        ('{"loss": 1}', {"loss": [(1, 1.0)]}),
        ('{"step": 7, "loss": 1, "name": "x", "flag": true, "list": [1]}', {"loss": [(7, 1.0)]}),
        ('{"step": 7, "loss": NaN}', {"loss": [(7, None)]}),
        ('{"step": 7, "loss": 1' + "0" * 400 + "}", {"loss": [(7, None)]}),
        ('{"step": 7, "__proto__": 1}', {"__proto__": [(7, 1.0)]}),
        ('{"step": 1e400, "loss": 1}', {}),
        ('{"step": 99999999999999999999, "loss": 1}', {}),
        ('{"global_step": 1' + "0" * 400 + ', "loss": 1, "note": "x"}', {}),
        ('{"step": 7, "epoch": 1e400, "loss": 1}', {"loss": [(7, 1.0)]}),
        ("[" * 100_000, {}),
    ],
)
def test_records_of_other_programs(line: str, expected: object, tmp_path: Path) -> None:
    assert points(read(tmp_path / "m.jsonl", line + "\n")) == expected


def test_a_metric_that_is_in_records_of_several_kinds_stays_in_order(tmp_path: Path) -> None:
    lines = "".join(
        f'{{"step": {n}, "a": {n}{", " + chr(34) + "b" + chr(34) + ": 1" if n % 3 else ""}}}\n' for n in range(9)
    )
    columns = read(tmp_path / "m.jsonl", lines)
    assert points(columns)["a"] == [(n, float(n)) for n in range(9)]
    assert columns.curves["a"].last == (8, 8.0)


def test_rows_of_a_table(tmp_path: Path) -> None:
    text = "epoch,step,train_loss,val_loss,note\n0,1,0.5,,a\n0,2,nan,0.25,b\n,,,,\n"
    columns = read(tmp_path / "metrics.csv", text)
    assert points(columns) == {"train_loss": [(1, 0.5), (2, None)], "val_loss": [(2, 0.25)]}
    assert (columns.steps, columns.epochs, columns.bad_lines) == (2, 0, 1)


@pytest.mark.parametrize("text", ["", "\n", "a\n", "\0\0", '"', "step;loss\n1;2\n", "step\tloss\n1\t2\n"])
def test_odd_tables_are_read_as_far_as_possible(text: str, tmp_path: Path) -> None:
    found = points(read(tmp_path / "metrics.csv", text))
    assert found in ({}, {"loss": [(1, 2.0)]})
    assert (found != {}) == ("loss" in text)


def test_many_records_are_read_in_chunks(tmp_path: Path) -> None:
    lines = "".join(f'{{"step": {step}, "a": {step % 7}}}\n' for step in range(1, 10_001))
    columns = read(tmp_path / "m.jsonl", lines)
    assert (columns.records, columns.steps) == (10_000, 10_000)
    assert columns.curves["a"].highest() == (6, 6.0)
    assert math.isclose(float(columns.curves["a"].buckets.total.sum()), sum(step % 7 for step in range(1, 10_001)))


def test_a_line_that_is_longer_than_any_record_is_one_bad_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 64)
    long = '{"step": 5, "a": 1, "b": ' + "1" * 1000 + "}"
    columns = read(tmp_path / "m.jsonl", f'{{"step": 1, "a": 1}}\n{long}\n{{"step": 2, "a": 2}}\n{long}')
    assert points(columns) == {"a": [(1, 1.0), (2, 2.0)]}
    assert (columns.bad_lines, columns.first_bad) == (2, 2)


def test_long_lines_are_read_in_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_AT_ONCE", 30)
    lines = "".join(f'{{"step": {step}, "a": {step}}}\n' for step in range(1, 8))
    assert points(read(tmp_path / "m.jsonl", lines)) == {"a": [(step, float(step)) for step in range(1, 8)]}


def test_a_row_that_is_longer_than_any_record_loses_its_last_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LONGEST", 64)
    columns = read(tmp_path / "m.csv", "step,a\n1,1\n2," + "1" * 1000 + "\n3,3\n")
    assert points(columns) == {"a": [(1, 1.0), (3, 3.0)]}
    assert points(read(tmp_path / "n.csv", "step," + "a" * 1000 + "\n1,1\n")) == {}
    assert points(read(tmp_path / "o.csv", '"' + "a" * 200_000)) == {}


@pytest.mark.parametrize("name", ["m.jsonl", "m.csv"])
def test_names_and_waiting_numbers_are_bounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_NAMES", 3)
    monkeypatch.setattr(records, "MOST_VALUES", 20)
    names = [f"m{number}" for number in range(100)]
    if name == "m.csv":
        lines = [",".join(["step", *names]), *(",".join([str(step), *["1"] * 100]) for step in range(1, 9))]
    else:
        lines = [json.dumps({"step": step, **dict.fromkeys(names, 1)}) for step in range(1, 9)]
    waiting: list[int] = []
    finish = Columns.finish

    def note(self: Columns) -> Columns:
        waiting.append(sum(map(len, self._chunk)))
        return finish(self)

    monkeypatch.setattr(Columns, "finish", note)
    columns = read(tmp_path / name, "\n".join(lines) + "\n")
    assert points(columns) == {each: [(step, 1.0) for step in range(1, 9)] for each in names[:3]}
    assert (columns.has_more_names, max(waiting) <= 20 + 7) == (True, True)


def test_as_many_names_as_fit_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_NAMES", 3)
    columns = read(tmp_path / "m.jsonl", '{"step": 1, "epoch": 1, "time": 2, "a": 1, "b": 1}\n')
    assert (list(columns.curves), columns.has_more_names) == (["time", "a", "b"], False)
