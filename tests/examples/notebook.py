"""Executes the notebook, and stores it with its outputs.

python -m tests.examples.notebook
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from tests.examples.running import EXAMPLES

FILE = EXAMPLES / "notebook.ipynb"


def execute(folder: Path) -> Any:
    """Return the notebook with the outputs of all cells, executed in a folder."""
    notebook = nbformat.read(FILE, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=resources, coalesce_streams=True
    )
    return client.execute()


def printed(cell: Any) -> str:
    """Return what a cell printed."""
    return "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")


def without_traces(notebook: Any) -> Any:
    """Remove times of execution, the version of this machine's Python, and the progress display, which is empty."""
    notebook.metadata = nbformat.from_dict({"kernelspec": notebook.metadata["kernelspec"]})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output["output_type"] == "stream"]
    return notebook


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(without_traces(execute(Path(folder))), FILE)
