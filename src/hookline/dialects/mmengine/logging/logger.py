"""MMLogger: a logger whose lines belong to the run: on the screen and in run.log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.screen.terminal import TerminalHandler

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal


class MMLogger(logging.Logger, ManagerMixin):
    """A logger that can be looked up by name.

    Args:
        name: The name to look it up by.
        logger_name: The name of the `logging.Logger`.
        log_file: An additional file for its lines. The lines of a run are always written to `run.log`.
        log_level: The lowest level that is shown.
        file_mode: The mode to open the file in.
        distributed: Accepted, but has no effect: only the main process of a run shows lines.
    """

    def __init__(
        self,
        name: str,
        logger_name: str = "mmengine",
        log_file: str | None = None,
        log_level: int | str = "INFO",
        file_mode: str = "w",
        distributed: bool = False,
        **kwargs: Any,
    ) -> None:
        logging.Logger.__init__(self, logger_name)
        ManagerMixin.__init__(self, name)
        self._log_file = log_file
        self.setLevel(log_level)
        if log_file is not None:
            self.addHandler(logging.FileHandler(log_file, file_mode, encoding="utf-8"))
        self._shown = logging.StreamHandler()
        self.addHandler(self._shown)

    @property
    def log_file(self) -> str | None:
        """Return the additional file for its lines, besides run.log."""
        return self._log_file

    def show_in(self, terminal: Terminal) -> None:
        """Show its lines as lines of a run from now on."""
        self.removeHandler(self._shown)
        self.addHandler(TerminalHandler(terminal))


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Print a message (None), or log it with the `current` logger, a named or a given one, or not at all (`silent`)."""
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif logger == "current":
        MMLogger.get_current_instance().log(level, msg)
    elif isinstance(logger, str) and logger != "silent":
        if not MMLogger.check_instance_created(logger):
            raise ConfigValueError(f"unknown MMLogger '{logger}'; create it with MMLogger.get_instance('{logger}')")
        MMLogger.get_instance(logger).log(level, msg)
    elif logger != "silent":
        raise ConfigTypeError(
            f"logger must be a logging.Logger, the name of one, 'current', 'silent' or None, not {logger!r}"
        )
