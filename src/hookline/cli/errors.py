"""Showing the error that ends a command, and the option `--traceback`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from hookline.cli.common import show
from hookline.common import launched
from hookline.common.tracebacks import format_error
from hookline.errors import HooklineError

_whole = False
#: What a command does after its error was shown; None for nothing.
_afterwards: Callable[[], None] | None = None


def whole_tracebacks() -> bool:
    """Return whether the command was given `--traceback`."""
    return _whole


def set_whole_tracebacks(wanted: bool) -> bool:
    """Choose whether errors are shown with their whole traceback. An option of the program holds for its command."""
    global _whole
    _whole = _whole or wanted
    return wanted


def forget_options() -> None:
    """Start from the defaults, because a process may run several commands, as tests do."""
    global _whole, _afterwards
    _whole, _afterwards = False, None


def after_the_error(function: Callable[[], None]) -> None:
    """Call a function after the error that ends the command was shown, unless a launcher shows it."""
    global _afterwards
    _afterwards = function


Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback",
        callback=set_whole_tracebacks,
        is_eager=True,
        help="After an error, show the whole traceback, with the frames of hookline.",
    ),
]


def show_error(error: Exception) -> None:
    """Show the error that ends this process, or let the launcher that started it do so.

    An error of hookline is a message. An error of user code has a traceback, which begins in that code.
    """
    if isinstance(error, HooklineError) and not _whole:
        text = "\n".join([str(error), *(f"  {note}" for note in getattr(error, "__notes__", []))])
        shown, relayed = f"hookline: {text}\n", getattr(error, "relayed", False)
    else:
        shown = text = format_error(error, _whole)
        relayed = False
    if not launched.record(text, relayed):
        show(shown, end="", error=True)
        if _afterwards is not None:
            _afterwards()
