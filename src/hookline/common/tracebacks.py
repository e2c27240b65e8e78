"""Tracebacks that begin in the user's code, without the frames of hookline and of the libraries that call it."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import StackSummary, TracebackException, walk_tb
from types import FrameType
from typing import Literal

#: Where a frame comes from: hookline, the command line, a library that calls user code, the standard library, or else
#: the user.
Origin = Literal["hookline", "command", "library", "standard", "user"]

FOLDER = str(Path(__file__).resolve().parents[1]) + os.sep
STANDARD = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib")})
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
COMMAND = ("typer", "click")
LIBRARIES = ("torch", "accelerate")

HEADER = "Traceback (most recent call last):\n"
LEFT_OUT = "  (the frames of hookline are left out; to see them, add --traceback)\n"
BUG = "hookline: none of the code above is yours, so this may be a bug in hookline; please report it\n"


def format_error(error: BaseException, whole: bool = False) -> str:
    """Return the text of an error as Python shows it, with a traceback that begins in the user's code.

    Frames of hookline are left out, unless the error was raised in hookline itself without any code of the user. The
    errors that led to this one are treated in the same way. With `whole`, nothing is left out.
    """
    described = TracebackException.from_exception(error)
    if whole:
        return "".join(described.format())
    is_ours = not _shorten(described, error)
    text = _without_leading_frames("".join(described.format()))
    if is_ours:
        return text + BUG
    before, header, after = text.rpartition(HEADER)
    return before + header + LEFT_OUT * bool(header) + after


def _shorten(described: TracebackException, error: BaseException) -> bool:
    """Leave out frames of an error and of its causes; return whether the error was raised outside hookline."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    origins = [_origin(frame) for frame in frames]
    explained = _names_its_place(error, frames) and "user" not in origins
    kept = [] if explained else _choose(origins)
    described.stack = StackSummary.from_list([described.stack[number] for number in kept])
    outside = explained or not _is_raised_in_hookline(origins)
    if described.__cause__ is not None and error.__cause__ is not None:
        outside |= _shorten(described.__cause__, error.__cause__)
    if described.__context__ is not None and error.__context__ is not None:
        if _shorten(described.__context__, error.__context__):
            outside = True
        else:  # hookline was handling its own error when it called the code that failed
            described.__context__ = None
    if isinstance(error, BaseExceptionGroup):
        for part, inner_error in zip(described.exceptions or (), error.exceptions, strict=False):
            outside |= _shorten(part, inner_error)
    return outside


def _choose(origins: Sequence[Origin]) -> list[int]:
    """Return the numbers of the frames to show, outermost first."""
    if _is_raised_in_hookline(origins):
        return [number for number, origin in enumerate(origins) if origin != "command"]
    users = [number for number, origin in enumerate(origins) if origin == "user"]
    ours = [number for number, origin in enumerate(origins) if origin == "hookline"]
    first, last = (users[0], users[-1]) if users else (0, -1)
    # After the last frame of the user, those from the last one of hookline on show what it was doing.
    inner = max([last + 1, *ours[-1:]])
    return [*(frame for frame in range(first, last + 1) if origins[frame] != "hookline"), *range(inner, len(origins))]


def _is_raised_in_hookline(origins: Sequence[Origin]) -> bool:
    """Return whether hookline raised it without any code of the user, even if in a function of Python's library."""
    innermost = next((origin for origin in reversed(origins) if origin != "standard"), "hookline")
    return "user" not in origins and innermost == "hookline"


def _names_its_place(error: BaseException, frames: Sequence[FrameType]) -> bool:
    """Return whether the message has the place, as for a syntax error, or an error in a worker of a loader."""
    last = frames[-1] if frames else None
    in_worker = last is not None and (last.f_globals.get("__name__"), last.f_code.co_name) == (
        "torch._utils",
        "reraise",
    )
    return in_worker or isinstance(error, SyntaxError)


def _origin(frame: FrameType) -> Origin:
    file, package = frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")).partition(".")[0]
    # A compiled point has its own file name. The function that enters a scope has none, but a name that only we use.
    if file.startswith((FOLDER, "<hookline ")) or "hl_method" in frame.f_globals:
        return "hookline"
    if package in COMMAND:
        return "command"
    if package in LIBRARIES:
        return "library"
    installed = any(part in file for part in INSTALLED)
    return "standard" if file.startswith("<frozen ") or (file.startswith(STANDARD) and not installed) else "user"


def _without_leading_frames(text: str) -> str:
    """Leave out the frames before the user's code in the traceback of a worker, which is part of a message."""
    kept: list[str] = []
    inside = dropping = False
    for line in text.splitlines(keepends=True):
        frame = re.match(r'  File "(.*)", line \d+, in ', line)
        if line.startswith("Original Traceback (most recent call last):"):
            inside = True
        elif inside and frame:
            inside = dropping = frame[1].startswith(FOLDER) or f"{os.sep}torch{os.sep}" in frame[1]
        elif not line.startswith("    "):
            dropping = False
        if not dropping:
            kept.append(line)
    return "".join(kept)
