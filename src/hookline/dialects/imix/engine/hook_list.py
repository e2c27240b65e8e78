"""Building the hooks that a config asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.builder import HOOKS, build_hook
from hookline.dialects.imix.engine.hooks.iteration_time import IterationTimerHook
from hookline.dialects.imix.engine.hooks.lr_scheduler import LRSchedulerHook
from hookline.dialects.imix.engine.hooks.optimizer import Fp16OptimizerHook, OptimizerHook
from hookline.dialects.imix.engine.hooks.periodic_logger import PeriodicLogger
from hookline.dialects.imix.engine.hooks.periods.checkpoint import CheckPointHook
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferWriter
from hookline.dialects.imix.engine.settings import ABSENT, Settings
from hookline.dialects.imix.solver import build_lr_scheduler
from hookline.dialects.imix.utils.config import read
from hookline.errors import ConfigError, HookError
from hookline.runner.hook import Hook

#: The loggers for a config without `log_config.hooks`.
LOGGERS = ("CommonMetricLoggerHook", "JSONLoggerHook", "TensorboardLoggerHook")


def custom_hooks(settings: Settings) -> list[tuple[Any, Any]]:
    """Return the user's hooks, each with its level from the config or None. The config's dicts are not changed."""
    found = []
    given = read(settings.cfg, "custom_hooks") or []
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"custom_hooks must be a list of hooks or of dicts with 'type', not {given!r}")
    for each in given:
        if isinstance(each, Mapping):
            hook, level = HOOKS.build({key: each[key] for key in each if key != "level"}), each.get("level")
        else:
            hook, level = each, None
        if not isinstance(hook, (HookBase, Hook)):
            raise HookError(
                f"custom_hooks: {hook!r} is not a hook; use an object of a class that inherits from HookBase, or a "
                f"dict like dict(type={getattr(hook, '__name__', hook)!r})"
            )
        found.append((hook, level))
    return found


def default_hooks(settings: Settings, optimizer: Any, customs: Sequence[Any]) -> list[Any]:
    """Return the default hooks, without those that the user replaces with a custom hook of the same kind."""
    defaults: list[Any] = [
        _updater(settings),
        *_schedulers(settings, optimizer),
        _timer(settings),
        *_checkpoints(settings),
        *_loggers(settings, customs),
    ]
    kinds = (OptimizerHook, LRSchedulerHook, IterationTimerHook, CheckPointHook, PeriodicLogger)
    replaced = [kind for kind in kinds if any(isinstance(custom, kind) for custom in customs)]
    return [hook for hook in defaults if not isinstance(hook, tuple(replaced))]


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
        # In iMIX's own configs, the text logger in this list means the line on the screen.
        names = [{**each, "type": "CommonMetricLoggerHook"} if _is_text(each) else each for each in named]
        loggers = [build_hook(each) for each in names]
    others = [hook for hook in loggers if not isinstance(hook, LogBufferWriter)]
    return [PeriodicLogger([hook for hook in loggers if hook not in others]), *others]


def _is_text(given: Any) -> bool:
    return isinstance(given, Mapping) and given.get("type") == "TextLoggerHook"


def _can_write(name: str) -> bool:
    """Return whether the libraries that a logger needs are installed. TensorBoard is an optional extra."""
    if name != "TensorboardLoggerHook":
        return True
    from importlib.util import find_spec

    return find_spec("tensorboard") is not None and find_spec("google_crc32c") is not None
