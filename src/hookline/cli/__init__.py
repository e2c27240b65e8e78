"""The command `hookline`: one file a command. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import io
import sys
import traceback

from hookline.cli.app import app
from hookline.errors import HooklineError, exit_code_of

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; an error ends it with one message and the exit code of its kind."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # in an ASCII locale, no name may end a run by being shown
    try:
        app(standalone_mode=True)
    except HooklineError as error:
        notes = [f"  {note}" for note in getattr(error, "__notes__", [])]
        print("\n".join([f"hookline: {error}", *notes]), file=sys.stderr)
        sys.exit(exit_code_of(error))
    except Exception as error:
        traceback.print_exc()
        sys.exit(exit_code_of(error))
