"""Hook, the base class of everything that plugs into the loop; its priority; how often it runs."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sized
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from hookline.errors import HookError, did_you_mean
from hookline.plan.points import POINTS

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

F = TypeVar("F", bound=Callable[..., Any])


class Priority(IntEnum):
    """Lower runs first. Any int from 0 to 100 is a priority too; these have names."""

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
        """The number of a priority given as a name in any case, a number or a member.

        >>> Priority.parse("very_low"), Priority.parse(55), Priority.parse(Priority.HIGH)
        (90, 55, 30)
        """
        if isinstance(value, str):
            if value.upper() in cls.__members__:
                return cls[value.upper()].value
            raise HookError(f"'{value}' is no priority; {did_you_mean(value, cls.__members__)}")
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= 100:
                return int(value)
            raise HookError(f"the priority {value} is outside 0..100; 0 runs first, NORMAL is 50, LOWEST is 100")
        raise HookError(f"a priority is a name like 'LOW' or an int from 0 to 100, not {value!r}")

    @classmethod
    def label(cls, value: int) -> str:
        """`LOW (70)`, or just the number where it has no name."""
        return f"{cls(value).name} ({value})" if value in cls._value2member_map_ else str(value)


class Every:
    """How often: every n of what a point counts, or every n epochs (`"2ep"`) wherever it stands."""

    __slots__ = ("by_epoch", "n")

    def __init__(self, often: int | str) -> None:
        match = re.fullmatch(r"([0-9]+)ep", often) if isinstance(often, str) else None
        number = int(match[1]) if match else often
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise HookError(f"every={often!r} is not a frequency; give a positive int, or epochs as '2ep'")
        self.n = number
        self.by_epoch = match is not None

    def __str__(self) -> str:
        return f"every {self.n} epochs" if self.by_epoch else f"every {self.n}"


def every(often: int | str) -> Callable[[F], F]:
    """Run a hook's method only every so often: `@every(10)`, or every second epoch: `@every("2ep")`.

    Counted is what the point counts: iterations at `after_train_iter`, epochs at `after_train_epoch`, validations at
    `after_val_epoch`. With `"2ep"` a method at an iteration point runs in the last iteration of every second epoch.
    """
    frequency = Every(often)

    def mark(method: F) -> F:
        method.__hookline_every__ = frequency  # type: ignore[attr-defined]  # a mark on the function, read by the plan
        return method

    return mark


def not_a_point(method: F) -> F:
    """Mark a helper whose name only looks like a point, so that it is not refused as a misspelt one."""
    method.__hookline_helper__ = True  # type: ignore[attr-defined]  # a mark on the function, read by the plan
    return method


#: What hookline looks up in a hook besides its points. A near miss of one of these is refused at registration.
LOOKED_UP = (
    *("priority", "runs_after", "runs_before", "role", "on_error", "draws_random_numbers", "log_copies"),
    *("how_often", "idle_points", "watched_metrics", "know_metrics", "checkpoint_folder"),
    *("state_dict", "load_state_dict"),
)


class Hook:
    """An object whose methods are named after points of the loop (see `hookline.plan.points`).

        class CheckLoss(Hook):
            def after_train_iter(self, runner, outputs):
                if not outputs["loss"].isfinite():
                    runner.stop("the loss is not finite")

    A method takes the runner and, by name, any of the arguments that its point gives; or nothing at all, and then uses
    `self.runner`. `around_<scope>` is a generator with one `yield`. What cannot be right (a misspelt point, an argument
    that the point does not give) is refused when the hook is registered.

    The contract: a point is called in the training process and training waits for it, so a method does little, and
    leaves tensors on their device. A method that raises ends the run, and the error names the hook.
    """

    #: Where in the order: a name of `Priority` in any case, or an int 0..100; lower runs first.
    priority: ClassVar[str | int] = "NORMAL"
    #: Hooks (names or classes) that must have run before this one, or after it, at every point.
    runs_after: ClassVar[tuple[str | type, ...]] = ()
    runs_before: ClassVar[tuple[str | type, ...]] = ()
    #: An observer only looks; it may be configured `on_error: disable`.
    role: ClassVar[Literal["actor", "observer"]] = "actor"
    #: The random generators are put back after every call of an observer, which takes about 0.1 ms. One that draws no
    #: random numbers says so here, and is called as it is.
    draws_random_numbers: ClassVar[bool] = True
    #: What happens when it fails: the run ends, or, for an observer, goes on without it.
    on_error: Literal["raise", "disable"] = "raise"

    _host: Callable[[], Any] | None = None

    def bind(self, host: object) -> None:
        """Give the hook its runner (any host of a plan), weakly: a hook never keeps a run alive."""
        try:
            self._host = weakref.ref(host)
        except TypeError:  # a host of a kind that cannot be referred to weakly
            self._host = lambda: host

    @property
    def runner(self) -> Runner:
        """The runner that this hook is registered with."""
        host = self._host() if self._host is not None else None
        if host is None:
            state = "is not registered with a runner yet" if self._host is None else "has outlived its runner"
            raise HookError(f"{type(self).__name__} {state}, so it has no self.runner")
        return host  # type: ignore[no-any-return]  # a weak reference to whatever host it was bound to

    trainer = runner

    def how_often(self) -> Mapping[str, int | str]:
        """Points whose method runs only every so often, where that is a parameter; `@every` is for what is fixed."""
        return {}

    def idle_points(self, runner: Runner) -> Iterable[str]:
        """Points at which there is nothing to do in this run; asked when it starts, and then they cost nothing."""
        return ()

    def watched_metrics(self) -> Iterable[str]:
        """Names of validation metrics that this hook needs; one dry validation batch checks them before training."""
        return ()

    def know_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Called before training with what that dry batch gave, so that what cannot be right is refused early."""

    def checkpoint_folder(self, runner: Runner) -> Path | None:
        """Return the folder that this hook saves checkpoints into; None if it saves none."""
        return None

    #: Where to copy the logs of the run when it has ended; see `hookline.rundir.log_copies`.
    log_copies: Any = None

    def state_dict(self) -> dict[str, Any]:
        """What to remember across a resume: tensors and plain data. Nothing, unless overridden."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise HookError(f"{type(self).__name__} was saved with a state, but has no load_state_dict to take it")

    @staticmethod
    def every_n_epochs(runner: Runner, n: int, start: int = 0) -> bool:
        """Whether the current epoch is `start`, or every n-th after it."""
        return n > 0 and runner.epoch + 1 >= start and (runner.epoch + 1 - start) % n == 0

    @staticmethod
    def every_n_train_iters(runner: Runner, n: int, start: int = 0) -> bool:
        """Whether the current training iteration is `start`, or every n-th after it."""
        return n > 0 and runner.iter + 1 >= start and (runner.iter + 1 - start) % n == 0

    @staticmethod
    def every_n_inner_iters(batch_idx: int, n: int) -> bool:
        """Whether this batch is every n-th of its epoch."""
        return n > 0 and (batch_idx + 1) % n == 0

    @staticmethod
    def end_of_epoch(dataloader: Sized, batch_idx: int) -> bool:
        """Whether this batch is the last of the loader."""
        return batch_idx + 1 == len(dataloader)

    @staticmethod
    def is_last_train_epoch(runner: Runner) -> bool:
        """Whether no epoch comes after this one; training by iterations is one long epoch."""
        return runner.max_epochs is None or runner.epoch + 1 == runner.max_epochs

    @staticmethod
    def is_last_train_iter(runner: Runner) -> bool:
        """Whether no training iteration comes after this one."""
        return runner.iter + 1 == runner.max_iters

    def get_triggered_stages(self) -> list[str]:
        """The points that this hook has methods for, in the order of the loop."""
        return [name for name in POINTS if callable(getattr(type(self), name, None))]
