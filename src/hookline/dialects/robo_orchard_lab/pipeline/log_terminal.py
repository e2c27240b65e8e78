"""The screen and run.log of a trainer: lines are log records, as everything that RoboOrchard shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.screen.terminal import Terminal

log = logger_of(__name__)
#: The loggers of all modules are below this one.
ALL = logging.getLogger("robo_orchard_lab")


class LogTerminal(Terminal):
    """Shows lines with `logging`. While `keeping` lasts, run.log also gets the other records of this package."""

    def prepare(self) -> None:
        """Do nothing: there is no screen."""

    def say(self, text: str, style: str | None = None) -> None:
        """Log a line, and write it to run.log."""
        self.note(text)
        if not self.quiet:
            log.warning("%s", text, extra={"is_noted": True})

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Write the records of this package to run.log inside the context."""
        handler = _ToLog(self)
        ALL.addHandler(handler)
        try:
            yield
        finally:
            ALL.removeHandler(handler)


class _ToLog(logging.Handler):
    def __init__(self, terminal: LogTerminal) -> None:
        super().__init__()
        self._terminal = terminal
        #: Without any handler, Python itself shows warnings. This handler must not change that.
        self._only = None if ALL.hasHandlers() else logging.lastResort

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_noted", False):
            self._terminal.note(record.getMessage())
        if self._only is not None and record.levelno >= self._only.level:
            self._only.handle(record)
