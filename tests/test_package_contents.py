"""What `make package` finds in the wheel and the sdist."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import package_contents

pytestmark = pytest.mark.processes  # git lists the files


def archives(folder: Path, wheel: set[str], sdist: set[str]) -> Path:
    with zipfile.ZipFile(folder / "hookline-1-py3-none-any.whl", "w") as file:
        for name in sorted({*wheel, "hookline-1.dist-info/METADATA"}):
            file.writestr(name, "")
    with tarfile.open(folder / "hookline-1.tar.gz", "w") as tar:
        for name in sorted({*(f"src/{name}" for name in sdist), "README.md"}):
            tar.addfile(tarfile.TarInfo(f"hookline-1/{name}"), io.BytesIO())
    return folder


def test_the_files_of_the_repository_are_right(tmp_path: Path) -> None:
    files = package_contents.tracked()
    assert package_contents.problems(archives(tmp_path, files, files)) == []


def test_a_forgotten_data_file_and_a_foreign_file_are_found(tmp_path: Path) -> None:
    files = package_contents.tracked()
    found = package_contents.problems(
        archives(tmp_path, (files - {"hookline/data/digits.npz"}) | {"tests/x.py"}, files - {"hookline/py.typed"})
    )
    assert found == [
        "hookline-1-py3-none-any.whl lacks hookline/data/digits.npz; add it to [tool.setuptools.package-data] in "
        "pyproject.toml",
        "hookline-1-py3-none-any.whl has tests/x.py, which git does not know",
        "hookline-1.tar.gz lacks hookline/py.typed; add it to [tool.setuptools.package-data] in pyproject.toml",
    ]
