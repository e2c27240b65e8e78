"""HookBase, the base class of hooks, and PriorityStatus, its seven levels."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from hookline.errors import HookError, did_you_mean
from hookline.plan.hook import Priority

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts

POINTS = (
    *("before_train", "after_train"),
    *("before_train_epoch", "after_train_epoch"),
    *("before_train_iter", "after_train_iter"),
)


class PriorityStatus(IntEnum):
    """The seven levels. Hooks with a lower number run first. Numbers in between are not allowed."""

    HIGHEST = 0
    HIGHER = 10
    HIGH = 20
    NORMAL = 30
    LOW = 40
    LOWER = 50
    LOWEST = 60

    @classmethod
    def parse(cls, level: Any, who: str) -> PriorityStatus:
        """Return the level for a member, a number, or a name in any case. Refuse anything else, naming the hook `who`.

        >>> PriorityStatus.parse("high", "MyHook"), PriorityStatus.parse(0, "MyHook")
        (<PriorityStatus.HIGH: 20>, <PriorityStatus.HIGHEST: 0>)
        """
        if isinstance(level, str) and level.upper() in cls.__members__:
            return cls[level.upper()]
        if isinstance(level, int) and not isinstance(level, bool) and level in cls._value2member_map_:
            return cls(level)
        known = ", ".join(f"{name} {member.value}" for name, member in cls.__members__.items())
        hint = f"; {did_you_mean(level, cls.__members__)}" if isinstance(level, str) else ""
        raise HookError(f"{who}: unknown level {level!r}; expected one of {known}{hint}")

    @property
    def priority(self) -> Priority:
        """Return the corresponding native priority."""
        return _PRIORITIES[self]


_PRIORITIES = {
    PriorityStatus.HIGHEST: Priority.HIGHEST,
    PriorityStatus.HIGHER: Priority.VERY_HIGH,
    PriorityStatus.HIGH: Priority.HIGH,
    PriorityStatus.NORMAL: Priority.NORMAL,
    PriorityStatus.LOW: Priority.LOW,
    PriorityStatus.LOWER: Priority.VERY_LOW,
    PriorityStatus.LOWEST: Priority.LOWEST,
}


class OutlivedError(HookError, ReferenceError):
    """Raised when a hook is used after its engine is gone."""


class HookBase:
    """The base class of hooks, with six points that take no arguments.

    `self.trainer` is the engine, held by a weak reference. A subclass overrides the points that it needs. The other
    points cost nothing. A hook that must keep state across a resume defines `state_dict()` and
    `load_state_dict(state)`.

    `after_train` is called at the end of training. If training fails, it is also called for every hook whose
    `before_train` has finished, and `self.trainer.exception` is the error.
    """

    _level: Any = PriorityStatus.NORMAL
    _trainer: weakref.ref[Any] | None = None
    #: Whether `after_train` is also called after a failure.
    _cleans_up = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept a level that a class defines as a plain attribute."""
        super().__init_subclass__(**kwargs)
        if "level" in vars(cls) and not isinstance(vars(cls)["level"], property):
            cls._level = vars(cls)["level"]
            del cls.level

    def __init__(self) -> None:
        """Do nothing. A subclass does not have to call it."""

    def before_train(self) -> None:
        """Run before the first epoch or iteration."""

    def after_train(self) -> None:
        """Run after the end of training."""

    def before_train_epoch(self) -> None:
        """Run before every epoch. Not called when training by iterations."""

    def after_train_epoch(self) -> None:
        """Run after every epoch. Not called when training by iterations."""

    def before_train_iter(self) -> None:
        """Run before every iteration, when its batch is loaded."""

    def after_train_iter(self) -> None:
        """Run after every iteration, with its loss in `self.trainer.output`. OptimizerHook updates the weights here."""

    @property
    def level(self) -> Any:
        """Return the level that decides the order. Set it as a member, a number or a name, before registration."""
        return PriorityStatus.parse(self._level, type(self).__name__)

    @level.setter
    def level(self, level: Any) -> None:
        name, new = type(self).__name__, PriorityStatus.parse(level, type(self).__name__)
        if self._trainer is not None and self._trainer() is not None and new is not self.level:
            raise HookError(
                f"{name} is already registered with the level {self.level.name}; set another level before you register "
                "it, or in custom_hooks"
            )
        self._level = new

    @property
    def trainer(self) -> Any:
        """Return a weak proxy of the engine that this hook is registered with."""
        if self._trainer is None:
            raise HookError(f"{type(self).__name__} is not registered with an engine yet, so it has no self.trainer")
        engine = self._trainer()
        if engine is None:
            raise OutlivedError(f"{type(self).__name__} has no self.trainer: its engine was deleted")
        return weakref.proxy(engine)

    @trainer.setter
    def trainer(self, engine: Any) -> None:
        self._trainer = weakref.ref(engine.__setattr__.__self__)  # the engine itself, also of a proxy

    def idle_points(self, runner: Any) -> Iterable[str]:
        """Return the points to skip: those not overridden, and, when training by iterations, the epoch points."""
        idle = [name for name in POINTS if getattr(getattr(self, name), "__func__", None) is getattr(HookBase, name)]
        epochs = ["before_train_epoch", "after_train_epoch"]
        return idle if runner.train_loop.by_epoch else [*idle, *epochs]

    def _prepare(self, parts: Parts) -> None:
        """Set the parts of the run that this hook needs, before the run is built; see `Parts`."""
