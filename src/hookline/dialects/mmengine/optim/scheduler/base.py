"""The base of schedulers for any optimizer parameter: `lr`, `momentum`, `weight_decay`, ...

Each scheduler computes a group's next value from its current value, in `_value`. So several schedulers can change the
same parameter, one after the other or at the same time. A scheduler acts from `begin` to just before `end`, in epochs
or iterations.
"""

from __future__ import annotations

import inspect
import logging
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch.optim.lr_scheduler import LRScheduler

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError

INF = int(1e9)

log = logging.getLogger("hookline")


#: The parameters that all schedulers have, and their defaults.
COMMON: tuple[str, ...] = ("begin", "end", "last_step", "by_epoch", "verbose")
DEFAULTS = {"begin": 0, "end": INF, "last_step": -1, "by_epoch": True, "verbose": False}


def _signature_with(configure: Callable[..., None], common: Sequence[str]) -> inspect.Signature:
    """Return the signature of a scheduler: the optimizer, its own parameters, and the common ones.

    A keyword-only parameter of its own comes last, as in the original's constructor.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = list(inspect.signature(configure).parameters.values())[1:]
    late = [each.replace(kind=kind) for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]
    first = [inspect.Parameter(name, kind) for name in ("optimizer", "param_name")]
    shared = [inspect.Parameter(name, kind, default=DEFAULTS[name]) for name in common]
    return inspect.Signature([*first, *(each for each in own if each.kind is kind), *shared, *late])


class StepOrder:
    """Notices whether an optimizer steps before its scheduler does."""

    def __init__(self, optimizer: Any) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)
        self._handle: Any = None
        if hasattr(inner, "register_step_post_hook"):
            stepped: list[bool] = []
            self._handle = inner.register_step_post_hook(lambda *_: stepped.append(True))
            self._stepped = stepped

    def ignore(self) -> None:
        """Stop watching. A run knows the order itself: an update may be skipped or accumulated."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def check(self, who: str) -> None:
        """Warn, as torch does, if a scheduler steps before the first step of its optimizer."""
        if self._handle is not None and not self._stepped:
            warnings.warn(
                f"{who}.step() was called before optimizer.step(), or that was replaced; the first value is skipped. "
                "See https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                UserWarning,
                stacklevel=3,
            )
        self.ignore()


#: The order of steps of each scheduler. It is no attribute, because all attributes of a scheduler are its state.
ORDERS: weakref.WeakKeyDictionary[LRScheduler, StepOrder] = weakref.WeakKeyDictionary()


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
    optimizer: Any
    param_name: str
    begin: int
    end: int
    last_step: int
    by_epoch: bool
    verbose: bool
    #: The common parameters, in the order of the constructor.
    common: ClassVar[tuple[str, ...]] = COMMON

    #: The constructor's parameters: `optimizer`, `param_name`, the parameters of `_configure`, and the common ones.
    _parameters: ClassVar[inspect.Signature] = _signature_with(lambda self: None, COMMON)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Derive the constructor's parameters from `_configure`, unless the class has its own constructor."""
        super().__init_subclass__(**kwargs)
        if "_configure" in vars(cls):
            cls._parameters = _signature_with(cls._configure, cls.common)
        own = inspect.signature(vars(cls)["__init__"]) if "__init__" in vars(cls) else None
        shown = cls._parameters if own is None else own.replace(parameters=list(own.parameters.values())[1:])
        cls.__signature__ = shown  # type: ignore[attr-defined]  # the registry checks configs with it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # torch's own constructor is not called: it would schedule `lr` and step immediately.
        given = self._parameters.bind(*args, **kwargs)
        given.apply_defaults()
        vars(self).update({name: given.arguments.pop(name) for name in ("optimizer", "param_name", *COMMON)})
        if not hasattr(self.optimizer, "param_groups"):
            raise ConfigTypeError(
                f"{type(self).__name__} needs an optimizer or an OptimWrapper, not a {type(self.optimizer).__name__}"
            )
        self._configure(**given.arguments)
        self._attach()
        self._start()

    def _configure(self, *args: Any, **kwargs: Any) -> None:
        """Keep the parameters of this kind of scheduler; the common ones are already set. A subclass has more."""

    def _attach(self) -> None:
        """Check the common parameters, and keep the values of the groups before any schedule."""
        who, optimizer, param_name, last_step = type(self).__name__, self.optimizer, self.param_name, self.last_step
        if self.end <= self.begin:
            raise ConfigValueError(f"{who}: end must be greater than begin, but begin={self.begin} and end={self.end}")
        if not isinstance(last_step, int) or last_step < -1:
            raise ConfigValueError(f"{who}: last_step must be an int of at least -1, not {last_step!r}")
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
        ORDERS[self] = StepOrder(optimizer)

    def _start(self) -> None:
        """Set the values of the first epoch or iteration."""
        self._global_step = -1
        self.step()

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
        if self._global_step == 0:
            ORDERS[self].check(type(self).__name__)
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
        takes = next((each for each in cls.__mro__[1:] if "__signature__" in vars(each)), None)
        if takes is not None:
            kept = [each for name, each in inspect.signature(takes).parameters.items() if name != "param_name"]
            # The signature lets the registry report a wrong parameter in a config before anything is built.
            cls.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
