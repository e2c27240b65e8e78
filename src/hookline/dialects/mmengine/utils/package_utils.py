"""What is installed."""

from __future__ import annotations

import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from hookline.errors import ConfigError


def is_installed(package: str) -> bool:
    """Whether a package is installed, by the name that it is imported or installed by."""
    try:
        if find_spec(package) is not None:
            return True
        metadata.distribution(package)
    except (ModuleNotFoundError, ValueError, metadata.PackageNotFoundError):
        return False
    return True


def get_installed_path(package: str) -> str:
    """The folder that a package is in."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"the package '{package}' is not installed")
    return str(Path(spec.origin).parent)


def call_command(cmd: list[str]) -> None:
    """Run a program; one that fails raises."""
    subprocess.run(cmd, check=True)


def install_package(package: str) -> None:
    """Refused: nothing is installed by a run."""
    raise ConfigError(f"hookline installs nothing; do it yourself: pip install {package}")
