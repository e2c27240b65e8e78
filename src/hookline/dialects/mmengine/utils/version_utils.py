"""Compare versions."""

from __future__ import annotations

import re
import subprocess

from hookline.dialects.mmengine.errors import ConfigValueError

__all__ = ["digit_version", "get_git_hash"]

#: Pre-releases, which sort before the release they are named after, earliest first.
BEFORE = {"a": -3, "b": -2, "rc": -1}


def digit_version(version_str: str, length: int = 4) -> tuple[int, ...]:
    """Return a version as numbers: `length` for the release, then two that sort pre-releases before it.

    >>> digit_version("2.1.0rc1") < digit_version("2.1.0") < digit_version("2.1.0.post1")
    True
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)[-_.]?(?:(a|b|c|rc|alpha|beta|post|dev)[-_.]?(\d*))?", str(version_str))
    if found is None:
        raise ConfigValueError(f"{version_str!r} is not a version")
    release = [int(part) for part in found[1].split(".")][:length]
    release += [0] * (length - len(release))
    kind = {"alpha": "a", "beta": "b", "c": "rc"}.get(found[2] or "", found[2])
    if kind is None:
        return (*release, 0, 0)
    if kind == "dev":
        return (*release, -4, int(found[3] or 0))
    return (*release, BEFORE.get(kind, 1), int(found[3] or 0))


def get_git_hash(fallback: str = "unknown", digits: int | None = None) -> str:
    """Return the git commit of the working directory."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return fallback
    return found.stdout.strip()[:digits]
