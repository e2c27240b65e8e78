"""LoggerManager: the parent of a project's loggers, with one format, level and list of handlers."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Self

DEFAULT_LOG_FORMAT = "%rank %(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"


def wrap_log_fmt_with_rank(format: str) -> str:
    """Return a format in which `%rank` is the rank of this process; it is left out if there is only one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    shown = f"Rank[{os.environ.get('RANK', '0')}/{size}]"
    return format.replace("%rank", shown) if size > 1 else format.replace("%rank ", "").replace("%rank", "")


class LoggerManager:
    """The manager of all loggers of a project. There is one: later calls return the first, and ignore their arguments.

    Args:
        format: The format of a line. `%rank` is the rank of the process, if there are several.
        level: The least level that is shown.
        handlers: Where lines go. The default is the terminal, unless Python's root logger has handlers already.
    """

    _instance: LoggerManager | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return the one manager, or create it."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance  # type: ignore[return-value]  # a subclass would be the one manager

    def __init__(
        self,
        format: str = DEFAULT_LOG_FORMAT,
        level: int = logging.INFO,
        handlers: Sequence[logging.Handler] | None = None,
    ) -> None:
        if hasattr(self, "_logger"):
            return
        self._logger, self._format, self._level = logging.getLogger("LoggerManager"), "", level
        if not handlers and not logging.getLogger().hasHandlers():
            handlers = [logging.StreamHandler()]
        self.set_handlers(handlers or []).set_format(format).set_level(level)

    def get_logger(self) -> logging.Logger:
        """Return the parent of all loggers."""
        return self._logger

    def get_child(self, name: str) -> logging.Logger:
        """Return a logger of this name below the parent."""
        return self._logger.getChild(name)

    def set_level(self, level: int) -> Self:
        """Set the least level that is shown."""
        self._level = level
        self._logger.setLevel(level)
        for handler in self._logger.handlers:
            handler.setLevel(level)
        return self

    def set_format(self, format: str) -> Self:
        """Set the format of a line, for all handlers."""
        self._format = wrap_log_fmt_with_rank(format)
        for handler in self._logger.handlers:
            handler.setFormatter(logging.Formatter(self._format))
        return self

    def set_handlers(self, handlers: Sequence[logging.Handler]) -> Self:
        """Replace the handlers."""
        self._logger.handlers.clear()
        for handler in handlers:
            self._logger.addHandler(handler)
        return self.set_format(self._format).set_level(self._level)
