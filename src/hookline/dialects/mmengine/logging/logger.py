"""MMLogger: a logger whose lines belong to the run: on the screen and in run.log."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.dialects.mmengine.not_included import not_included
from hookline.errors import did_you_mean
from hookline.plan.registry import construct
from hookline.screen.terminal import TerminalHandler

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal


class MMFormatter(logging.Formatter):
    """Shows the time, the logger, the level and the message; for errors, also the place in the code."""

    def __init__(self, times: str) -> None:
        super().__init__("%(asctime)s - %(name)s - %(levelname)s - %(message)s", times)
        self._with_place = logging.Formatter(
            "%(asctime)s - %(name)s - %(levelname)s - %(pathname)s - %(funcName)s - %(lineno)d - %(message)s", times
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return self._with_place.format(record) if record.levelno >= logging.ERROR else super().format(record)


class OncePerWarning(logging.Filter):
    """Drops a warning that was shown before."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is shown."""
        if record.levelno != logging.WARNING:
            return True
        text = record.getMessage()
        is_new, self._seen = text not in self._seen, self._seen | {text}
        return is_new


class MMLogger(logging.Logger, ManagerMixin):
    """A logger that can be looked up by name. A warning is shown once.

    Args:
        name: The name to look it up by.
        logger_name: The name of the `logging.Logger`.
        log_file: An additional file for its lines. The lines of a run are always written to `run.log`.
        log_level: The lowest level that is shown.
        file_mode: The mode to open the file in.
        distributed: Accepted, but has no effect: only the main process of a run shows lines.
        file_handler_cfg: The handler of the file, as `dict(type="RotatingFileHandler", maxBytes=...)`: a class of
            Python's `logging` or `logging.handlers`, and its parameters.
    """

    def __init__(
        self,
        name: str,
        logger_name: str = "mmengine",
        log_file: str | os.PathLike[str] | None = None,
        log_level: int | str = "INFO",
        file_mode: str = "w",
        distributed: bool = False,
        file_handler_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        logging.Logger.__init__(self, logger_name)
        ManagerMixin.__init__(self, name)
        self._log_file = None if log_file is None else os.fspath(log_file)
        self._shown = logging.StreamHandler(sys.stdout)
        self._add(self._shown, "%m/%d %H:%M:%S", log_level)
        self.addFilter(OncePerWarning())
        if log_file is not None:
            handler = _file_handler(log_file, file_mode, file_handler_cfg)
            self._add(handler, "%Y/%m/%d %H:%M:%S", log_level)

    def _add(self, handler: logging.Handler, times: str, level: int | str) -> None:
        handler.setFormatter(MMFormatter(times))
        handler.setLevel(level)
        self.addHandler(handler)

    def setLevel(self, level: int | str) -> None:  # noqa: N802  # the name in `logging`
        """Set the lowest level that is shown, for all handlers."""
        for handler in self.handlers:
            handler.setLevel(level)

    log_file: str | None = forwarded("_log_file", "Return the additional file for its lines, besides run.log.")

    def show_in(self, terminal: Terminal) -> None:
        """Show its lines as lines of a run from now on."""
        self.removeHandler(self._shown)
        handler = TerminalHandler(terminal)
        handler.setLevel(self._shown.level)
        self.addHandler(handler)


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Print a message (None), or log it with the `current` logger, a named or a given one, or not at all (`silent`)."""
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg, stacklevel=2)
    elif logger == "current":
        MMLogger.get_current_instance().log(level, msg, stacklevel=2)
    elif isinstance(logger, str) and logger != "silent":
        if not MMLogger.check_instance_created(logger):
            raise ConfigValueError(f"unknown MMLogger '{logger}'; create it with MMLogger.get_instance('{logger}')")
        MMLogger.get_instance(logger).log(level, msg, stacklevel=2)
    elif logger != "silent":
        raise ConfigTypeError(
            f"logger must be a logging.Logger, the name of one, 'current', 'silent' or None, not {logger!r}"
        )


def _file_handler(path: str | os.PathLike[str], mode: str, cfg: Mapping[str, Any] | None) -> logging.Handler:
    """Return the handler that writes to a file. A config names a class of Python's own handlers, and nothing else."""
    parameters = {"type": "FileHandler", **(cfg or {})}
    name = parameters.pop("type")
    known = {
        each: kind
        for module in (logging.handlers, logging)
        for each, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, logging.FileHandler)
    }
    if name not in known:
        raise ConfigValueError(f"file_handler_cfg: unknown handler '{name}'; {did_you_mean(str(name), known)}")
    if name in ("FileHandler", "BaseRotatingHandler"):
        parameters.setdefault("mode", mode)
    handler: logging.Handler = construct(known[name], {"filename": path, "encoding": "utf-8", **parameters}, name)
    return handler


not_included(globals(), "FilterDuplicateWarning")
