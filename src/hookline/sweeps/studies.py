"""A study of a sweep: its settings, which must not change when it is continued, and its trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import studies
from hookline.common.environment import hidden_in
from hookline.common.marks import dotted, show
from hookline.config.validation import flatten
from hookline.errors import ConfigError
from hookline.sweeps.samplers import make_sampler

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from hookline.common.monitor import Monitor
    from hookline.config.loading import LoadedConfig
    from hookline.sweeps.space import Space

Direction = Literal["maximize", "minimize"]

#: The attribute of a study with its settings, and the attributes of a trial: the folder of the study in which it was
#: started, why it failed, how many processes ended without progress, and how long its processes have taken.
SETTINGS, HOME, REASON, ATTEMPTS, SECONDS = "hookline", "home", "reason", "attempts", "seconds"

_ABSENT = object()

#: Keys of a config that a machine may set in its own way without making results incomparable.
OF_THE_MACHINE = ("device", "num_workers", "pin_memory", "persistent_workers", "work_dir", "experiment_name", "resume")


@dataclass(frozen=True)
class Settings:
    """Everything that a sweep was asked to do, checked and complete."""

    study: str
    #: The folder of the study. Trial n is the run in `<folder>/<n>`.
    folder: Path
    storage: str
    #: As in the records of a run: `val/accuracy`.
    metric: str
    monitor: Monitor
    space: Space
    trials: int
    #: The config without the values of the space, and the words that load it: the file, then overrides.
    config: LoadedConfig
    words: tuple[str, ...]
    allow: tuple[str, ...] = ()
    sampler: str = "tpe"
    pruner: str = "median"
    seed: int = 0
    jobs: int = 1
    grace: float = 60.0
    #: The attributes that the study records besides its trials.
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @property
    def direction(self) -> Direction:
        """Return Optuna's word for the rule of the metric."""
        return "maximize" if self.monitor.rule == "greater" else "minimize"

    @property
    def total(self) -> int:
        """Return the number of trials: a grid may have fewer combinations."""
        return min(self.trials, self.space.combinations) if self.sampler == "grid" else self.trials

    def folder_of(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.folder / str(number)


def read_settings(study: Study | None, name: str) -> dict[str, Any] | None:
    """Return the attributes that an existing study records; None if there is no study yet."""
    if study is None:
        return None
    settings = study.user_attrs.get(SETTINGS)
    if isinstance(settings, dict):
        return settings
    if study.get_trials(deepcopy=False):
        raise ConfigError(
            f"the study '{name}' exists, but was not created by hookline sweep; choose another name: --study NAME"
        )
    return None


def describe(metric: str, direction: str, space: Space, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a study as plain data."""
    values = {dotted(keys): value for keys, value in flatten(hidden_in(config), ()) if keys and keys[0] != "sweep"}
    searched = set(space)
    fixed = {key: value for key, value in values.items() if not any(_is_below(key, name) for name in searched)}
    return {"metric": metric, "direction": direction, "space": space.description(), "config": fixed}


def _is_below(key: str, name: str) -> bool:
    return key == name or key.startswith((f"{name}.", f"{name}["))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between the settings of a study and the settings of this sweep, one line each."""
    changes = [
        f"the {name} was '{before.get(name)}' and is now '{now[name]}'"
        for name in ("metric", "direction")
        if before.get(name) != now[name]
    ]
    searched = {*before.get("space", ()), *now["space"]}
    for title in ("space", "config"):
        old, new = before.get(title) or {}, now[title]
        for key in dict.fromkeys((*old, *new)):
            if old.get(key, _ABSENT) == new.get(key, _ABSENT):
                continue
            if title == "config" and (
                _may_differ(key, old.get(key, "/"), new.get(key, "/")) or any(_is_below(key, name) for name in searched)
            ):
                continue
            where = f"the search space of {key}" if title == "space" else key
            changes.append(f"{where} was {_shown(old, key, title)} and is now {_shown(new, key, title)}")
    return changes


def _shown(values: Mapping[str, Any], key: str, title: str) -> str:
    if key not in values:
        return "absent"
    return str(values[key]) if title == "space" else show(values[key])


def _may_differ(key: str, old: Any, new: Any) -> bool:
    """Return whether a value only says where something is, so that it does not change the results."""
    if key.rpartition(".")[2] in OF_THE_MACHINE or key.startswith("writers"):
        return True
    return all(isinstance(value, str) and "/" in value for value in (old, new))


def open_study(settings: Settings, storage: Any) -> Study:
    """Create the study, or continue it if it has the same settings."""
    optuna = studies.import_optuna()
    with studies.study_errors(settings.storage):
        study: Study = optuna.create_study(
            study_name=settings.study,
            storage=storage,
            direction=settings.direction,
            sampler=make_sampler(settings.sampler, settings.space, settings.seed),
            pruner=studies.make_pruner(settings.pruner),
            load_if_exists=True,
        )
        before = read_settings(study, settings.study)
        now = dict(settings.recorded)
        if before is not None and (changes := differences(before, now)):
            compared = [*study.get_trials(deepcopy=False, states=_results())]
            same_study = before["metric"] == now["metric"] and before["direction"] == now["direction"]
            if compared or not same_study or before["space"] != now["space"]:
                listed = "\n".join(f"  {line}" for line in changes)
                raise ConfigError(
                    f"the study '{settings.study}' was begun with other settings, so its trials cannot be compared:\n"
                    f"{listed}\n  to begin another study, add --study NAME"
                )
        if before != now:
            study.set_user_attr(SETTINGS, now)
    return study


def _results() -> tuple[Any, ...]:
    states = studies.import_optuna().trial.TrialState
    return (states.COMPLETE, states.PRUNED)


def best_value(trial: FrozenTrial, monitor: Monitor) -> float | None:
    """Return the best value of all validations of a trial; None without a finite one."""
    best: float | None = None
    for value in trial.intermediate_values.values():
        if math.isfinite(value) and monitor.better(value, best):
            best = value
    return best
