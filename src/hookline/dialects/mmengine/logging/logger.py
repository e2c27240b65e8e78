"""MMLogger: a logger whose lines are lines of the run, on the screen and in run.log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.screen.terminal import TerminalHandler

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal


class MMLogger(logging.Logger, ManagerMixin):
    """A logger with a name that it is found by.

    Args:
        name: The name.
        logger_name: What its lines are marked with.
        log_file: A file that gets its lines, too. Those of a run are in `run.log` anyway.
        log_level: The least level that is shown.
        file_mode: How the file is opened.
        distributed: Not needed: only the main process of a run shows lines.
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
        """The file that gets its lines besides run.log."""
        return self._log_file

    def show_in(self, terminal: Terminal) -> None:
        """From now on its lines are lines of a run."""
        self.removeHandler(self._shown)
        self.addHandler(TerminalHandler(terminal))


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Show a message: printed, by the `current` logger, by one of a name or one that is given, or not (`silent`)."""
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif logger == "current":
        MMLogger.get_current_instance().log(level, msg)
    elif isinstance(logger, str) and logger != "silent":
        if not MMLogger.check_instance_created(logger):
            raise ConfigValueError(f"there is no MMLogger '{logger}'; make it with MMLogger.get_instance('{logger}')")
        MMLogger.get_instance(logger).log(level, msg)
    elif logger != "silent":
        raise ConfigTypeError(
            f"a logger is a logging.Logger, the name of one, 'current', 'silent' or None, not {logger!r}"
        )
