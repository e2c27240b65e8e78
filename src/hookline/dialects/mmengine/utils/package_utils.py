"""Look up installed packages."""

from __future__ import annotations

import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from hookline.dialects.mmengine.not_included import not_included
from hookline.errors import ConfigError

__all__ = ["call_command", "get_installed_path", "install_package", "is_installed"]


def is_installed(package: str) -> bool:
    """Return whether a package is installed, by its import name or its distribution name."""
    try:
        if find_spec(package) is not None:
            return True
        metadata.distribution(package)
    except (ModuleNotFoundError, ValueError, metadata.PackageNotFoundError):
        return False
    return True


def get_installed_path(package: str) -> str:
    """Return the folder that a package is installed in."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"the package '{package}' is not installed")
    return str(Path(spec.origin).parent)


def call_command(cmd: list[str]) -> None:
    """Run a command; raise an error if it fails."""
    subprocess.run(cmd, check=True)


def install_package(package: str) -> None:
    """Refuse: a run never installs packages."""
    raise ConfigError(f"hookline does not install packages; install it yourself: pip install {package}")


not_included(globals(), "package2module")
