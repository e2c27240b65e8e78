"""Reading and checking the config of an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hookline.common.checks import check_int
from hookline.data.batches import length_of
from hookline.dialects.imix.utils.config import Config, read
from hookline.dialects.keys import refuse_near_misses
from hookline.dialects.plain import plain_data
from hookline.errors import ConfigError

#: The value of a section that is missing; None means that it is switched off.
ABSENT: Any = object()
#: The keys that an engine reads, and the keys of the two sections that are not passed to a class.
KEYS = (
    *("total_epochs", "by_iter", "max_iter", "work_dir", "custom_hooks", "experiment_name", "quiet"),
    *("optimizer", "optimizer_config", "gradient_accumulation_steps", "is_lr_accumulation", "fp16", "lr_config"),
    *("log_config", "checkpoint_config", "seed", "model_device", "load_from", "resume_from"),
    *("find_unused_parameters", "model", "loss", "train_data", "test_data", "post_processor", "eval_iter_period"),
)
SECTIONS = {
    "optimizer_config": ("grad_clip", "gradient_accumulation_steps", "is_lr_accumulation"),
    "log_config": ("period", "hooks"),
}


@dataclass(frozen=True)
class Settings:
    """The values of a config that an engine needs."""

    #: The config as hooks see it, with attributes, and as plain data for the records of the run.
    cfg: Any
    recorded: dict[str, Any] | None
    work_dir: Any
    by_epoch: bool
    limit: int
    grad_clip: Any
    gradient_accumulation_steps: int
    is_lr_accumulation: bool
    fp16: Any
    log_period: int | None
    optimizer: Any
    seed: int
    device: Any
    load_from: Any
    resume_from: Any
    experiment_name: str | None
    quiet: bool

    @property
    def total_epochs(self) -> int | None:
        """Return the number of epochs; None when training by iterations."""
        return self.limit if self.by_epoch else None

    def count_iters(self, data_loader: Any) -> int | None:
        """Return the number of iterations; None if it is unknown."""
        length = length_of(data_loader)
        return self.limit if not self.by_epoch else None if length is None else self.limit * length

    def section(self, name: str) -> Any:
        """Return a section of the config, or ABSENT if it is missing."""
        return read(self.cfg, name, ABSENT)


def read_settings(cfg: Any) -> Settings:
    """Read and check a config."""
    if cfg is None:
        raise ConfigError("imixEngine needs a config: a dict with total_epochs, or by_iter and max_iter")
    if isinstance(cfg, (str, os.PathLike)):
        raise ConfigError(
            "imixEngine takes a config, not a path; read the file with Config of imix.utils: "
            f"imixEngine(Config.fromfile({os.fspath(cfg)!r}), ...)"
        )
    cfg = Config(cfg) if isinstance(cfg, Mapping) and not isinstance(cfg, Config) else cfg
    _refuse_near_misses(cfg)
    _refuse_bad_paths(cfg)
    by_epoch, limit = _read_length(cfg)
    optimizer_config = read(cfg, "optimizer_config") or {}

    def either(name: str, default: Any) -> Any:
        return read(optimizer_config, name, read(cfg, name, default))

    accumulate = either("gradient_accumulation_steps", 1)
    check_int("gradient_accumulation_steps", accumulate, least=1)
    period = read(read(cfg, "log_config") or {}, "period")
    if period is not None:
        check_int("log_config: period", period, least=1)
    return Settings(
        cfg=cfg,
        recorded=plain_data(cfg) if isinstance(cfg, Mapping) else None,
        work_dir=read(cfg, "work_dir") or "./work_dirs",
        by_epoch=by_epoch,
        limit=limit,
        grad_clip=read(optimizer_config, "grad_clip"),
        gradient_accumulation_steps=accumulate,
        is_lr_accumulation=bool(either("is_lr_accumulation", True)),
        fp16=read(cfg, "fp16"),
        log_period=period,
        optimizer=read(cfg, "optimizer"),
        seed=read(cfg, "seed") or 0,
        device=read(cfg, "model_device") or "auto",
        load_from=read(cfg, "load_from"),
        resume_from=read(cfg, "resume_from"),
        experiment_name=read(cfg, "experiment_name"),
        quiet=bool(read(cfg, "quiet", False)),
    )


def _refuse_near_misses(cfg: Any) -> None:
    refuse_near_misses("the config", _keys_of(cfg), KEYS)
    for section, names in SECTIONS.items():
        refuse_near_misses(section, _keys_of(read(cfg, section)), names)


def _refuse_bad_paths(cfg: Any) -> None:
    """Refuse values that cannot be the path of a file or a folder."""
    for key, also in (
        ("work_dir", ""),
        ("load_from", ""),
        ("resume_from", ", or True for the newest checkpoint in work_dir"),
    ):
        given = read(cfg, key)
        allowed = given is None or isinstance(given, (str, os.PathLike)) or (bool(also) and isinstance(given, bool))
        if not allowed:
            raise ConfigError(f"{key} must be a path{also}, not {given!r}")


def _keys_of(part: Any) -> Iterable[Any]:
    return part if isinstance(part, Mapping) else vars(part) if hasattr(part, "__dict__") else ()


def _read_length(cfg: Any) -> tuple[bool, int]:
    """Return whether training counts epochs, and the number of epochs or iterations."""
    if read(cfg, "by_iter"):
        limit = read(cfg, "max_iter")
        if limit is None:
            raise ConfigError("the config has by_iter, so it also needs max_iter, the number of iterations to train")
        check_int("max_iter", limit, least=1)
        return False, limit
    limit = read(cfg, "total_epochs")
    if limit is None:
        hint = "; to use max_iter, set by_iter=True" if read(cfg, "max_iter") is not None else ""
        raise ConfigError(f"the config needs total_epochs, or by_iter=True and max_iter{hint}")
    check_int("total_epochs", limit, least=1)
    return True, limit


def choose_prefix(settings: Settings, model: Any) -> str:
    """Return the prefix of checkpoint names: from the config, or, as in iMIX, the names of model and data set."""
    given = read(read(settings.cfg, "checkpoint_config") or {}, "prefix")
    kind = read(read(settings.cfg, "model") or {}, "type")
    dataset = read(settings.cfg, "dataset_type")
    usual = "_".join([kind if isinstance(kind, str) else type(model).__name__, *([dataset] if dataset else [])])
    return given or usual
