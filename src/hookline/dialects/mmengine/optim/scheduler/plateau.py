"""Less, when a metric no longer gets better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import INF, _ParamScheduler
from hookline.errors import did_you_mean


class ReduceOnPlateauParamScheduler(_ParamScheduler):
    """Multiplies by a factor when a metric has not got better for `patience` validations.

    `step()` counts an epoch, `step(metrics)` looks at a validation.

    Args:
        optimizer: A torch optimizer, or an OptimWrapper.
        param_name: Which entry of the parameter groups is scheduled.
        monitor: The metric.
        rule: Whether `less` or `greater` is better.
        factor: What is multiplied by, below 1.
        patience: How many validations without anything better are let pass.
        threshold: How much better counts.
        threshold_rule: Whether that is a part of the best value (`rel`) or a number (`abs`).
        cooldown: How many validations are let pass after a reduction.
        min_value: What the value does not fall below, for all groups or for each.
        eps: A smaller reduction is not made.
        begin: The first epoch whose validation counts.
        end: The epoch before which it stops.
        last_step: As in all schedulers.
        by_epoch: Only True: it follows validations.
        verbose: As in all schedulers.
    """

    need_val_args = True
    #: The same, for the core: a validation steps it with all its metrics.
    takes_metrics = True

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        monitor: str = "loss",
        rule: str = "less",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_rule: str = "rel",
        cooldown: int = 0,
        min_value: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
        begin: int = 0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        who = type(self).__name__
        if not by_epoch:
            raise ConfigValueError(f"{who} follows validations: by_epoch is True")
        if factor >= 1.0:
            raise ConfigValueError(f"{who}: factor is below 1, not {factor}")
        if threshold < 0:
            raise ConfigValueError(f"{who}: threshold is not below 0, as {threshold} is")
        if rule not in ("less", "greater"):
            raise ConfigValueError(f"{who}: rule is 'less' or 'greater', not {rule!r}")
        if threshold_rule not in ("rel", "abs"):
            raise ConfigValueError(f"{who}: threshold_rule is 'rel' or 'abs', not {threshold_rule!r}")
        self._attach(optimizer, param_name, begin, end, last_step, by_epoch, verbose)
        self.monitor, self.rule, self.threshold, self.threshold_rule = monitor, rule, threshold, threshold_rule
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.min_values = self._minima(min_value)
        self.best: float = INF if rule == "less" else -INF
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._global_step = 0
        self._last_value = [group[self.param_name] for group in optimizer.param_groups]

    def _minima(self, given: float | Sequence[float]) -> list[float]:
        groups = self.optimizer.param_groups
        if not isinstance(given, (list, tuple)):
            return [given] * len(groups)  # type: ignore[list-item]  # it is a number
        own = getattr(self.optimizer, "optimizer", self.optimizer).param_groups
        if len(given) != len(own):
            raise ConfigValueError(
                f"{type(self).__name__}: min_value has {len(given)} values for {len(own)} parameter groups"
            )
        return [*given, *[given[-1]] * (len(groups) - len(own))]  # a wrapper may have one more group, to tell the base

    def step(self, metrics: Any = None) -> None:
        """Count an epoch; or, with the metrics of a validation, see whether it is time for less."""
        if metrics is None:
            self._global_step += 1
            return
        if not isinstance(metrics, Mapping):
            raise ConfigTypeError(f"{type(self).__name__}: metrics are a dict, not a {type(metrics).__name__}")
        if self.begin <= self._global_step < self.end:
            self.last_step += 1
            if metrics.get(self.monitor) is None:
                raise ConfigKeyError(
                    f"{type(self).__name__} follows the metric '{self.monitor}', which validation does not give; "
                    f"{did_you_mean(self.monitor, metrics)}"
                )
            self._look_at(float(metrics[self.monitor]))
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _look_at(self, metric: float) -> None:
        if self._is_better(metric):
            self.best = metric
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._set(self._get_value())
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0

    def _is_better(self, metric: float) -> bool:
        if self.rule == "less":
            return metric < (self.best * (1.0 - self.threshold) if self.threshold_rule == "rel" else self._least_better)
        return metric > (self.best * (self.threshold + 1.0) if self.threshold_rule == "rel" else self._least_better)

    @property
    def _least_better(self) -> float:
        return self.best - self.threshold if self.rule == "less" else self.best + self.threshold

    def _set(self, values: Sequence[float]) -> None:
        for number, (group, value) in enumerate(zip(self.optimizer.param_groups, values, strict=True)):
            if group[self.param_name] - value > self.eps:
                group[self.param_name] = value
                self.print_value(self.verbose, number, value)

    def _get_value(self) -> list[float]:
        groups = self.optimizer.param_groups
        return [
            max(float(group[self.param_name]) * self.factor, least)
            for group, least in zip(groups, self.min_values, strict=True)
        ]
