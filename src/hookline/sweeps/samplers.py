"""Which values the next trial has. The choice depends on the seed and on the number of the trial alone.

A sweep that was killed, and several sweeps on one study, therefore never choose the same values again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hookline.common.studies import import_optuna

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from hookline.sweeps.space import Space

SAMPLERS = ("tpe", "random", "grid")


def make_sampler(name: str, space: Space, seed: int) -> BaseSampler:
    """Return a sampler by its name in `SAMPLERS`."""
    samplers = import_optuna().samplers
    if name == "grid":
        return _grid_sampler(space)
    if name == "random":
        return _seeded(lambda number: samplers.RandomSampler(seed=_mix(seed, number)))
    return _seeded(lambda number: samplers.TPESampler(seed=_mix(seed, number), constant_liar=True))


def _mix(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _seeded(make: Callable[[int], Any]) -> BaseSampler:
    """Return a sampler that asks another one, which is made for each trial."""
    base: Any = import_optuna().samplers.BaseSampler

    class Seeded(base):  # type: ignore[misc]  # Optuna is imported only here
        """Asks a sampler that is made for the number of the trial."""

        def __init__(self) -> None:
            self._inner = make(0)

        def before_trial(self, study: Any, trial: Any) -> None:
            """Make the sampler of a trial."""
            self._inner = make(trial.number)
            self._inner.before_trial(study, trial)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            """Ask the sampler of this trial."""
            return self._inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            """Ask the sampler of this trial."""
            return self._inner.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            """Ask the sampler of this trial."""
            return self._inner.sample_independent(study, trial, param_name, param_distribution)

    return Seeded()


def _grid_sampler(space: Space) -> BaseSampler:
    """Return a sampler that gives trial n the n-th combination of all values.

    Optuna's own asks which combinations are left, which two processes may do at the same time.
    """
    base: Any = import_optuna().samplers.BaseSampler
    size = space.combinations

    class Grid(base):  # type: ignore[misc]  # Optuna is imported only here
        """Gives trial n the n-th combination."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            """Choose the parameters together."""
            return space.distributions()

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            """Return the combination of this trial."""
            return space.combination(trial.number % size)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            """Return one value of the combination of this trial."""
            return space.combination(trial.number % size)[param_name]

    return Grid()
