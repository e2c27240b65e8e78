"""Everything that is checked before the first trial: the space, the config, the metric, the storage, the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common import studies
from hookline.common.checks import check_choice, check_int, check_name, check_number
from hookline.common.marks import show
from hookline.common.monitor import AUTO, Monitor, infer_rule
from hookline.config.loading import LoadedConfig, load
from hookline.config.names import Resolver
from hookline.config.overrides import split_path
from hookline.config.validation import check
from hookline.errors import ConfigError, did_you_mean
from hookline.rundir.runs import is_run
from hookline.sweeps.grammar import combine, read_section, read_words
from hookline.sweeps.probe import find_metrics
from hookline.sweeps.samplers import SAMPLERS
from hookline.sweeps.space import OWN_KEYS, Range, Space
from hookline.sweeps.studies import Settings, describe, open_study, read_settings

if TYPE_CHECKING:
    from optuna.study import Study

TRIALS = 20
PREFIX = "val/"
DIRECTIONS = {"maximize": "greater", "minimize": "less"}


@dataclass(frozen=True)
class Request:
    """A sweep as the command line has it; None where it has nothing."""

    config: Path
    words: tuple[str, ...] = ()
    trials: int | None = None
    metric: str | None = None
    direction: str | None = None
    study: str | None = None
    folder: Path | None = None
    storage: str | None = None
    sampler: str | None = None
    pruner: str | None = None
    seed: int | None = None
    jobs: int = 1
    grace: float = 60.0
    allow: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the study. Without `-sweep`, its folder would be the folder of the config's own run."""
        return self.study if self.study is not None else f"{self.config.stem}-sweep"

    @property
    def place(self) -> Path:
        """Return the folder of the study."""
        return self.folder if self.folder is not None else Path("runs") / self.name


def prepare(request: Request) -> tuple[Settings, Study]:
    """Check everything, and return the settings and the study, which is created if necessary."""
    studies.import_optuna()
    check_options(request)
    parameters, overrides = read_words(request.words)
    for word in overrides:
        key = word.partition("=")[0].strip()
        if key in OWN_KEYS:
            hint = "; to choose another folder, add --dir FOLDER" if key == "work_dir" else ""
            raise ConfigError(f"{show(word)}: a sweep sets '{key}' itself{hint}")
    config = load(request.config, overrides)
    resolver = Resolver(config.file, request.allow)
    check(config, resolver)  # first without the values of the space, because the sweep section is part of it
    section: Mapping[str, Any] = config.data.get("sweep") or {}
    space = combine(read_section(section.get("space") or {}, config.title), parameters, overrides)
    space.refuse_unusable()
    tried = check_space(space, request, overrides, config, resolver)
    sampler = _choose("--sampler", request.sampler, section, "sampler", "tpe", SAMPLERS)
    pruner = _choose("--pruner", request.pruner, section, "pruner", "median", studies.PRUNERS)
    if sampler == "grid":
        _ = space.combinations  # refuses a range without steps
    url = request.storage if request.storage is not None else studies.default_storage(request.place)
    refuse_run(request.place)
    before = read_existing(url, request)
    metric = choose_metric(request.metric or section.get("metric"), before, tried, request.allow)
    monitor = choose_rule(metric, request.direction or section.get("direction"), before, config.data)
    seed, trials = request.seed, request.trials
    settings = Settings(
        study=request.name,
        folder=request.place,
        storage=url,
        metric=metric,
        monitor=monitor,
        space=space,
        trials=trials if trials is not None else section.get("trials") or TRIALS,
        config=config,
        words=(str(request.config), *overrides),
        allow=request.allow,
        sampler=sampler,
        pruner=pruner,
        seed=seed if seed is not None else section.get("seed") or 0,
        jobs=request.jobs,
        grace=request.grace,
        recorded=describe(metric, "maximize" if monitor.rule == "greater" else "minimize", space, config.data),
    )
    return settings, open_study(settings, studies.open_storage(url))


def read_existing(url: str, request: Request) -> dict[str, Any] | None:
    """Return the settings of the study, if it exists. The default storage is not created before all is checked."""
    if request.storage is None and not (request.place / studies.STUDY_FILE).exists():
        return None
    storage = studies.open_storage(url)
    with studies.study_errors(url):
        return read_settings(studies.find_study(request.name, storage), request.name)


def check_options(request: Request) -> None:
    """Refuse options that make no sense."""
    if request.trials is not None:
        check_int("--trials", request.trials, least=1)
    check_int("--jobs", request.jobs, least=1)
    if request.seed is not None:
        check_int("--seed", request.seed, least=0)
    check_number("--grace", request.grace, least=0)
    if request.direction is not None:
        check_choice("--direction", request.direction, DIRECTIONS)
    check_name("--study", request.name)
    if request.name in (".", "..") or "/" in request.name or "\\" in request.name or not request.name:
        raise ConfigError(
            f"--study must be a name without slashes, because it also names a folder, not {request.name!r}; to "
            "choose another folder, add --dir FOLDER"
        )


def _choose(
    option: str, option_value: str | None, section: Mapping[str, Any], key: str, default: str, known: tuple[str, ...]
) -> str:
    choice = option_value if option_value is not None else section.get(key) or default
    check_choice(option, choice, known)
    return str(choice)


def refuse_run(folder: Path) -> None:
    """Refuse the folder of an ordinary run."""
    if is_run(folder):
        raise ConfigError(f"{folder} is the folder of a run, so it cannot hold a study; add --study NAME")


def check_space(
    space: Space, request: Request, overrides: list[str], config: LoadedConfig, resolver: Resolver
) -> LoadedConfig:
    """Refuse a config that some values of the space make invalid, and return the config with the first values."""
    for key, values in space.items():
        now = _look_up(config.data, key)
        if isinstance(values, Range) and values.is_int and values.step is None and isinstance(now, float):
            raise ConfigError(
                f"the search space, {key}: {values} has only ints, but the config has {show(now)} here; write "
                f"{float(values.low)}..{float(values.high)} for all numbers, or {values}:1 for ints"
            )
    first: LoadedConfig | None = None
    for corner in space.corners():
        loaded = load(request.config, [*overrides, *corner])
        try:
            check(loaded, resolver)
        except ConfigError as error:
            error.add_note(f"the search space is {', '.join(f'{key}={values}' for key, values in space.items())}")
            raise
        first = first or loaded
    assert first is not None, "the space has at least one parameter"
    return first


def _look_up(data: Any, key: str) -> Any:
    for part in split_path(key) or ():
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and str(part).isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data


def choose_metric(
    asked: str | None, before: Mapping[str, Any] | None, tried: LoadedConfig, allow: tuple[str, ...]
) -> str:
    """Return the metric, as records name it. For a new study, one batch of the validation shows that it exists."""
    if before is not None and (asked is None or with_prefix(asked) == before["metric"]):
        return str(before["metric"])
    known = find_metrics(tried, allow)
    name = asked if asked is not None else saved_as_best(tried.data)
    if name == AUTO and known:
        name = known[0]
    if name is None or name == AUTO:
        listed = ", ".join(with_prefix(metric) for metric in known or ())
        raise ConfigError(
            f"choose the metric to optimize: --metric NAME{f', with one of {listed}' if listed else ''}; a config with "
            "'save_best' needs no --metric"
        )
    if name.partition("/")[0] in ("train", "test") and name not in (known or ()):
        listed = ", ".join(with_prefix(metric) for metric in known or ())
        hint = f"; available: {listed}" if listed else ""
        raise ConfigError(f"--metric: a sweep optimizes a metric of the validation, not '{name}'{hint}")
    name = with_prefix(name)
    if known is not None and name.removeprefix(PREFIX) not in known:
        hint = did_you_mean(name, [with_prefix(metric) for metric in known])
        raise ConfigError(f"--metric: validation returns no metric '{name}'; {hint}")
    return name


def with_prefix(name: str) -> str:
    """Return the name of a metric of the validation as records have it."""
    return name if name.startswith(PREFIX) else f"{PREFIX}{name}"


def saved_as_best(data: Mapping[str, Any]) -> str | None:
    """Return the one metric whose best checkpoint the config keeps."""
    metric = _look_up(data, "default_hooks.checkpoint.save_best")
    if isinstance(metric, list) and len(metric) == 1:
        metric = metric[0]
    return metric if isinstance(metric, str) else None


def choose_rule(
    metric: str, direction: str | None, before: Mapping[str, Any] | None, data: Mapping[str, Any]
) -> Monitor:
    """Return whether greater or less is better: as asked, as before, as for `save_best`, or as the name shows."""
    name = metric.removeprefix(PREFIX)
    if direction is None and before is not None and before["metric"] == metric:
        direction = before["direction"]
    rule: Any = DIRECTIONS[direction] if direction is not None else None
    if rule is None and saved_as_best(data) in (name, AUTO):
        rule = _look_up(data, "default_hooks.checkpoint.rule")
        rule = rule[0] if isinstance(rule, list) and len(rule) == 1 else rule
    rule = rule if rule is not None else infer_rule(name)
    if rule is None:
        raise ConfigError(
            f"the name '{metric}' does not show whether higher or lower is better; add --direction maximize or "
            "--direction minimize"
        )
    return Monitor(name, rule)
