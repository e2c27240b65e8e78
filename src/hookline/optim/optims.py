"""Optims: the collection of a run's optims, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from hookline.errors import ConfigError, HooklineError, did_you_mean
from hookline.optim.lengths import Length, known_length, length_of_training
from hookline.optim.optim import Optim
from hookline.optim.schedules import Schedule
from hookline.optim.warmup import Warmup
from hookline.run.handling import Windows

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hookline.optim.scheduled import Scheduled, When
    from hookline.optim.weights import BatchWeights
    from hookline.plan.plan import Plan
    from hookline.strategies import Strategy

#: The name of an optim that was given alone.
SOLE = ""


class Optims(dict[str, Optim], Windows):
    """The optims of a run by name. A single optim has the empty name.

    A step with a parameter named `optim` receives `given`: the Optim, or this collection. For an unknown name, the
    error suggests the closest one.
    """

    @classmethod
    def of(cls, given: Any) -> Optims:
        """Create the collection from an Optim, a torch optimizer, a mapping of either, or None."""
        if given is None:
            return cls()
        if isinstance(given, Optims):
            return given
        if isinstance(given, (Optim, Optimizer)):
            return cls({SOLE: _as_optim(given)})
        optims = given.values() if isinstance(given, Mapping) else ()
        if optims and all(isinstance(optim, (Optim, Optimizer)) for optim in optims):
            return cls({str(name): _as_optim(optim) for name, optim in given.items()})
        found = repr(given) if isinstance(given, (str, int, float, dict)) else f"a {type(given).__name__}"
        raise ConfigError(f"optim must be an Optim, a torch optimizer, or a dict of them, not {found}")

    def __missing__(self, name: str) -> Optim:
        if SOLE in self:
            raise HooklineError(f"unknown optim {name!r}: this run has one optim, without a name; use runner.optim")
        raise HooklineError(f"unknown optim {name!r}; {did_you_mean(str(name), self)}")

    # -- looking

    @property
    def given(self) -> Optim | Optims | None:
        """Return the optims in the form that the user passed: one optim, this collection, or None."""
        sole = self.get(SOLE)  # read in every step of some dialects
        return sole if sole is not None else self or None

    @property
    def are_named(self) -> bool:
        """Return whether the optims have names, so that a step has to choose which one to update."""
        return bool(self) and SOLE not in self

    @property
    def sole(self) -> Optim:
        """Return the optim of a run that has just one."""
        if len(self) != 1:
            raise HooklineError(f"this run has {len(self)} optims, not one; use runner.optim['name']")
        return next(iter(self.values()))

    @property
    def prefixed(self) -> dict[str, Optim]:
        """Return the optims by the prefix of their scalars: `train/`, or `train/<name>/` if they have names."""
        return {f"train/{name}/" if name else "train/": optim for name, optim in self.items()}

    @property
    def updates(self) -> int:
        """Return the number of finished optimizer steps."""
        return sum(optim.updates for optim in self.values())

    @property
    def current_updates(self) -> int:
        """Return the finished steps of the optim that is stepping now. `every` counts them at the points around it.

        If two optims take turns, a total count would let a hook with `every=2` see only one of them.
        """
        return next((optim.updates for optim in self.values() if optim.updating), self.updates)

    @property
    def accumulating(self) -> bool:
        """Return whether an accumulation window is open, so that requests have to wait for its end.

        The windows of several optims may never all be closed at once. A checkpoint then contains the open ones.
        """
        return len(self) == 1 and next(iter(self.values())).micro > 0

    # -- the run

    def attach(
        self,
        plan: Plan,
        precision: str,
        device: torch.device,
        unit: When,
        left: Callable[[], int | None],
        strategy: Strategy,
        wrapped: nn.Module,
        agree_on_skip: Callable[[], None],
        weights: BatchWeights,
    ) -> None:
        """Connect all optims to a run; see `Optim.attach`."""
        for optim in self.values():
            optim.attach(plan, precision, device, unit, left, len(self) > 1, strategy, wrapped, agree_on_skip, weights)

    def start_schedules(self, loop: Length) -> None:
        """Find out the lengths that are `auto`, and apply warmups to the rates of the first step.

        A schedule that has already started stays as it is.
        """
        for optim in self.values():
            for scheduled in optim.schedulers:
                if isinstance(scheduled.scheduler, Schedule) and not scheduled.scheduler.length:
                    scheduled.auto = {"length": _resolve(scheduled, scheduled.scheduler, loop, optim.accumulate)}
            for scheduled in optim.schedulers:
                if isinstance(scheduled.scheduler, Warmup):
                    length = known_length(loop, str(scheduled.when), optim.accumulate)
                    scheduled.scheduler.begin(length, scheduled.unit)

    @contextmanager
    def following_steps(self) -> Iterator[None]:
        """Call the points of a step inside the context wherever code of others steps one of the optimizers."""
        with ExitStack() as following:
            for optim in self.values():
                following.enter_context(optim.following_steps())
            yield

    def end_backward(self) -> None:
        """End the backward passes of a loop of others; see `Optim.end_backward`."""
        for optim in self.values():
            optim.end_backward()

    def open_windows(self) -> None:
        """Note that a loop of others has computed gradients, and has not stepped: requests wait until it does."""
        for optim in self.values():
            optim.micro += any(parameter.grad is not None for parameter in optim.parameters())

    def reset(self) -> None:
        """Discard unfinished windows and their gradients."""
        for optim in self.values():
            optim.reset()

    def drop_stale_gradients(self, own_step: bool) -> None:
        """Drop gradients that a hook left behind outside an iteration: they must not be part of the next update.

        `own_step` is True if the step updates the weights itself. It may then keep gradients for a later iteration,
        unless it uses `Optim.update`, which zeroes them.
        """
        for optim in self.values():
            if optim.updates or not own_step:
                optim.drop_stale_gradients()

    def take_joined(self) -> None:
        """Take in the parameters that a hook has added in this iteration."""
        for optim in self.values():
            optim.take_joined()

    def flush(self) -> None:
        """End all open windows now."""
        for optim in self.values():
            optim.flush()

    def skip(self) -> None:
        """Skip the current batch in all optims."""
        for optim in self.values():
            optim.skip()

    def clear_skip(self) -> None:
        """Clear a skip at the end of its iteration."""
        for optim in self.values():
            optim.forget_skip()

    # -- checkpoints

    def collect(self, state_of: Callable[[Optim], Any]) -> Any:
        """Return a state of each optim in the layout of a checkpoint: the state itself, or states by name."""
        if self.are_named:
            return {name: state_of(optim) for name, optim in self.items()}
        return state_of(self.sole) if self else None

    def share_of(self, name: str, saved: Any) -> Any:
        """Return the part of a saved layout that belongs to one optim."""
        return saved.get(name) if name and isinstance(saved, Mapping) else saved


def _resolve(scheduled: Scheduled, schedule: Schedule, loop: Length, accumulate: int) -> int:
    try:
        length = length_of_training(loop, str(scheduled.when), accumulate)
    except ConfigError as error:
        raise ConfigError(f"{type(schedule).__name__}: length: {error}") from None
    schedule.resolve(length, scheduled.unit)
    return length


def _as_optim(given: Optim | Optimizer) -> Optim:
    return given if isinstance(given, Optim) else Optim(given)
