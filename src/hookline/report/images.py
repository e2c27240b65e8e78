"""Images of a run for a page: a bounded number of them, as data that is part of the page."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from hookline.common.files import regular

#: The file in which a run keeps its images, and how much of it, and of a line, is read.
NAME = "images.jsonl"
MOST_READ, LONGEST = 64 << 20, 1 << 20

#: The most bytes of images of a page, of one run, and of one name.
MOST_BYTES, LARGEST = 800_000, 400_000
MOST_NAMES, MOST_STEPS = 24, 40
#: The longest caption, and the largest step: JavaScript has no greater integers.
LONGEST_CAPTION, LARGEST_STEP = 2000, 1 << 53
#: The first bytes of image files. Nothing else is shown: an SVG, for example, could hold a script.
KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


class Images:
    """The images of a run by name and step. If there are too many steps, every second one is left out, and so on.

    The newest one of every name is always there.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[int, tuple[bytes, str]]] = {}
        self._every: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._newest: dict[str, tuple[int, tuple[bytes, str]]] = {}
        self.left_out = 0

    def add(self, name: str, step: int, data: bytes, caption: str = "") -> None:
        """Add the bytes of an image file."""
        if kind_of(data) is None or len(data) > LARGEST or (name not in self._found and len(self._found) >= MOST_NAMES):
            self.left_out += 1
            return
        steps = self._found.setdefault(name, {})
        every, seen = self._every.setdefault(name, 1), self._seen.setdefault(name, 0)
        self._seen[name] = seen + 1
        if seen % every:
            self.left_out += name in self._newest
            self._newest[name] = step, (data, caption)
            return
        self.left_out += self._newest.pop(name, None) is not None
        steps[step] = data, caption
        if len(steps) > MOST_STEPS:
            self._thin_out(name)

    def _thin_out(self, name: str) -> None:
        found = list(self._found[name].items())
        kept = dict([*found[::-1][::2]][::-1])  # counted from the end, because the newest one stays
        self.left_out += len(self._found[name]) - len(kept)
        self._found[name] = kept
        self._every[name] *= 2

    def as_data(self, most_bytes: int = MOST_BYTES) -> list[dict[str, Any]]:
        """Return the images as plain data: for every name, its steps in order."""
        for name, (step, image) in self._newest.items():
            self._found[name][step] = image
        self._newest = {}
        while self._size() > most_bytes:
            largest = max(self._found, key=lambda name: sum(len(data) for data, _ in self._found[name].values()))
            if len(self._found[largest]) > 1:
                self._thin_out(largest)
            else:
                del self._found[largest]
                self.left_out += 1
        return [
            {
                "name": name,
                "items": [
                    {"step": step, "caption": caption, "source": as_source(data)}
                    for step, (data, caption) in sorted(steps.items())
                ],
            }
            for name, steps in self._found.items()
        ]

    def _size(self) -> int:
        return sum(len(data) * 4 // 3 for steps in self._found.values() for data, _ in steps.values())


def read_images(folder: Path, images: Images) -> bool:
    """Add the images that a run keeps for its page, and return whether there is a file of them.

    Anything may have written it, so a line that is not an image is left out.
    """
    try:
        with open(folder / NAME, "rb", opener=regular) as file:
            left, starts = MOST_READ, True
            while left > 0 and (line := file.readline(LONGEST)):
                left -= len(line)
                if starts and line.endswith(b"\n"):
                    _add_line(line, images)
                starts = line.endswith(b"\n")
    except OSError:
        return False
    return True


def _add_line(line: bytes, images: Images) -> None:
    try:
        found = json.loads(line)
        name, step, png = found["name"], found["step"], found["png"]
        data = base64.b64decode(png, validate=True) if isinstance(png, str) else b""
    except (ValueError, RecursionError, KeyError, TypeError, binascii.Error):
        return
    if isinstance(name, str) and type(step) is int and abs(step) < LARGEST_STEP:
        caption = found.get("caption")
        images.add(name, step, data, caption[:LONGEST_CAPTION] if isinstance(caption, str) else "")


def kind_of(data: bytes) -> str | None:
    """Return the media type of an image file; None if it is of a kind that is not shown."""
    return next((kind for start, kind in KINDS.items() if data.startswith(start)), None)


def as_source(data: bytes) -> str:
    """Return an image file as the source of an `img` element."""
    return f"data:{kind_of(data)};base64,{base64.b64encode(data).decode()}"
