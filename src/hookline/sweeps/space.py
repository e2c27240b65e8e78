"""The search space: parameters, the values that they can have, and how Optuna and a config write these."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.checks import is_finite
from hookline.common.marks import show
from hookline.common.studies import import_optuna
from hookline.config.overrides import split_path
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

#: The largest int, and the largest number of steps, that a float can hold exactly.
LARGEST = 2**53
#: Keys that a sweep sets in every trial.
OWN_KEYS = ("work_dir", "resume", "experiment_name", "sweep")


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`: ints if both are ints, and only every `step`-th if there is a step."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @property
    def is_int(self) -> bool:
        """Return whether all values are ints."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    def problem(self) -> str:
        """Describe the problem with this range; empty if there is none."""
        for name in ("low", "high", "step"):
            value = getattr(self, name)
            if not is_finite(value) and not (name == "step" and value is None):
                return f"{name} must be a finite number, not {show(value)}"
        if self.low > self.high:
            return f"low is {show(self.low)}, which is above high, {show(self.high)}; write the lower one first"
        if self.is_int and max(-self.low, self.high) > LARGEST:
            return f"an int must be at most {LARGEST:,}, because Optuna stores it as a float"
        if self.log and self.low <= 0:
            return f"a log range must begin above 0, not at {show(self.low)}"
        if self.step is not None and self.step <= 0:
            return f"step must be above 0, not {show(self.step)}"
        if self.step is not None and self.log:
            return "a log range cannot have a step"
        if self.step is not None and (self.high - self.low) / self.step > LARGEST:
            return f"a step of {show(self.step)} is too small for this range; use a larger one, or none"
        return ""

    @property
    def ends(self) -> list[Any]:
        """Return the values to try out before the first trial: the lowest and the highest."""
        return [self.low if self.is_int else float(self.low), self.last]

    @property
    def last(self) -> int | float:
        """Return the highest value: `high`, or the last one that the steps reach."""
        if self.step is None:
            return self.high if self.is_int else float(self.high)
        return self.low + math.floor((self.high - self.low) / self.step + 1e-9) * self.step

    @property
    def count(self) -> int | None:
        """Return the number of values; None if a grid cannot have them, because there are infinitely many."""
        if self.step is not None:
            return math.floor((self.high - self.low) / self.step + 1e-9) + 1
        return int(self.high) - int(self.low) + 1 if self.is_int and not self.log else None

    def nth(self, index: int) -> Any:
        """Return a value of a grid, by its place."""
        return self.low + index * (1 if self.step is None else self.step)

    def distribution(self) -> BaseDistribution:
        """Return Optuna's object for this range."""
        kinds = import_optuna().distributions
        if self.is_int:
            step = 1 if self.step is None else self.step
            made = kinds.IntDistribution(self.low, self.last, log=self.log, step=step)
        else:
            made = kinds.FloatDistribution(float(self.low), float(self.last), log=self.log, step=self.step)
        return made  # type: ignore[no-any-return]  # optuna is Any here

    def value_of(self, label: Any) -> Any:
        """Return the value for a config from Optuna's."""
        return label

    def __str__(self) -> str:
        more = ":log" if self.log else f":{self.step}" if self.step is not None else ""
        return f"{self.low}..{self.last if self.step is not None else self.high}{more}"


@dataclass(frozen=True)
class Choices:
    """A few values of any kind, without an order."""

    values: tuple[Any, ...]

    def problem(self) -> str:
        """Describe the problem with these values; empty if there is none."""
        if not self.values:
            return "values is empty; give at least one"
        for index, value in enumerate(self.values):
            if isinstance(value, float) and not math.isfinite(value):
                return f"a value must be finite, not {show(value)}"
            for other in self.values[:index]:
                if _label(value) == _label(other):
                    same = "is listed twice" if type(value) is type(other) else f"and {text(other)} are the same value"
                    return f"{text(value)} {same}"
        return ""

    @property
    def ends(self) -> list[Any]:
        """Return the values to try out before the first trial: all of them."""
        return list(self.values)

    @property
    def count(self) -> int | None:
        """Return the number of values."""
        return len(self.values)

    def nth(self, index: int) -> Any:
        """Return a value of a grid, by its place, as Optuna has it."""
        return _label(self.values[index])

    def distribution(self) -> BaseDistribution:
        """Return Optuna's object for these values."""
        labels = [_label(value) for value in self.values]
        return import_optuna().distributions.CategoricalDistribution(labels)  # type: ignore[no-any-return]  # optuna is Any here

    def value_of(self, label: Any) -> Any:
        """Return the value for a config from Optuna's."""
        return next(value for value in self.values if _label(value) == label)

    def __str__(self) -> str:
        return ",".join(map(text, self.values))


Values = Range | Choices


def _label(value: Any) -> Any:
    """Return a value as Optuna stores it. It has only scalars, so a list or a mapping becomes its text."""
    return text(value) if isinstance(value, (list, dict)) else value


def text(value: Any) -> str:
    """Return a value in one line, as an override on the command line has it.

    >>> [text(value) for value in (1e-05, "a", "1", True, None, [1, {"a": "b"}])]
    ['1e-05', 'a', '"1"', 'true', 'null', '[1, {"a": "b"}]']
    """
    from hookline.common.yaml_text import reads_as_text

    plain = isinstance(value, str) and value.replace("_", "").isalnum() and reads_as_text(value)
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


class Space(Mapping[str, Values]):
    """The parameters of a sweep, by their keys in the config."""

    def __init__(self, parameters: Mapping[str, Values]) -> None:
        self._parameters = dict(parameters)

    def __getitem__(self, key: str) -> Values:
        return self._parameters[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def refuse_unusable(self) -> None:
        """Refuse a space without parameters, with invalid ones, or with two that overlap."""
        if not self:
            raise ConfigError(
                "the search space is empty; give at least one range or list, such as optim.optimizer.lr=1e-4..1e-1:log "
                "or model.width=32,64,128, or a 'sweep: {space: ...}' section in the config"
            )
        for key, values in self.items():
            if problem := values.problem():
                raise ConfigError(f"the search space, {key}: {problem}")
            if key.partition(".")[0] in OWN_KEYS:
                raise ConfigError(f"the search space, {key}: a sweep sets '{key.partition('.')[0]}' itself")
        for key, other in ((key, other) for key in self for other in self if key != other):
            if keys_of(other)[: len(keys_of(key))] == keys_of(key):
                raise ConfigError(f"the search space, {key}: it contains {other}, which has its own values; remove one")

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return Optuna's objects."""
        return {key: values.distribution() for key, values in self.items()}

    def overrides(self, labels: Mapping[str, Any]) -> list[str]:
        """Return the values of a trial as overrides of the config."""
        return [f"{key}={text(values.value_of(labels[key]))}" for key, values in self.items() if key in labels]

    def first(self) -> list[str]:
        """Return the overrides with the first value of every parameter."""
        return [f"{key}={text(values.ends[0])}" for key, values in self.items()]

    def corners(self) -> Iterator[list[str]]:
        """Yield overrides with which every parameter has its ends, or all its values, once."""
        yield self.first()
        for key, values in self.items():
            for value in values.ends[1:]:
                yield [*self.first(), f"{key}={text(value)}"]

    @property
    def combinations(self) -> int:
        """Return the number of combinations of all values. A range without steps is refused."""
        endless = [key for key, values in self.items() if values.count is None]
        if endless:
            raise ConfigError(
                f"--sampler grid needs a list or a step for every parameter, but {endless[0]} is the range "
                f"{self[endless[0]]}; write values such as {endless[0]}=0.001,0.01,0.1"
            )
        return math.prod(values.count or 0 for values in self.values())

    def combination(self, number: int) -> dict[str, Any]:
        """Return a combination by its number, as Optuna has the values. The last parameter changes fastest."""
        chosen = {}
        for key, values in reversed([*self.items()]):
            number, index = divmod(number, values.count or 1)
            chosen[key] = values.nth(index)
        return {key: chosen[key] for key in self}

    def description(self) -> dict[str, str]:
        """Return the space as text, to be compared with the space of an earlier start."""
        return {key: str(values) for key, values in self.items()}


def keys_of(key: str) -> tuple[str, ...]:
    """Return the keys of a path, to compare paths: `a[0].b` is `a.0.b`."""
    return tuple(map(str, split_path(key) or (key,)))
