"""The base of schedulers for any optimizer parameter: `lr`, `momentum`, `weight_decay`, ...

Each scheduler computes a group's next value from its current value, in `_value`. So several schedulers can change the
same parameter, one after the other or at the same time. A scheduler acts from `begin` to just before `end`, in epochs
or iterations.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch.optim.lr_scheduler import LRScheduler

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError

INF = int(1e9)

log = logging.getLogger("hookline")


class _ParamScheduler(LRScheduler):
    """The base class of all schedulers. A subclass defines `_value`, or `_get_value` if groups need different formulas.

    Args:
        optimizer: A torch optimizer, or an OptimWrapper.
        param_name: The entry of the parameter groups to schedule.
        begin: The first step at which the scheduler acts.
        end: The scheduler stops before this step.
        last_step: The number of finished steps minus one, to continue a run without a saved state.
        by_epoch: Count steps in epochs instead of iterations.
        verbose: Log every new value.
    """

    #: Parameters besides begin and end that count steps. They are multiplied when epochs are converted to iterations.
    counts_steps: ClassVar[tuple[str, ...]] = ()
    #: True if `step` is also called with the metrics of a validation.
    need_val_args: ClassVar[bool] = False

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        begin: int = 0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        # torch's own constructor is not called: it would schedule `lr` and step immediately.
        self._attach(optimizer, param_name, begin, end, last_step, by_epoch, verbose)
        self._global_step = -1
        self.step()

    def _attach(
        self, optimizer: Any, param_name: str, begin: int, end: int, last_step: int, by_epoch: bool, verbose: bool
    ) -> None:
        who = type(self).__name__
        if not hasattr(optimizer, "param_groups"):
            raise ConfigTypeError(f"{who} needs an optimizer or an OptimWrapper, not a {type(optimizer).__name__}")
        if end <= begin:
            raise ConfigValueError(f"{who}: end must be greater than begin, but begin={begin} and end={end}")
        if not isinstance(last_step, int) or last_step < -1:
            raise ConfigValueError(f"{who}: last_step must be an int of at least -1, not {last_step!r}")
        self.optimizer, self.param_name = optimizer, param_name
        self.begin, self.end, self.by_epoch, self.verbose = begin, end, by_epoch, verbose
        initial = f"initial_{param_name}"
        for number, group in enumerate(optimizer.param_groups):
            if param_name not in group:
                raise ConfigKeyError(f"{who}: parameter group {number} of the optimizer has no '{param_name}'")
            if last_step == -1:
                group.setdefault(initial, group[param_name])
            elif initial not in group:
                raise ConfigKeyError(
                    f"{who}: last_step={last_step} continues an earlier schedule, but parameter group {number} of the "
                    f"optimizer has no '{initial}' from it"
                )
        self.base_values = [group[initial] for group in optimizer.param_groups]
        self.last_step = last_step

    def _value(self, value: float, base: float) -> float:
        """Return a group's new value at step `self.last_step`. `base` is the value before any schedule."""
        raise NotImplementedError(f"{type(self).__name__} must define _value(value, base) or _get_value()")

    def _get_value(self) -> list[float]:
        groups = self.optimizer.param_groups
        return [
            self._value(group[self.param_name], base) for group, base in zip(groups, self.base_values, strict=False)
        ]

    def step(self, metrics: Any = None) -> None:
        """Set the values for the next epoch or iteration."""
        self._global_step += 1
        if self.begin <= self._global_step < self.end:
            self.last_step += 1
            self._set(self._get_value())
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _set(self, values: Sequence[float]) -> None:
        for number, (group, value) in enumerate(zip(self.optimizer.param_groups, values, strict=True)):
            group[self.param_name] = value
            self.print_value(self.verbose, number, value)

    def print_value(self, is_verbose: bool, group: int, value: float) -> None:
        """Log a new value if `is_verbose` is set."""
        if is_verbose:
            log.info("%s: %s of group %d is now %.4e", type(self).__name__, self.param_name, group, value)

    def get_last_value(self) -> list[float]:
        """Return the values of all groups after the last step."""
        return self._last_value

    def get_last_lr(self) -> list[Any]:
        """Return the same values as `get_last_value`, under torch's name."""
        return self._last_value

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes except the optimizer, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        vars(self).update(state_dict)

    @classmethod
    def build_iter_from_epoch(
        cls,
        *args: Any,
        begin: float = 0,
        end: float = INF,
        by_epoch: bool = True,
        epoch_length: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Build a scheduler that counts iterations from settings in epochs."""
        if not by_epoch:
            raise ConfigValueError(
                f"{cls.__name__}: only settings in epochs (by_epoch=True) can be converted to iterations"
            )
        if epoch_length is None or epoch_length <= 0:
            raise ConfigValueError(
                f"{cls.__name__}: epoch_length must be the number of batches in an epoch, not {epoch_length}"
            )
        for name in cls.counts_steps:
            if (value := kwargs.get(name)) is not None:
                several = isinstance(value, (list, tuple))
                kwargs[name] = [each * epoch_length for each in value] if several else value * epoch_length
        kwargs["by_epoch"], kwargs["begin"] = False, int(begin * epoch_length)
        kwargs["end"] = end if end == INF else int(end * epoch_length)
        return cls(*args, **kwargs)


class OneParameter:
    """A mixin, placed before a scheduler class, that fixes its parameter and drops `param_name` from its signature."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        takes = next(each for each in cls.__mro__ if "__init__" in vars(each) and OneParameter not in each.__bases__)
        signature = inspect.signature(vars(takes)["__init__"])
        kept = [each for name, each in signature.parameters.items() if name not in ("self", "param_name")]
        # The signature lets the registry report a wrong parameter in a config before anything is built.
        cls.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
