"""The length of a training in the units of schedulers: what `auto` and a share of the run stand for."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from hookline.common.checks import is_finite
from hookline.common.numbers import as_repr
from hookline.errors import ConfigError

#: A length that is found out when the training is known.
AUTO: Literal["auto"] = "auto"

#: What a scheduler steps after, in words.
UNITS = {"epoch": "epoch", "iter": "iteration", "step": "optimizer step", "val": "validation"}


class Length(Protocol):
    """The length of a training, as far as it is known. A TrainLoop has it."""

    @property
    def by_epoch(self) -> bool:
        """Return whether training is counted in epochs."""

    @property
    def max_epochs(self) -> int | None:
        """Return the number of epochs, if training is counted in epochs."""

    @property
    def max_iters(self) -> int | None:
        """Return the number of iterations, if training is counted in iterations."""

    @property
    def length(self) -> int | None:
        """Return the number of batches of a pass."""

    @property
    def total_iters(self) -> int | None:
        """Return the number of iterations of the whole training."""

    @property
    def total_passes(self) -> int | None:
        """Return the number of passes over the data of the whole training."""

    def updates(self, accumulate: int) -> int | None:
        """Return the number of accumulation windows of the whole training."""

    @property
    def planned(self) -> Length:
        """Return the length without the limits of a dry run."""


def default_when(loop: Length, scheduler: object) -> str:
    """Return when a scheduler (or its class) steps if nobody says so: its own default, or the unit of the loop."""
    return getattr(scheduler, "default_when", None) or ("epoch" if loop.by_epoch else "iter")


def length_of_training(loop: Length, when: str, accumulate: int) -> int:
    """Return how often a scheduler steps in the whole training. Refuse it if that is unknown."""
    if when == "val":
        raise ConfigError("'auto' is not available for a scheduler that steps at 'val'; set a number")
    length = known_length(loop, when, accumulate)
    if not length:
        raise ConfigError("'auto' needs the length of the loader, which has none; set a number")
    return length


def known_length(loop: Length, when: str, accumulate: int) -> int | None:
    """Return how often a scheduler steps in the whole training; None if that is unknown.

    In a dry run, this is the length of the real run. Optimizer steps are counted as if no batch was skipped.
    """
    loop = loop.planned
    if when == "val":
        return None
    if when == "epoch":
        return loop.total_passes
    if when == "iter":
        return loop.total_iters
    return loop.updates(accumulate)


def check_share(label: str, value: Any) -> None:
    """Refuse what is neither a number of steps, an int, nor a share of the run, a float below 1."""
    if isinstance(value, float) and is_finite(value) and value >= 1:
        raise ConfigError(
            f"{label} is {as_repr(value)}, which is neither a share of the run, a number below 1 such as 0.05, nor a "
            f"number of steps, an int such as {round(value)}; write one of these"
        )
    if isinstance(value, bool) or not is_finite(value) or value < 0:
        raise ConfigError(
            f"{label} must be a number of steps, an int of at least 0, or a share of the run, a number below 1, not "
            f"{as_repr(value)}"
        )


def steps_of(label: str, value: float, length: int, unit: str = "step") -> int:
    """Return a number of steps: an int as it is, or a float as a share of the length, of at least one step."""
    check_share(label, value)
    if isinstance(value, float):
        return max(1, round(value * length)) if value else 0
    if value > length:
        hint = "; to count iterations, step at 'iter'" if unit == "epoch" else ""
        raise ConfigError(
            f"{label} is {value:,} {unit}s, but there are only {length:,}; use a lower number, or a share of the run "
            f"such as 0.05, which fits any length{hint}"
        )
    return value
