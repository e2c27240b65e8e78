"""The command line, with one file per command. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import io
import sys

from hookline.cli import errors
from hookline.cli.app import app
from hookline.common import launched
from hookline.errors import exit_code_of

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; an error ends it with one message and the matching exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # printing a name must not fail in an ASCII locale
    launched.end_with_parent()
    errors.forget_options()
    try:
        app(standalone_mode=True)
    except Exception as error:
        errors.show_error(error)
        sys.exit(exit_code_of(error))
