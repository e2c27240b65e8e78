"""LoggerHook with MMEngine's parameters. The run's LogProcessor decides how numbers are shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.hooks import logger
from hookline.record.smoothing import Smoothing, rules_of

SUFFIX_TYPE = Sequence[str] | str
#: The suffixes that the original copies. hookline's own log files have other suffixes, which are added to these.
USUAL_SUFFIXES = (".json", ".log", ".py", "yaml")


@with_original_signatures
class LoggerHook(logger.LoggerHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Sends records to the writers of the run, including the visualizer's backends, and to the terminal.

    For parameters that are not listed here, see hookline's LoggerHook.

    Args:
        file_client_args: Only the local disk is supported.
        log_metric_by_epoch: Use the number of finished epochs as the step of validation and test records.
        backend_args: Only the local disk is supported.
    """

    priority = "BELOW_NORMAL"

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        interval_exp_name: int = 1000,
        out_dir: str | None = None,
        out_suffix: Any = USUAL_SUFFIXES,
        keep_local: bool = True,
        file_client_args: dict[str, Any] | None = None,
        log_metric_by_epoch: bool = True,
        backend_args: dict[str, Any] | None = None,
    ) -> None:
        refuse_other_storage("LoggerHook", file_client_args, backend_args)
        _refuse_wrong_types(ignore_last, out_dir, out_suffix)
        suffixes = (out_suffix,) if isinstance(out_suffix, str) else tuple(out_suffix)
        if suffixes == USUAL_SUFFIXES:
            suffixes += (".csv", ".jsonl", ".txt")
        super().__init__(interval, ignore_last, interval_exp_name, out_dir, suffixes, keep_local, log_metric_by_epoch)

    def before_train(self, runner: Any) -> None:
        """Apply the settings of the LogProcessor."""
        self._apply_log_processor(runner)
        super().before_train(runner)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Write the record of a validation."""
        self._apply_log_processor(runner)
        super().after_val_epoch(runner, metrics or {})

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Write the record of a test."""
        self._apply_log_processor(runner)
        super().after_test_epoch(runner, metrics or {})

    def _apply_log_processor(self, runner: Any) -> None:
        rules = rules_of(runner.log_processor.rules(), "LogProcessor")
        if rules != self.smoothing.rules:
            self.smoothing = Smoothing(rules)
            self.num_digits = runner.log_processor.num_digits

    def idle_points(self, runner: Any) -> list[str]:
        """Return the points at which there is nothing to do in this run."""
        self._apply_log_processor(runner)
        return super().idle_points(runner)


def _refuse_wrong_types(ignore_last: Any, out_dir: Any, out_suffix: Any) -> None:
    if not isinstance(ignore_last, bool):
        raise ConfigTypeError(f"LoggerHook: ignore_last must be True or False, not {ignore_last!r}")
    if out_dir is not None and not isinstance(out_dir, (str, os.PathLike)):
        raise ConfigTypeError(f"LoggerHook: out_dir must be the path of a folder, not {out_dir!r}")
    suffixes = out_suffix if isinstance(out_suffix, (list, tuple)) else (out_suffix,)
    if not all(isinstance(each, str) for each in suffixes):
        raise ConfigTypeError(f"LoggerHook: out_suffix must be a suffix or several, not {out_suffix!r}")
