"""The 1cycle policy: rise to a maximum, then decay far below the starting value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import _ParamScheduler


class OneCycleParamScheduler(_ParamScheduler):
    """Rises to `eta_max` and then decays. It sets the learning rate directly, regardless of other schedulers.

    Args:
        eta_max: The maximum, one for all groups or one per group.
        total_steps: The length of the cycle. Defaults to `end - begin`.
        pct_start: The fraction of the cycle in which the value rises.
        anneal_strategy: `cos` or `linear`.
        div_factor: The maximum divided by the starting value.
        final_div_factor: The starting value divided by the final value.
        three_phase: Decay to the starting value first, as fast as the rise, and then to the final value.
    """

    counts_steps = ("total_steps",)

    def _configure(
        self,
        eta_max: float | Sequence[float] = 0,
        total_steps: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if self.param_name != "lr":
            raise ConfigValueError(f"OneCycle only schedules the learning rate, 'lr', not '{self.param_name}'")
        if total_steps is not None and (not isinstance(total_steps, int) or total_steps <= 0):
            raise ConfigValueError(f"OneCycle: total_steps must be an int greater than 0, not {total_steps!r}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ConfigValueError(f"OneCycle: pct_start must be a float between 0 and 1, not {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ConfigValueError(f"OneCycle: anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        self.eta_max, self.div_factor, self.final_div_factor = eta_max, div_factor, final_div_factor
        self.anneal_strategy = anneal_strategy
        self.total_steps = self.end - self.begin if total_steps is None else total_steps
        self.phases = self._phases(pct_start, three_phase)
        if self.last_step == -1:
            self._set_group_limits()

    def _phases(self, pct_start: float, three_phase: bool) -> list[tuple[float, str, str]]:
        """Return the last step of each phase, and the group entries that it leads from and to."""
        top, end = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        if not three_phase:
            return [(top, "initial_lr", "max_lr"), (end, "max_lr", "min_lr")]
        middle = float(2 * pct_start * self.total_steps) - 2
        return [(top, "initial_lr", "max_lr"), (middle, "max_lr", "initial_lr"), (end, "initial_lr", "min_lr")]

    def _set_group_limits(self) -> None:
        groups = self.optimizer.param_groups
        maxima = self.eta_max if isinstance(self.eta_max, (list, tuple)) else [self.eta_max] * len(groups)
        if len(maxima) != len(groups):
            raise ConfigValueError(f"OneCycle: eta_max has {len(maxima)} values for {len(groups)} parameter groups")
        for group, maximum in zip(groups, maxima, strict=True):
            group["initial_lr"] = maximum / self.div_factor
            group["max_lr"] = maximum
            group["min_lr"] = group["initial_lr"] / self.final_div_factor

    def reached_after(self, steps: int) -> int:
        """Return the step at which the cycle is after this many more calls of `step`."""
        last = min(self._global_step + steps, self.end - 1)
        return self.last_step + max(last - max(self._global_step, self.begin - 1), 0)

    def _get_value(self) -> list[float]:
        if self.last_step > self.total_steps:
            raise ConfigValueError(
                f"OneCycle: step {self.last_step + 1} is past the end of a cycle of {self.total_steps} steps"
            )
        ends = [end for end, _, _ in self.phases[:-1]]  # the last phase continues if there are more steps
        phase = next((number for number, end in enumerate(ends) if self.last_step <= end), len(ends))
        begin = ends[phase - 1] if phase else 0
        end, start_key, end_key = self.phases[phase]
        part = (self.last_step - begin) / (end - begin) if end != begin else 1.0
        return [self._anneal(group[start_key], group[end_key], part) for group in self.optimizer.param_groups]

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
