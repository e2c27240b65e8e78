"""PeriodicLogger: periodic records by several loggers."""

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
    """Makes its loggers write a record every `log_config_period` iterations.

    When training by epochs, the count starts again in every epoch. When training by iterations, there is also a record
    after the last iteration.

    Args:
        loggers: Objects with `write()` and `close()`, or dicts with `type`.
        log_config_period: The number of iterations between two records. `log_config.period` of the engine's config
            overrides it.
    """

    _cleans_up = False

    def __init__(self, loggers: Iterable[Any], log_config_period: int | None = None) -> None:
        if log_config_period is not None:
            check_int("PeriodicLogger: log_config_period", log_config_period, least=1)
        self.loggers = [build_hook(logger) for logger in loggers]
        for logger in self.loggers:
            if not callable(getattr(logger, "write", None)):
                raise HookError(f"PeriodicLogger: {type(logger).__name__} is not a logger: it has no write()")
        self._period = log_config_period

    def _prepare(self, parts: Parts) -> None:
        for logger in self.loggers:
            if isinstance(logger, HookBase):
                logger.trainer = self.trainer
                logger._prepare(parts)

    def before_train(self) -> None:
        """Call `before_train` of the loggers."""
        for logger in self.loggers:
            if isinstance(logger, HookBase):
                logger.before_train()

    def after_train_iter(self) -> None:
        """Write a record if one is due."""
        trainer = self.trainer
        if record_is_due(trainer, self._period):
            write_all(trainer, self.loggers)

    def after_train(self) -> None:
        """Close the loggers."""
        for logger in self.loggers:
            if callable(getattr(logger, "close", None)):
                logger.close()
        self.trainer.log_buffer.clock += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the loggers."""
        return {"loggers": [each.state_dict() if hasattr(each, "state_dict") else {} for each in self.loggers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the states of the loggers, in order. Extra states or loggers are ignored."""
        for logger, saved in zip(self.loggers, state["loggers"], strict=False):
            if saved and hasattr(logger, "load_state_dict"):
                logger.load_state_dict(saved)
