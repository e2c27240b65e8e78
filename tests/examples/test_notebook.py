"""The notebook: all cells run, and print what is stored."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import nbformat
import pytest

from hookline import runs
from tests.examples.notebook import FILE, execute, printed

#: Numbers may differ from one processor to another.
NUMBER = re.compile(r"\d+(\.\d+)?")


def shape_of(text: str) -> list[str]:
    """Return the lines that the cells print themselves, with a star for each number."""
    return [NUMBER.sub("*", line) for line in text.splitlines() if not line.startswith("epoch ")]


@pytest.mark.long
@pytest.mark.processes
def test_the_notebook_prints_what_is_stored(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's libraries
        cells = execute(tmp_path).cells
    stored = nbformat.read(FILE, as_version=4).cells
    code = [index for index, cell in enumerate(cells) if cell.cell_type == "code"]
    texts = {index: printed(cells[index]) for index in code}
    for index in code[2:]:  # the first one defines a function, the second one trains
        assert shape_of(texts[index]) == shape_of(printed(stored[index])), cells[index].source
    epochs = [line for line in texts[code[1]].splitlines() if line.startswith("epoch ")]
    assert [line.split()[:3] for line in epochs] == [["epoch", str(number), "val"] for number in range(1, 7)]
    assert texts[code[-1]] == "the same bits as without the interruption: True\n"
    assert runs.load(tmp_path / "runs/first").best("val/accuracy").value > 0.95
    assert [each.path.name for each in runs.load(tmp_path / "runs/second").checkpoints][
        -1
    ] == "best_accuracy_epoch_6.pth"


def test_the_stored_notebook_has_outputs_and_nothing_of_a_machine() -> None:
    text = FILE.read_text(encoding="utf-8")
    notebook = nbformat.read(FILE, as_version=4)
    nbformat.validate(notebook)
    assert len(text) < 20_000
    assert not re.search(r"/(home|tmp|root|work|Users)/", text)
    assert set(notebook.metadata) == {"kernelspec"}
    assert all(not cell.metadata for cell in notebook.cells)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
