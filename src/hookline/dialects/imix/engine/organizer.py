"""What a config says, checked; and the hooks that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hookline.checks import check_int
from hookline.data.batches import length_of
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.builder import HOOKS, build_hook
from hookline.dialects.imix.engine.hooks.iteration_time import IterationTimerHook
from hookline.dialects.imix.engine.hooks.lr_scheduler import LRSchedulerHook
from hookline.dialects.imix.engine.hooks.optimizer import Fp16OptimizerHook, OptimizerHook
from hookline.dialects.imix.engine.hooks.periodic_logger import PeriodicLogger
from hookline.dialects.imix.engine.hooks.periods.checkpoint import CheckPointHook
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferWriter
from hookline.dialects.imix.solver import build_lr_scheduler
from hookline.dialects.imix.utils.config import Config, plain_data
from hookline.errors import ConfigError, HookError
from hookline.hook import Hook

#: What stands for a key that is not there.
ABSENT: Any = object()
#: The loggers of a config that names none.
LOGGERS = ("CommonMetricLoggerHook", "JSONLoggerHook", "TensorboardLoggerHook")


def read(cfg: Any, name: str, default: Any = None) -> Any:
    """A key of a mapping, or an attribute of anything else."""
    if isinstance(cfg, Mapping):
        return cfg.get(name, default)
    return getattr(cfg, name, default)


@dataclass(frozen=True)
class Settings:
    """The values of a config that an engine needs."""

    #: The config as hooks see it, with attributes, and as it is recorded.
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
        """How many epochs; None by iterations."""
        return self.limit if self.by_epoch else None

    def max_iter_of(self, data_loader: Any) -> int | None:
        """How many iterations, where that is known."""
        length = length_of(data_loader)
        return self.limit if not self.by_epoch else None if length is None else self.limit * length

    def section(self, name: str) -> Any:
        """A part of the config; ABSENT where it is not there."""
        return read(self.cfg, name, ABSENT)


def settings_of(cfg: Any) -> Settings:
    """Read and check a config."""
    if cfg is None:
        raise ConfigError("imixEngine needs a config: a dict with total_epochs, or by_iter and max_iter")
    cfg = Config(cfg) if isinstance(cfg, Mapping) and not isinstance(cfg, Config) else cfg
    by_epoch, limit = _length(cfg)
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


def _length(cfg: Any) -> tuple[bool, int]:
    """Whether epochs are counted, and how many there are of what is."""
    if read(cfg, "by_iter"):
        limit = read(cfg, "max_iter")
        if limit is None:
            raise ConfigError("the config has by_iter, so it needs max_iter: how many iterations to train")
        check_int("max_iter", limit, least=1)
        return False, limit
    limit = read(cfg, "total_epochs")
    if limit is None:
        hint = "; for max_iter to count, set by_iter=True" if read(cfg, "max_iter") is not None else ""
        raise ConfigError(f"the config needs total_epochs, or by_iter=True and max_iter{hint}")
    check_int("total_epochs", limit, least=1)
    return True, limit


def prefix_of(settings: Settings, model: Any) -> str:
    """What names of checkpoints begin with: as the config says, or the model and the data set, as iMIX has them."""
    given = read(settings.section("checkpoint_config"), "prefix") if _is_there(settings, "checkpoint_config") else None
    kind = read(read(settings.cfg, "model") or {}, "type")
    dataset = read(settings.cfg, "dataset_type")
    usual = "_".join([kind if isinstance(kind, str) else type(model).__name__, *([dataset] if dataset else [])])
    return given or usual


def _is_there(settings: Settings, name: str) -> bool:
    return settings.section(name) is not ABSENT and settings.section(name) is not None


# -- hooks


def custom_hooks(settings: Settings) -> list[tuple[Any, Any]]:
    """The user's hooks with the level that the config gives them, if it does; the dicts stay as they are."""
    found = []
    given = read(settings.cfg, "custom_hooks") or []
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"custom_hooks is a list of hooks or dicts with 'type', not {given!r}")
    for each in given:
        if isinstance(each, Mapping):
            hook, level = HOOKS.build({key: each[key] for key in each if key != "level"}), each.get("level")
        else:
            hook, level = each, None
        if not isinstance(hook, (HookBase, Hook)):
            raise HookError(f"custom_hooks: {hook!r} is no hook; it has to inherit from HookBase")
        found.append((hook, level))
    return found


def default_hooks(settings: Settings, optimizer: Any, customs: Sequence[Any]) -> list[Any]:
    """The hooks that every engine has, except those of whose kind the user brings one."""
    made: list[Any] = [
        _updater(settings),
        *_schedulers(settings, optimizer),
        _timer(settings),
        *_checkpoints(settings),
        *_loggers(settings, customs),
    ]
    kinds = (OptimizerHook, LRSchedulerHook, IterationTimerHook, CheckPointHook, PeriodicLogger)
    replaced = [kind for kind in kinds if any(isinstance(custom, kind) for custom in customs)]
    return [hook for hook in made if not isinstance(hook, tuple(replaced))]


def _updater(settings: Settings) -> OptimizerHook:
    fp16 = settings.fp16
    if fp16 is None or fp16 is False:
        return OptimizerHook(settings.grad_clip)
    scaler = {} if fp16 is True else dict(fp16)
    return Fp16OptimizerHook(settings.grad_clip, dtype=scaler.pop("dtype", "fp16"), grad_scaler_config=scaler)


def _schedulers(settings: Settings, optimizer: Any) -> list[LRSchedulerHook]:
    given = read(settings.cfg, "lr_config")
    by_epoch = bool(read(given, "by_epoch", False)) if isinstance(given, Mapping) else False
    return [LRSchedulerHook(optimizer, build_lr_scheduler(given, optimizer), by_epoch=by_epoch)]


def _timer(settings: Settings) -> IterationTimerHook:
    given = read(settings.cfg, "lr_config")
    warm = isinstance(given, Mapping) and given.get("use_warmup")
    return IterationTimerHook(warmup_iter=given.get("warmup_iterations", 0) if warm else 0)


def _checkpoints(settings: Settings) -> list[CheckPointHook]:
    given = settings.section("checkpoint_config")
    if given is None:
        return []
    given = {} if given is ABSENT else dict(given)
    if "period" in given:
        given["iter_period"] = given.pop("period")
    return [HOOKS.build({"type": CheckPointHook, **given})]


def _loggers(settings: Settings, customs: Sequence[Any]) -> list[Any]:
    given = settings.section("log_config")
    if given is None:
        return []
    named = read({} if given is ABSENT else given, "hooks")
    if named is None:
        brought = {kind.__name__ for custom in customs for kind in type(custom).__mro__}
        usual = [name for name in LOGGERS if name not in brought and _can_write(name)]
        loggers: list[Any] = [build_hook({"type": name}) for name in usual]
    else:
        # In iMIX's own configs the text logger in this list means the line on the screen.
        names = [{**each, "type": "CommonMetricLoggerHook"} if _is_text(each) else each for each in named]
        loggers = [build_hook(each) for each in names]
    others = [hook for hook in loggers if not isinstance(hook, LogBufferWriter)]
    return [PeriodicLogger([hook for hook in loggers if hook not in others]), *others]


def _is_text(given: Any) -> bool:
    return isinstance(given, Mapping) and given.get("type") == "TextLoggerHook"


def _can_write(name: str) -> bool:
    """TensorBoard is an extra."""
    if name != "TensorboardLoggerHook":
        return True
    from importlib.util import find_spec

    return find_spec("tensorboard") is not None and find_spec("google_crc32c") is not None
