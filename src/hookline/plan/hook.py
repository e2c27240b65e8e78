"""BaseHook, the base class of everything that plugs into a loop, with its priority and its frequency.

`hookline.Hook` is the one whose `self.runner` is a Runner: see `hookline.runner.hook`.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sized
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from hookline.errors import HookError, did_you_mean
from hookline.plan.points import POINTS

if TYPE_CHECKING:
    from hookline.common.monitor import BestCheckpoint
    from hookline.plan.milestones import Milestone
    from hookline.plan.modules import Watch

F = TypeVar("F", bound=Callable[..., Any])
#: The owner of a loop, as its hooks see it: the Runner, or a trainer of a dialect.
HostT = TypeVar("HostT")


class Priority(IntEnum):
    """The named priorities. Lower runs first. Any other int from 0 to 100 is valid, too."""

    HIGHEST = 0
    VERY_HIGH = 10
    HIGH = 30
    ABOVE_NORMAL = 40
    NORMAL = 50
    BELOW_NORMAL = 60
    LOW = 70
    VERY_LOW = 90
    LOWEST = 100

    @classmethod
    def parse(cls, value: Any) -> int:
        """Return the number of a priority, given as a name in any case, a number or a member.

        >>> Priority.parse("very_low"), Priority.parse(55), Priority.parse(Priority.HIGH)
        (90, 55, 30)
        """
        if isinstance(value, str):
            if value.upper() in cls.__members__:
                return cls[value.upper()].value
            raise HookError(f"unknown priority '{value}'; {did_you_mean(value, cls.__members__)}")
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= 100:
                return int(value)
            raise HookError(f"the priority {value} is outside 0..100; 0 runs first, NORMAL is 50, LOWEST is 100")
        raise HookError(f"a priority must be a name like 'LOW' or an int from 0 to 100, not {value!r}")

    @classmethod
    def label(cls, value: int) -> str:
        """Return `LOW (70)`, or only the number if it has no name."""
        return f"{cls(value).name} ({value})" if value in cls._value2member_map_ else str(value)


class Every:
    """A frequency: every n units of the point's counter, or, at any point, every n epochs (`"2ep"`)."""

    __slots__ = ("by_epoch", "n")

    def __init__(self, often: int | str) -> None:
        match = re.fullmatch(r"([0-9]+)ep", often) if isinstance(often, str) else None
        number = int(match[1]) if match else often
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise HookError(f"every={often!r} is not a valid frequency; use a positive int, or epochs such as '2ep'")
        self.n = number
        self.by_epoch = match is not None

    def __str__(self) -> str:
        return f"every {self.n} epochs" if self.by_epoch else f"every {self.n}"


def every(often: int | str) -> Callable[[F], F]:
    """Run a hook's method only every n times: `@every(10)`, or every second epoch: `@every("2ep")`.

    The unit depends on the point: iterations at `after_train_iter`, epochs at `after_train_epoch`, validations at
    `after_val_epoch`. With `"2ep"`, a method at an iteration point runs in the last iteration of every second epoch.
    """
    frequency = Every(often)

    def mark(method: F) -> F:
        method.__hookline_every__ = frequency  # type: ignore[attr-defined]  # a mark on the function, read by the plan
        return method

    return mark


def not_a_point(method: F) -> F:
    """Mark a helper whose name only looks like a point, so that it is not refused as a misspelled one."""
    method.__hookline_helper__ = True  # type: ignore[attr-defined]  # a mark on the function, read by the plan
    return method


class Progress(Protocol):
    """The counters of a run that the helpers of a hook look at."""

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""

    @property
    def max_epochs(self) -> int | None:
        """Return the total number of epochs; None when training by iterations."""

    @property
    def max_iters(self) -> int | None:
        """Return how many iterations there will be, if that is known."""


class BaseHook(Generic[HostT]):
    """A hook of any loop. `HostT` is the type of `self.runner`, and of the `runner` that its methods get."""

    #: The place in the order: a name of `Priority` in any case, or an int from 0 to 100. Lower runs first.
    priority: ClassVar[str | int] = "NORMAL"
    #: Hooks (names or classes) that this hook runs after, or before, at every point.
    runs_after: ClassVar[tuple[str | type, ...]] = ()
    runs_before: ClassVar[tuple[str | type, ...]] = ()
    #: An observer only looks at the run. It may be configured with `on_error: disable`.
    role: ClassVar[Literal["actor", "observer"]] = "actor"
    #: The random generators are restored after every call of an observer, which takes about 0.1 ms. Set this to False
    #: in an observer that draws no random numbers to save that time.
    draws_random_numbers: ClassVar[bool] = True
    #: The reaction to a failure of this hook: end the run, or, for an observer, continue without it.
    on_error: Literal["raise", "disable"] = "raise"
    #: The share of the training time that this hook may take, such as `5%` or 0.05. More is reported.
    budget: ClassVar[str | float | None] = None
    #: The processes that this hook runs in, if there are several: all of them, or only the main one. A hook of the main
    #: process cannot exchange anything with the others.
    ranks: Literal["all", "main"] = "all"

    #: True if it exchanges something with the other processes, so that it cannot be disabled in one of them alone.
    exchanges: ClassVar[bool] = False
    #: True if every process saves and restores its own state of this hook. By default, all restore the main one's.
    state_per_rank: ClassVar[bool] = False
    #: True if it steps the schedulers of the optims. A run with schedulers and without such a hook is reported.
    steps_schedulers: ClassVar[bool] = False

    _host: Callable[[], Any] | None = None

    def bind(self, host: object) -> None:
        """Set the runner of this hook (any host of a plan). The reference is weak: a hook never keeps a run alive."""
        try:
            self._host = weakref.ref(host)
        except TypeError:  # a host that does not support weak references
            self._host = lambda: host

    @property
    def runner(self) -> HostT:
        """Return the runner that this hook is registered with."""
        host = self._host() if self._host is not None else None
        if host is None:
            state = "is not registered with a runner yet" if self._host is None else "has outlived its runner"
            raise HookError(f"{type(self).__name__} {state}, so it has no self.runner")
        return host  # type: ignore[no-any-return]  # a weak reference to whatever host it was bound to

    @runner.setter
    def runner(self, value: object) -> None:
        raise HookError(
            f"{type(self).__name__}: self.runner and self.trainer cannot be set: hookline sets both when the hook is "
            "registered; remove the line, or use another name"
        )

    trainer = runner

    def how_often(self) -> Mapping[str, int | str]:
        """Return frequencies that depend on parameters, by point: `{"after_train_iter": self.interval}`.

        For a fixed frequency, use `@every` instead.
        """
        return {}

    def watches(self) -> Iterable[Watch]:
        """Return watches of modules that depend on parameters: `[Watch(self.modules, "forward", self._see, every=10)]`.

        For a fixed pattern, use `@on_module` instead.
        """
        return ()

    def must_reach(self, runner: HostT) -> Iterable[Milestone] | None:
        """Return the milestones that a run has to reach so that this hook does its work; empty if it always does some.

        Before training, a run that reaches none of these is reported. None means that the frequencies of the methods
        (`@every`, `how_often`) show it. A hook with its own counter overrides this:

            def must_reach(self, runner):
                return [Milestone("interval", self.interval, self.interval, "iteration", "nothing is recorded")]
        """
        return None

    def idle_points(self, runner: HostT) -> Iterable[str]:
        """Return the points at which this hook has nothing to do in this run.

        It is called when the run starts. The plan then skips these points, so they cost nothing.
        """
        return ()

    def watched_metrics(self) -> Iterable[str]:
        """Return the names of the validation metrics that this hook needs.

        Before training, one batch of every validation set is tried to check that these metrics exist.
        """
        return ()

    def know_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Receive the metrics of that one batch before training, so that a mistake can be refused early."""

    def checkpoint_folder(self, runner: HostT) -> Path | None:
        """Return the folder that this hook saves checkpoints into; None if it saves none."""
        return None

    def saved_as_best(self, runner: HostT) -> Iterable[BestCheckpoint]:
        """Return the best saves of this hook: one entry per metric, also before the first save.

        The progress display asks for this from another thread.
        """
        return ()

    def when_closed(self, runner: HostT) -> None:
        """Look at the files of a run that has ended, in any way: everything is written and closed.

        A failure here is only a warning.
        """

    #: The folders to copy the logs to when the run has ended; see `hookline.rundir.log_copies`.
    log_copies: Any = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in checkpoints: tensors and plain data. Empty, unless overridden."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        if state:
            raise HookError(f"{type(self).__name__} was saved with a state, but has no load_state_dict to restore it")

    @staticmethod
    def every_n_epochs(runner: Progress, n: int, start: int = 0) -> bool:
        """Return whether the current epoch is `start` or every n-th after it."""
        return n > 0 and runner.epoch + 1 >= start and (runner.epoch + 1 - start) % n == 0

    @staticmethod
    def every_n_train_iters(runner: Progress, n: int, start: int = 0) -> bool:
        """Return whether the current training iteration is `start` or every n-th after it."""
        return n > 0 and runner.iter + 1 >= start and (runner.iter + 1 - start) % n == 0

    @staticmethod
    def every_n_inner_iters(batch_idx: int, n: int) -> bool:
        """Return whether the number of this batch in its epoch, from 1, is a multiple of n."""
        return n > 0 and (batch_idx + 1) % n == 0

    @staticmethod
    def end_of_epoch(dataloader: Sized, batch_idx: int) -> bool:
        """Return whether this batch is the last one of the loader."""
        return batch_idx + 1 == len(dataloader)

    @staticmethod
    def is_last_train_epoch(runner: Progress) -> bool:
        """Return whether this is the last epoch. Training by iterations is one long epoch."""
        return runner.max_epochs is None or runner.epoch + 1 == runner.max_epochs

    @staticmethod
    def is_last_train_iter(runner: Progress) -> bool:
        """Return whether this is the last training iteration."""
        return runner.iter + 1 == runner.max_iters

    def get_triggered_stages(self) -> list[str]:
        """Return the points that this hook has methods for, in the order of the loop."""
        return [name for name in POINTS if callable(getattr(self, name, None))]


#: The attributes that hookline looks up in a hook, besides its points. A misspelled one is refused at registration.
#: Static methods and properties are only for the hook itself.
LOOKED_UP = tuple(
    name
    for name, value in vars(BaseHook).items()
    if not name.startswith("_") and not isinstance(value, (staticmethod, property))
)
