"""The command line, with one file per command. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import io
import sys
import traceback

from hookline.cli.app import app
from hookline.cli.common import show
from hookline.common import launched
from hookline.errors import HooklineError, exit_code_of

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; an error ends it with one message and the matching exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # printing a name must not fail in an ASCII locale
    launched.end_with_parent()
    try:
        app(standalone_mode=True)
    except HooklineError as error:
        text = "\n".join([str(error), *(f"  {note}" for note in getattr(error, "__notes__", []))])
        if not launched.record(text, getattr(error, "relayed", False)):
            show(f"hookline: {text}", error=True)
        sys.exit(exit_code_of(error))
    except Exception as error:
        text = traceback.format_exc()
        if not launched.record(text):
            show(text, end="", error=True)
        sys.exit(exit_code_of(error))
