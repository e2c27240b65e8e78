"""Everything that is refused before the first trial, with the whole message."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import ConfigError, HooklineError, StorageError
from hookline.sweeps import preparation
from hookline.sweeps.preparation import prepare
from tests.sweeps.fakes import CONFIG, End, Runs, Starter, request, write_config

LR = "optim.optimizer.lr=0.01..1.0:log"


def refusal(config: Path, *words: str, **options: Any) -> str:
    with pytest.raises(HooklineError) as refused:
        prepare(request(Path(config.name), *words, **options))
    return "\n".join([str(refused.value), *getattr(refused.value, "__notes__", [])])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "model.widht=2,4",
            "tiny.yaml: 1 error\n  override 'model.widht=2'  model.widht: DigitsNet has no parameter 'widht'; did you "
            "mean 'width'?\nthe search space is model.widht=2,4",
        ),
        (
            "optm.clip_norm=1.0,2.0",
            "tiny.yaml: 1 error\n  override 'optm.clip_norm=1.0'  optm: unknown key 'optm'; did you mean 'optim'?\n"
            "the search space is optm.clip_norm=1.0,2.0",
        ),
        (
            "optim.acumulate=1,2",
            "tiny.yaml: 1 error\n  override 'optim.acumulate=1'  optim.acumulate: unknown key 'acumulate'; did you "
            "mean 'accumulate'?\nthe search space is optim.acumulate=1,2",
        ),
        (
            "optim.optimizer.type=SGD,Adamm",
            "tiny.yaml: 1 error\n  override 'optim.optimizer.type=Adamm'  optim.optimizer.type: unknown optimizer "
            "'Adamm'; did you mean 'Adam'?\nthe search space is optim.optimizer.type=SGD,Adamm",
        ),
        (
            "train.dataloader.batch_size=0..4",
            "tiny.yaml: 1 error\n  override 'train.dataloader.batch_size=0'  train.dataloader.batch_size: expected a "
            "number of at least 1, found 0\nthe search space is train.dataloader.batch_size=0..4",
        ),
        (
            "optim.optimizer.lr=0..1",
            "the search space, optim.optimizer.lr: 0..1 has only ints, but the config has 0.1 here; write 0.0..1.0 for "
            "all numbers, or 0..1:1 for ints",
        ),
        (
            "work_dir=x",
            "'work_dir=x': a sweep sets 'work_dir' itself; to choose another folder, add --dir FOLDER",
        ),
        ("resume=true", "'resume=true': a sweep sets 'resume' itself"),
    ],
)
def test_a_value_that_the_config_does_not_accept_is_refused(tmp_path: Path, word: str, message: str) -> None:
    assert refusal(write_config(tmp_path), word) == message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]


def test_a_key_that_the_config_does_not_have_yet_is_accepted(tmp_path: Path) -> None:
    settings, _ = prepare(request(write_config(tmp_path), "optim.accumulate=1,2", "model.width=2,4"))
    assert settings.space.first() == ["optim.accumulate=1", "model.width=2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "--trials must be an int of at least 1, not 0"),
        ({"jobs": 0}, "--jobs must be an int of at least 1, not 0"),
        ({"seed": -1}, "--seed must be an int of at least 0, not -1"),
        ({"grace": -1.0}, "--grace must be a number of at least 0, not -1.0"),
        ({"direction": "up"}, "--direction cannot be 'up'; available: maximize, minimize"),
        ({"sampler": "gird"}, "--sampler cannot be 'gird'; did you mean 'grid'?"),
        ({"pruner": "meidan"}, "--pruner cannot be 'meidan'; did you mean 'median'?"),
        (
            {"study": "a/b"},
            "--study must be a name without slashes, because it also names a folder, not 'a/b'; to choose another "
            "folder, add --dir FOLDER",
        ),
        (
            {"metric": "val/acuracy"},
            "--metric: validation returns no metric 'val/acuracy'; did you mean 'val/accuracy'?",
        ),
        (
            {"metric": "train/loss"},
            "--metric: a sweep optimizes a metric of the validation, not 'train/loss'; available: val/accuracy, "
            "val/loss",
        ),
        ({"metric": "f1"}, "--metric: validation returns no metric 'val/f1'; available: val/accuracy, val/loss"),
        (
            {"study": "a?b", "storage": None},
            "the folder of the study, runs/a?b, must not have a '?', which a sqlite URL cannot have",
        ),
        *(
            (
                {"storage": storage},
                f"the storage '{storage}' is in the memory of one process, but every trial is a separate process; "
                "write sqlite:///FILE",
            )
            for storage in ("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:")
        ),
        (
            {"storage": "missing://me:a@b@host/db?x=1&password=hush"},
            "the storage missing://me:***@host/db?x=1&password=*** cannot be used: Can't load plugin: "
            "sqlalchemy.dialects:missing",
        ),
        (
            {"storage": "study.db"},
            "the storage 'study.db' is not a URL; write sqlite:///FILE, journal:FILE, or the URL of a database, such "
            "as postgresql://user:password@host/name",
        ),
        (
            {"storage": "nodb://me:secret@host/x"},
            "the storage nodb://me:***@host/x cannot be used: Can't load plugin: sqlalchemy.dialects:nodb",
        ),
        ({"storage": "sqlite:///tiny.yaml/x.db"}, "tiny.yaml/x.db cannot be written: File exists"),
        ({"storage": "sqlite:///tiny.yaml"}, "the storage sqlite:///tiny.yaml cannot be used: file is not a database"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    assert refusal(write_config(tmp_path), LR, **options) == message
    assert not (tmp_path / "runs").exists()


def test_the_exit_codes_of_config_and_storage(tmp_path: Path) -> None:
    write_config(tmp_path)
    with pytest.raises(ConfigError):
        prepare(request(Path("tiny.yaml"), LR, metric="x"))
    with pytest.raises(StorageError):
        prepare(request(Path("tiny.yaml"), LR, storage="sqlite:///tiny.yaml"))


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "optuna":
            raise ImportError("No module named 'optuna'", name="optuna")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    expected = "this needs Optuna, which is not installed: pip install 'hookline[optuna]'"
    assert refusal(write_config(tmp_path), LR) == expected


def test_the_metric_comes_from_save_best_or_must_be_chosen(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert prepare(request(config, metric=None))[0].metric == "val/accuracy"
    auto = write_config(tmp_path, name="auto.yaml")
    auto.write_text(CONFIG.replace("save_best: accuracy", "save_best: auto"))
    assert prepare(request(auto, metric=None))[0].metric == "val/accuracy"
    config.write_text(CONFIG.replace("save_best: accuracy", ""))
    assert refusal(config, LR, metric=None, study="new") == (
        "choose the metric to optimize: --metric NAME, with one of val/accuracy, val/loss; a config with 'save_best' "
        "needs no --metric"
    )
    assert prepare(request(config, metric=None))[0].metric == "val/accuracy", "the study has one"


def test_the_direction_is_given_or_shown_by_the_name(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(CONFIG.replace("{accuracy: accuracy}", "{score: accuracy}").replace("save_best: accuracy", ""))
    assert refusal(config, LR, metric="score") == (
        "the name 'val/score' does not show whether higher or lower is better; add --direction maximize or --direction "
        "minimize"
    )
    assert prepare(request(config, metric="score", direction="minimize"))[0].direction == "minimize"
    assert prepare(request(config, metric="score"))[0].direction == "minimize", "as before"
    both = "save_best: score, rule: greater"
    config.write_text(CONFIG.replace("{accuracy: accuracy}", "{score: accuracy}").replace("save_best: accuracy", both))
    assert prepare(request(config, metric="score", study="new"))[0].direction == "maximize", "as for save_best"


def test_a_config_without_validation_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(re.sub(r"val:\n(  .*\n)+", "", CONFIG).replace("save_best: accuracy", ""))
    assert refusal(config, LR) == (
        "tiny.yaml: a sweep compares the results of the validation, but this config has none; add a 'val' section"
    )


def test_metrics_that_need_more_than_one_batch_are_not_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "odd.py").write_text("def odd(preds, target):\n    raise ValueError('only one class')\n")
    config = write_config(tmp_path)
    config.write_text(
        CONFIG.replace("{accuracy: accuracy}", "{odd_accuracy: 'odd:odd'}").replace("save_best: accuracy", "")
    )
    assert prepare(request(config, metric="odd_accuracy"))[0].metric == "val/odd_accuracy"
    assert "the metrics cannot be checked before the first trial: ValueError: only one class" in caplog.text


def test_a_device_that_keeps_memory_is_tried_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hookline.sweeps import probe

    used: list[str] = []

    class Pool:
        def __init__(self, *args: Any) -> None:
            used.append("pool")

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *args: Any) -> None:
            used.append("closed")

        def submit(self, function: Any, *args: Any) -> Any:
            class Result:
                def result(self) -> Any:
                    return function(*args)

            return Result()

    class Device:
        type = "cuda"

    monkeypatch.setattr("hookline.strategies.pick_device", lambda name: Device())
    monkeypatch.setattr(probe, "ProcessPoolExecutor", Pool)
    assert prepare(request(write_config(tmp_path)))[0].metric == "val/accuracy"
    assert used == ["pool", "closed"]


# ------------------------------------------------------------------------------------------------ continuing a study


def finished(config: Path, *words: str, **options: Any) -> None:
    Runs(request(config, *words, trials=1, **options)).sweep(Starter(lambda job, _: End(values=(0.5,)))).run()


def test_a_study_with_other_settings_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    finished(config, LR)
    words = ("optim.optimizer.lr=0.01..2.0:log", "model.width=2,4", "train.max_epochs=9")
    assert refusal(config, *words, metric="loss") == (
        "the study 'tiny-sweep' was begun with other settings, so its trials cannot be compared:\n"
        "  the metric was 'val/accuracy' and is now 'val/loss'\n"
        "  the direction was 'maximize' and is now 'minimize'\n"
        "  the search space of optim.optimizer.lr was 0.01..1.0:log and is now 0.01..2.0:log\n"
        "  the search space of model.width was absent and is now 2,4\n"
        "  train.max_epochs was 2 and is now 9\n"
        "  to begin another study, add --study NAME"
    )


def test_values_that_differ_between_machines_may_differ(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    finished(config, LR, "custom_hooks=[]")
    config.write_text(config.read_text().replace("shuffle: true", "shuffle: true, num_workers: 2"))
    prepare(request(config, LR, "custom_hooks=[]"))


def test_a_config_may_be_mended_as_long_as_no_trial_has_a_result(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    runs = Runs(request(config, LR, trials=1))
    runs.sweep(Starter(lambda job, _: End(1, (), None, "hookline: broken"))).run()
    prepare(request(config, LR, "train.max_epochs=9"))
    assert "was begun with other settings" in refusal(config, "optim.optimizer.lr=0.01..2.0:log")


def test_a_study_of_somebody_else_is_refused(tmp_path: Path) -> None:
    import optuna

    config = write_config(tmp_path)
    study = optuna.create_study(study_name="tiny-sweep", storage="sqlite:///mine.db")
    study.ask()
    assert refusal(config, LR, storage="sqlite:///mine.db") == (
        "the study 'tiny-sweep' exists, but was not created by hookline sweep; choose another name: --study NAME"
    )


def test_the_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "digits"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    assert refusal(write_config(tmp_path), LR, study="digits") == (
        "runs/digits is the folder of a run, so it cannot hold a study; add --study NAME"
    )


# ------------------------------------------------------------------------------------------------- the sweep section

SECTION = """\
sweep:
  space:
    optim.optimizer.lr: {low: 0.01, high: 1.0, log: true}
    model.width: [2, 4]
  metric: val/loss
  trials: 7
  sampler: random
  pruner: none
  seed: 5
"""


def test_the_config_can_hold_the_space_and_the_options(tmp_path: Path) -> None:
    config = write_config(tmp_path, SECTION)
    given = replace(request(config), words=(), metric=None)
    settings, _ = prepare(given)
    assert settings.space.description() == {"optim.optimizer.lr": "0.01..1.0:log", "model.width": "2,4"}
    found = (settings.metric, settings.trials, settings.sampler, settings.pruner, settings.seed)
    assert found == ("val/loss", 7, "random", "none", 5)
    other = replace(given, words=("model.width=8",), trials=2, sampler="tpe", pruner="median", seed=1, study="other")
    settings, _ = prepare(other)
    assert settings.space.description() == {"optim.optimizer.lr": "0.01..1.0:log"}
    assert (settings.trials, settings.sampler, settings.pruner, settings.seed) == (2, "tpe", "median", 1)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{spce: {}}", "sweep.spce: unknown key 'spce'; did you mean 'space'?"),
        ("{space: {seed: {low: 1, hihg: 2}}}", "sweep.space.seed.hihg: unknown key 'hihg'; did you mean 'high'?"),
        ("{space: {seed: 3}}", "sweep.space.seed: expected a string, found 3"),
        ("{sampler: gird}", "sweep.sampler: expected 'tpe', 'random' or 'grid', found 'gird'"),
    ],
)
def test_a_mistake_in_the_section_is_reported_with_its_place(tmp_path: Path, section: str, message: str) -> None:
    line = CONFIG.count("\n") + 1
    found = refusal(write_config(tmp_path, f"sweep: {section}\n"), LR)
    assert re.sub(rf"tiny.yaml:{line}:\d+", "PLACE", found) == f"tiny.yaml: 1 error\n  PLACE  {message}"


def test_training_does_not_mind_the_section(tmp_path: Path) -> None:
    from hookline import Runner

    runner = Runner.from_config(write_config(tmp_path, SECTION))
    runner.terminal.quiet = True
    assert runner.max_epochs == 2
    assert preparation.TRIALS == 20
