"""A scheduler that reduces the value when a metric no longer improves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import INF, _ParamScheduler
from hookline.errors import did_you_mean


class ReduceOnPlateauParamScheduler(_ParamScheduler):
    """Multiplies by a factor when a metric has not improved for more than `patience` validations.

    `step()` counts an epoch. `step(metrics)` evaluates a validation.

    Args:
        monitor: The name of the metric.
        rule: `less` or `greater`, whichever is better.
        factor: The factor to multiply by, less than 1.
        patience: The number of validations without an improvement to tolerate.
        threshold: The smallest change that counts as an improvement.
        threshold_rule: Measure the threshold relative to the best value (`rel`) or as an absolute number (`abs`).
        cooldown: The number of validations to ignore after a reduction.
        min_value: The lower limit of the value, one for all groups or one per group.
        eps: Reductions that are not larger than this are skipped.
        begin: The first epoch whose validation counts.
        end: The scheduler stops before this epoch.
        by_epoch: Must be True, because the scheduler follows validations.
    """

    need_val_args = True
    #: The same flag under hookline's own name: a validation calls `step` with all its metrics.
    takes_metrics = True

    def _configure(
        self,
        monitor: str = "loss",
        rule: str = "less",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_rule: str = "rel",
        cooldown: int = 0,
        min_value: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        who = type(self).__name__
        if not self.by_epoch:
            raise ConfigValueError(f"{who} follows validations, so by_epoch must be True")
        if factor >= 1.0:
            raise ConfigValueError(f"{who}: factor must be less than 1, not {factor}")
        if threshold < 0:
            raise ConfigValueError(f"{who}: threshold must be at least 0, not {threshold}")
        if rule not in ("less", "greater"):
            raise ConfigValueError(f"{who}: rule must be 'less' or 'greater', not {rule!r}")
        if threshold_rule not in ("rel", "abs"):
            raise ConfigValueError(f"{who}: threshold_rule must be 'rel' or 'abs', not {threshold_rule!r}")
        self.monitor, self.rule, self.threshold, self.threshold_rule = monitor, rule, threshold, threshold_rule
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.min_values = self._expand_minimum(min_value)
        self.best: float = INF if rule == "less" else -INF
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def _start(self) -> None:
        """Begin with the values as they are."""
        self._global_step = 0
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _expand_minimum(self, given: float | Sequence[float]) -> list[float]:
        groups = self.optimizer.param_groups
        if not isinstance(given, (list, tuple)):
            return [given] * len(groups)  # type: ignore[list-item]  # it is a number
        own = getattr(self.optimizer, "optimizer", self.optimizer).param_groups
        if len(given) != len(own):
            raise ConfigValueError(
                f"{type(self).__name__}: min_value has {len(given)} values for {len(own)} parameter groups"
            )
        return [
            *given,
            *[given[-1]] * (len(groups) - len(own)),
        ]  # a wrapper may have one more group with the base settings

    def step(self, metrics: Any = None) -> None:
        """Count an epoch or, given the metrics of a validation, reduce the value if it is time."""
        if metrics is None:
            self._global_step += 1
            return
        if not isinstance(metrics, Mapping):
            raise ConfigTypeError(f"{type(self).__name__}: metrics must be a dict, not a {type(metrics).__name__}")
        if self.begin <= self._global_step < self.end:
            self.last_step += 1
            if metrics.get(self.monitor) is None:
                raise ConfigKeyError(
                    f"{type(self).__name__} monitors the metric '{self.monitor}', which validation does not report; "
                    f"{did_you_mean(self.monitor, metrics)}"
                )
            self._check_metric(float(metrics[self.monitor]))
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _check_metric(self, metric: float) -> None:
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
