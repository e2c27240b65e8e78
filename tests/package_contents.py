"""Compare the wheel and the sdist with the repository: `python -m tests.package_contents dist`.

Every file of src/hookline that git knows must be in both, and the wheel must have nothing else. A data file that
pyproject.toml forgets is therefore found, and so is a file that does not belong there.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def tracked() -> set[str]:
    """Return the files of the package that git knows, as they are called in a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/hookline"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name.removeprefix("src/") for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def differences(expected: set[str], found: set[str], archive: str) -> Iterator[str]:
    """Yield a line for every file that an archive lacks or should not have."""
    for name in sorted(expected - found):
        yield f"{archive} lacks {name}; add it to [tool.setuptools.package-data] in pyproject.toml"
    for name in sorted(found - expected):
        yield f"{archive} has {name}, which git does not know"


def in_wheel(path: Path) -> set[str]:
    """Return the files in a wheel, without those about the package itself."""
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def in_sdist(path: Path) -> set[str]:
    """Return the files of the package in an sdist."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return {name.removeprefix("src/") for name in names if name.startswith("src/hookline/")}


def problems(folder: Path) -> list[str]:
    """Return what is wrong with the archives in a folder."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    expected = tracked()
    return [
        *differences(expected, in_wheel(wheel), wheel.name),
        *differences(expected, in_sdist(sdist), sdist.name),
    ]


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]))
    print("\n".join(found) if found else f"{sys.argv[1]}: {len(tracked())} files in the wheel and in the sdist")
    sys.exit(bool(found))
