"""The results of a sweep: its trials, best first, and the best config as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common import studies
from hookline.common.environment import written
from hookline.common.files import create_folder, storage_errors, write_text
from hookline.common.numbers import as_number
from hookline.common.yaml_file import dump
from hookline.config.loading import load
from hookline.rundir import origin
from hookline.sweeps.studies import HOME, REASON, SECONDS, Settings, best_value
from hookline.sweeps.trials import Job, overrides_of

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: The order of trials in the table.
STATES = ("complete", "pruned", "unfinished", "failed")
BEST = "best.yaml"


@dataclass(frozen=True)
class Row:
    """One trial."""

    number: int
    state: str
    #: The best value of all validations so far; None without one.
    value: float | None
    params: dict[str, Any]
    #: The same as Optuna has them.
    labels: dict[str, Any]
    #: The time that its processes have taken, in seconds; None if unknown.
    seconds: float | None
    #: The folder of the run; None if it is in another folder of the study, maybe on another machine.
    folder: Path | None
    reason: str = ""


def read_rows(settings: Settings, study: Study, home: str) -> list[Row]:
    """Return the trials: complete ones, pruned ones, unfinished ones, failed ones; in each group the best first."""
    with studies.study_errors(settings.storage):
        trials = study.get_trials(deepcopy=False)
    rows = [_row(settings, trial, home) for trial in trials if trial.number < settings.total]
    sign = -1 if settings.monitor.rule == "greater" else 1

    def order(row: Row) -> tuple[int, bool, float, int]:
        return STATES.index(row.state), row.value is None, sign * (row.value or 0.0), row.number

    return sorted(rows, key=order)


def _row(settings: Settings, trial: FrozenTrial, home: str) -> Row:
    states = studies.import_optuna().trial.TrialState
    names = {states.COMPLETE: "complete", states.PRUNED: "pruned", states.FAIL: "failed"}
    seconds = trial.user_attrs.get(SECONDS)
    return Row(
        trial.number,
        names.get(trial.state, "unfinished"),
        best_value(trial, settings.monitor),
        {key: values.value_of(trial.params[key]) for key, values in settings.space.items() if key in trial.params},
        dict(trial.params),
        float(seconds) if seconds is not None else None,
        settings.folder_of(trial.number) if trial.user_attrs.get(HOME) == home else None,
        str(trial.user_attrs.get(REASON, "")),
    )


def write_best(settings: Settings, best: Row) -> Path:
    """Write the config of the best trial, complete and ready to train, and return its path."""
    words = [*settings.words[1:], *overrides_of(settings, Job(best.number, best.labels, settings.folder / "best"))]
    data = load(settings.words[0], words).data
    data.pop("sweep", None)
    path = settings.folder / BEST
    about = (
        f"# The best of the study '{settings.study}': trial {best.number}, {settings.metric} {as_number(best.value)}.\n"
    )
    with storage_errors(path):
        create_folder(settings.folder)
    write_text(path, origin.describe(settings.config.file) + about + dump(written(data)))
    return path


def to_data(settings: Settings, rows: list[Row], best_config: Path | None) -> dict[str, Any]:
    """Return the results as plain data, for `--json`."""
    return {
        "study": settings.study,
        "storage": studies.without_password(settings.storage),
        "metric": settings.metric,
        "direction": settings.direction,
        "best_config": str(best_config) if best_config is not None else None,
        "trials": [
            {
                "number": row.number,
                "state": row.state,
                "value": row.value,
                "params": row.params,
                "seconds": row.seconds,
                "folder": str(row.folder) if row.folder is not None else None,
                "reason": row.reason or None,
            }
            for row in rows
        ],
    }
