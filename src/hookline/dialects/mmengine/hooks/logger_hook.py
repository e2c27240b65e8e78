"""LoggerHook with MMEngine's parameters; how numbers are shown comes from the run's LogProcessor."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.hooks import logger
from hookline.record.smoothing import Smoothing, rules_of

#: What the original copies; hookline's own files end otherwise, too.
USUAL_SUFFIXES = (".json", ".log", ".py", "yaml")


@as_in_the_original
class LoggerHook(logger.LoggerHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Hands what is due to the writers of the run, the visualizer's backends among them, and to the terminal.

    Args:
        interval: Every how many iterations of an epoch.
        ignore_last: Leave the last iterations of an epoch out when they are fewer than `interval`.
        interval_exp_name: Every how many iterations the log says the name of the experiment.
        out_dir: Where to copy the logs when the run ends.
        out_suffix: What the names of the files to copy end with.
        keep_local: Keep the logs in the run's folder, too.
        file_client_args: Other storage than the disk is not offered.
        log_metric_by_epoch: The step of a validation's or test's record is the number of finished epochs.
        backend_args: Other storage than the disk is not offered.
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
        suffixes = (out_suffix,) if isinstance(out_suffix, str) else tuple(out_suffix)
        if suffixes == USUAL_SUFFIXES:
            suffixes += (".csv", ".jsonl", ".txt")
        super().__init__(interval, ignore_last, interval_exp_name, out_dir, suffixes, keep_local, log_metric_by_epoch)

    def before_train(self, runner: Any) -> None:
        """The LogProcessor says how numbers are shown."""
        self._follow(runner)
        super().before_train(runner)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """The record of a validation."""
        self._follow(runner)
        super().after_val_epoch(runner)

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """The record of a test."""
        self._follow(runner)
        super().after_test_epoch(runner)

    def _follow(self, runner: Any) -> None:
        rules = rules_of(runner.log_processor.rules(), "LogProcessor")
        if rules != self.smoothing.rules:
            self.smoothing = Smoothing(rules)
            self.num_digits = runner.log_processor.num_digits

    def idle_points(self, runner: Any) -> list[str]:
        """The end of an epoch, unless a window ends with it."""
        self._follow(runner)
        return super().idle_points(runner)
