"""PeriodicLogger: a record every so often, by every logger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.builder import build_hook
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import record_is_due, write_all
from hookline.errors import HookError

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts


class PeriodicLogger(HookBase):
    """Has its loggers write a record every so many iterations.

    By epochs, the iterations of each are counted; by iterations, there is one after the last, too.

    Args:
        loggers: Objects with `write()` and `close()`, or dicts with `type`.
        log_config_period: Every how many iterations; `log_config.period` of the engine's config beats it.
    """

    _cleans_up = False

    def __init__(self, loggers: Iterable[Any], log_config_period: int | None = None) -> None:
        if log_config_period is not None:
            check_int("PeriodicLogger: log_config_period", log_config_period, least=1)
        self.loggers = [build_hook(logger) for logger in loggers]
        for logger in self.loggers:
            if not callable(getattr(logger, "write", None)):
                raise HookError(f"PeriodicLogger: a {type(logger).__name__} has no write(), so it is no logger")
        self._period = log_config_period

    def _prepare(self, parts: Parts) -> None:
        for logger in self.loggers:
            if isinstance(logger, HookBase):
                logger.trainer = self.trainer
                logger._prepare(parts)

    def before_train(self) -> None:
        """Loggers may have something to begin."""
        for logger in self.loggers:
            if isinstance(logger, HookBase):
                logger.before_train()

    def after_train_iter(self) -> None:
        """A record, when it is due."""
        trainer = self.trainer
        if record_is_due(trainer, self._period):
            write_all(trainer, self.loggers)

    def after_train(self) -> None:
        """Close them."""
        for logger in self.loggers:
            if callable(getattr(logger, "close", None)):
                logger.close()
        self.trainer.log_buffer.clock += 1

    def state_dict(self) -> dict[str, Any]:
        """The states of the loggers."""
        return {"loggers": [each.state_dict() if hasattr(each, "state_dict") else {} for each in self.loggers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give them back, as far as there are as many."""
        for logger, saved in zip(self.loggers, state["loggers"], strict=False):
            if saved and hasattr(logger, "load_state_dict"):
                logger.load_state_dict(saved)
