"""PruningHook: what it reports to a study, when it ends a run, and what happens without the study."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline.common import studies
from hookline.errors import ConfigError, StorageError
from hookline.hooks import PruningHook
from hookline.hooks.pruning import END
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from hookline import Runner

STORAGE = "journal:study.log"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Pruner:
    """Prunes at one validation."""

    def __init__(self, at: int) -> None:
        self.at = at

    def prune(self, study: Any, trial: Any) -> bool:
        return bool(trial.last_step == self.at)


def find_study(name: str = "s") -> Any:
    return studies.find_study(name, studies.open_storage(STORAGE))


def runner_with(folder: str = "run", epochs: int = 4, resume: bool = False, **options: Any) -> Runner:
    hook = PruningHook(**{"monitor": "accuracy", "study": "s", "storage": STORAGE, **options})
    runner = toy_runner(max_epochs=epochs, custom_hooks=[hook], work_dir=folder, resume=resume, seed=0)
    runner.terminal.quiet = True
    return runner


def prune_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(studies, "make_pruner", lambda name: Pruner(number))


def test_a_run_is_a_trial_with_the_best_of_its_validations() -> None:
    runner = runner_with()
    values: list[float] = []
    runner.on("after_val_epoch")(lambda runner, metrics: values.append(metrics["accuracy"]))
    runner.train()
    trial = find_study().trials[0]
    assert trial.state.name == "COMPLETE"
    assert trial.intermediate_values == dict(enumerate(values, 1))
    assert trial.value == max(values)
    assert trial.user_attrs == {"folder": str(Path("run").resolve()), "end": "finished"}
    assert find_study().direction.name == "MAXIMIZE"


def test_the_pruner_ends_a_run_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    prune_at(monkeypatch, 2)
    runner = runner_with()
    runner.train()
    assert (runner.epoch, runner.stopped.by, runner.stopped.for_now, runner.exit_code) == (2, "PruningHook", False, 0)
    value = find_study().trials[0].intermediate_values[2]
    expected = f"accuracy is {value:.6g} at validation 2, worse than in other trials of the study 's'"
    assert runner.stopped.reason == expected
    assert (find_study().trials[0].state.name, find_study().trials[0].user_attrs[END]) == ("PRUNED", "pruned")
    again = runner_with(resume=True)
    again.train()
    assert again.epoch == 2


def test_the_last_validation_prunes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prune_at(monkeypatch, 4)
    runner = runner_with()
    runner.train()
    assert (runner.epoch, bool(runner.stopped), find_study().trials[0].state.name) == (4, False, "COMPLETE")


def test_median_prunes_a_run_that_is_worse_than_others() -> None:
    study = studies.import_optuna().create_study(
        study_name="s", storage=studies.open_storage(STORAGE), direction="maximize"
    )
    for _ in range(5):
        trial = study.ask()
        for number in range(1, 5):
            trial.report(2.0, number)
        study.tell(trial, 2.0)
    runner = runner_with()
    runner.train()
    assert (runner.epoch, find_study().trials[5].state.name) == (1, "PRUNED")
    free = runner_with("free", pruner="none")
    free.train()
    assert (free.epoch, find_study().trials[6].state.name) == (4, "COMPLETE")


def test_a_resumed_run_continues_its_trial() -> None:
    broken = runner_with()
    broken.on("before_train_iter")(lambda runner: 1 / (runner.epoch != 2))
    with pytest.raises(ZeroDivisionError):
        broken.train()
    assert [trial.state.name for trial in find_study().trials] == ["RUNNING"]
    runner_with(resume=True).train()
    assert [(trial.state.name, list(trial.intermediate_values)) for trial in find_study().trials] == [
        ("COMPLETE", [1, 2, 3, 4])
    ]


def test_a_run_that_was_stopped_for_now_is_unfinished() -> None:
    runner = runner_with()
    runner.on("after_train_epoch")(lambda runner: runner.stop("time is up", for_now=True))
    runner.train()
    trial = find_study().trials[0]
    assert (trial.state.name, trial.user_attrs[END]) == ("RUNNING", "unfinished")


def test_a_given_trial_is_not_finished_by_the_hook() -> None:
    study = studies.import_optuna().create_study(
        study_name="s", storage=studies.open_storage(STORAGE), direction="maximize"
    )
    study.ask()
    runner_with(trial=0).train()
    trial = find_study().trials[0]
    assert (trial.state.name, trial.user_attrs, list(trial.intermediate_values)) == (
        "RUNNING",
        {"end": "finished"},
        [1, 2, 3, 4],
    )


def test_validation_outside_of_training_is_not_reported() -> None:
    runner = runner_with(epochs=1)
    runner.val()
    runner.train()
    runner.val()
    assert list(find_study().trials[0].intermediate_values) == [1]


def test_values_that_cannot_be_reported_are_reported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with(epochs=3)
    hook = next(entry.hook for entry in runner.plan if isinstance(entry.hook, PruningHook))
    lines: list[str] = []
    monkeypatch.setattr(logging.getLogger("hookline"), "warning", lambda text, *args: lines.append(text % args))
    real = hook._send

    def send() -> None:
        if runner.validations < 2:
            raise OSError("the server has gone away")
        real()

    monkeypatch.setattr(hook, "_send", send)
    runner.train()
    assert [line for line in lines if "storage" in line] == [
        "the storage journal:study.log cannot be used: the server has gone away (training continues; accuracy will be "
        "reported later)"
    ] * 2
    assert list(find_study().trials[0].intermediate_values) == [1, 2, 3]


def test_values_that_could_never_be_reported_end_the_run_and_survive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with(epochs=2)
    hook = next(entry.hook for entry in runner.plan if isinstance(entry.hook, PruningHook))

    def fail() -> None:
        raise OSError("the server has gone away")

    monkeypatch.setattr(hook, "_send", fail)
    with pytest.raises(StorageError, match="the storage journal:study.log cannot be used: the server has gone away"):
        runner.train()
    runner_with(epochs=2, resume=True).train()
    assert list(find_study().trials[0].intermediate_values) == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"monitor": ""}, "PruningHook: monitor must be a name, not ''"),
        ({"study": 3}, "PruningHook: study must be a name, not 3"),
        ({"pruner": "meidan"}, "PruningHook: pruner cannot be 'meidan'; did you mean 'median'?"),
        ({"trial": -1}, "PruningHook: trial must be an int of at least 0, not -1"),
        (
            {"monitor": "score"},
            "PruningHook: the name 'score' does not show whether higher or lower is better; set rule: greater or rule: "
            "less",
        ),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PruningHook(**{"monitor": "accuracy", "study": "s", **options})
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trial": 3}, "PruningHook: the study 's' does not exist in journal:study.log"),
        ({"trial": 3, "study": "t"}, "PruningHook: trial 3 of the study 't' does not exist in journal:study.log"),
        ({"monitor": "acuracy"}, "PruningHook: validation returns no metric 'acuracy'; did you mean 'accuracy'?"),
        (
            {"study": "t"},
            "PruningHook: the study 't' has the direction 'minimize', but accuracy needs 'maximize'; choose another "
            "study",
        ),
    ],
)
def test_a_study_or_metric_that_does_not_fit_is_refused_before_training(options: dict[str, Any], message: str) -> None:
    studies.import_optuna().create_study(study_name="t", storage=studies.open_storage(STORAGE))
    runner = runner_with(**{"rule": "greater", **options})
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == message
    assert runner.iter == 0


def test_without_validation_it_is_refused() -> None:
    hook = PruningHook("accuracy", "s", STORAGE)
    runner = toy_runner(max_epochs=1, custom_hooks=[hook], work_dir="run", val=None)
    with pytest.raises(ConfigError, match="PruningHook"):
        runner.train()


def test_a_password_is_not_part_of_checkpoints() -> None:
    runner = runner_with()
    assert runner.plan.parameters_of("PruningHook") == "monitor='accuracy', study='s', pruner='median'"


def test_the_default_storage_is_in_the_folder_of_the_study() -> None:
    hook = PruningHook("accuracy", "s")
    assert hook._storage == "sqlite:///runs/s/study.db"
