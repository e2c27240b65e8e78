"""Where the config of a run came from: a comment in the first line of its config.yaml.

    # resolved from "configs/digits.yaml" in "/home/me/project"

The config itself is complete. The comment only helps to find the user's modules again, which are next to the original.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hookline.common.files import regular

PACKAGE = str(Path(__file__).resolve().parents[1])
COMMENT = re.compile(r'# resolved from ("(?:[^"\\]|\\.)*") in ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Origin:
    """A config file as the command named it, and the working directory of the command."""

    file: str
    folder: str

    def find_modules(self) -> Path | None:
        """Return the folder of the config if it is under the working directory; None if it is not.

        A folder elsewhere is not trusted: a run may come from anyone, and this comment must not select code.
        """
        here = Path.cwd()
        for place in (here / self.file, Path(self.folder) / self.file):
            folder = Path(os.path.abspath(place)).parent
            if place.is_file() and folder.is_relative_to(here):
                return folder
        return None

    def __str__(self) -> str:
        return f"{self.file} in {self.folder}"


def describe(file: Path | None) -> str:
    """Return the comment about a config file; empty if there is none, or if it is a part of hookline."""
    if file is None or Path(os.path.abspath(file)).is_relative_to(PACKAGE):
        return ""
    return f"# resolved from {json.dumps(str(file))} in {json.dumps(os.getcwd())}\n"


def read(config: Path) -> Origin | None:
    """Return where the config of a run came from; None if it does not say so."""
    try:
        with open(config, encoding="utf-8", errors="replace", opener=regular) as file:
            comment = COMMENT.match(file.readline())
    except OSError:
        return None
    try:
        return Origin(json.loads(comment[1]), json.loads(comment[2])) if comment else None
    except ValueError:
        return None
