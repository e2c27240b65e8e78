"""HookBase and its seven levels."""

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
    """Lower runs first. There are these seven, and none between."""

    HIGHEST = 0
    HIGHER = 10
    HIGH = 20
    NORMAL = 30
    LOW = 40
    LOWER = 50
    LOWEST = 60

    @classmethod
    def parse(cls, level: Any, who: str) -> PriorityStatus:
        """A level given as a member, a number or a name in any case; anything else is refused, naming the hook.

        >>> PriorityStatus.parse("high", "MyHook"), PriorityStatus.parse(0, "MyHook")
        (<PriorityStatus.HIGH: 20>, <PriorityStatus.HIGHEST: 0>)
        """
        if isinstance(level, str) and level.upper() in cls.__members__:
            return cls[level.upper()]
        if isinstance(level, int) and not isinstance(level, bool) and level in cls._value2member_map_:
            return cls(level)
        known = ", ".join(f"{name} {member.value}" for name, member in cls.__members__.items())
        hint = f"; {did_you_mean(level, cls.__members__)}" if isinstance(level, str) else ""
        raise HookError(f"{who}: the level {level!r} is none of the seven ({known}){hint}")

    @property
    def priority(self) -> Priority:
        """The native priority of the same name."""
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
    """A hook is used after its engine is gone."""


class HookBase:
    """Six points without arguments, and `self.trainer`: the engine, held weakly.

    A subclass overrides the points that it is for; the others cost nothing. A hook with something to remember across a
    resume has `state_dict()` and `load_state_dict(state)`.

    `after_train` is called when training is over, also when it failed, then for the hooks whose `before_train` was
    done; `self.trainer.exception` tells.
    """

    _level: Any = PriorityStatus.NORMAL
    _trainer: weakref.ref[Any] | None = None
    #: Whether `after_train` has something to do after a failure, too.
    _cleans_up = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class may say its level as a plain attribute."""
        super().__init_subclass__(**kwargs)
        if "level" in vars(cls) and not isinstance(vars(cls)["level"], property):
            cls._level = vars(cls)["level"]
            del cls.level

    def __init__(self) -> None:
        """Nothing to do; a subclass need not call it."""

    def before_train(self) -> None:
        """Before the first epoch or iteration."""

    def after_train(self) -> None:
        """Training is over."""

    def before_train_epoch(self) -> None:
        """Before every epoch; never when training by iterations."""

    def after_train_epoch(self) -> None:
        """After every epoch; never when training by iterations."""

    def before_train_iter(self) -> None:
        """The batch is there."""

    def after_train_iter(self) -> None:
        """The loss is there: `self.trainer.output`. OptimizerHook makes the update here."""

    @property
    def level(self) -> Any:
        """Where in the order; once it is registered, the level that it really has. It is set as any of the forms."""
        return PriorityStatus.parse(self._level, type(self).__name__)

    @level.setter
    def level(self, level: Any) -> None:
        name, new = type(self).__name__, PriorityStatus.parse(level, type(self).__name__)
        if self._trainer is not None and self._trainer() is not None and new is not self.level:
            raise HookError(
                f"{name} is registered with the level {self.level.name} already; give it another one before that, or "
                "in custom_hooks"
            )
        self._level = new

    @property
    def trainer(self) -> Any:
        """The engine that this hook is registered with."""
        if self._trainer is None:
            raise HookError(f"{type(self).__name__} is not registered with an engine yet, so it has no self.trainer")
        engine = self._trainer()
        if engine is None:
            raise OutlivedError(f"{type(self).__name__} has outlived its engine, so it has no self.trainer any more")
        return engine

    @trainer.setter
    def trainer(self, engine: Any) -> None:
        self._trainer = weakref.ref(engine)

    def idle_points(self, runner: Any) -> Iterable[str]:
        """Points that are not overridden; by iterations, the epoch points too: the native loop has them once."""
        idle = [name for name in POINTS if getattr(type(self), name) is getattr(HookBase, name)]
        epochs = ["before_train_epoch", "after_train_epoch"]
        return idle if runner.train_loop.by_epoch else [*idle, *epochs]

    def _prepare(self, parts: Parts) -> None:
        """Say what the run needs for this hook, before it is put together; see `Parts`."""
