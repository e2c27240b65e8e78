"""Build the parts of a run from its config. The user's dicts are never modified."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from hookline.common.checks import check_int
from hookline.dialects.errors import HookTypeError
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError, NotDescribedError
from hookline.dialects.mmengine.registry import HOOKS, LOOPS, MODELS
from hookline.dialects.mmengine.runner import adopted_loops
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.errors import HookError, did_you_mean, nearest
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    import torch

log = logging.getLogger("hookline")

#: The hooks of every run, by their key in `default_hooks`.
DEFAULT_HOOKS: dict[str, dict[str, Any]] = {
    "runtime_info": {"type": "RuntimeInfoHook"},
    "timer": {"type": "IterTimerHook"},
    "sampler_seed": {"type": "DistSamplerSeedHook"},
    "logger": {"type": "LoggerHook"},
    "param_scheduler": {"type": "ParamSchedulerHook"},
    "checkpoint": {"type": "CheckpointHook", "interval": 1},
}
RANDOMNESS = ("seed", "diff_rank_seed", "deterministic")
#: A new key in `default_hooks` adds a hook, unless it is at least this similar to a known key: then it is a typo.
TOO_CLOSE = 0.8


def refuse_incomplete(**stages: Mapping[str, Any]) -> None:
    """Refuse a stage (training, validation or test) that has some of its parts but not all of them."""
    for stage, parts in stages.items():
        given = [name for name, value in parts.items() if value is not None]
        missing = [name for name, value in parts.items() if value is None]
        if given and missing:
            raise ConfigValueError(
                f"for {stage}, set all of {', '.join(parts)}, or none of them; missing: {', '.join(missing)}"
            )


def refuse_sync_bn(device: torch.device) -> None:
    """Refuse synchronized batch norms where torch does not have them."""
    if device.type == "cpu":
        raise ConfigValueError(
            "sync_bn needs a GPU, but this run trains on the CPU; remove it, and average the statistics after every "
            "epoch with custom_hooks=[dict(type='SyncBuffersHook')]"
        )


def randomness(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the validated arguments of `set_randomness`."""
    for name in given or {}:
        if name not in RANDOMNESS:
            raise ConfigValueError(f"randomness has no option '{name}'; {did_you_mean(name, RANDOMNESS)}")
    found = {"seed": None, **(given or {})}
    if found["seed"] is not None:
        check_int("randomness: seed", found["seed"], least=0)
    return found


def report_unused_settings(cfg: Mapping[str, Any]) -> None:
    """Report settings of a config that make training faster in MMEngine, and change nothing here."""
    for name in ("compile", "efficient_conv_bn_eval"):
        if cfg.get(name):
            log.warning("the config has '%s', which has no effect here; the model trains as it is", name)


def refuse_wrong_types(work_dir: Any, resume: Any, custom_hooks: Any) -> None:
    """Refuse arguments of wrong types, which would otherwise fail much later or not at all."""
    if not isinstance(work_dir, (str, os.PathLike)):
        raise ConfigTypeError(f"work_dir must be the path of a folder, not {work_dir!r}")
    if not isinstance(resume, (bool, type(None))):
        raise ConfigTypeError(f"resume must be True or False, not {resume!r}; use load_from to name a checkpoint")
    if custom_hooks is not None and (
        isinstance(custom_hooks, (str, Mapping)) or not isinstance(custom_hooks, Sequence)
    ):
        raise ConfigTypeError(f"custom_hooks must be a list of hooks or of dicts with a 'type', not {custom_hooks!r}")


def with_preprocessor(model: Any, data_preprocessor: Any) -> Any:
    """Add the run's data_preprocessor to a model that is given as a dict without one."""
    if data_preprocessor is None or not isinstance(model, Mapping):
        return model
    return {"data_preprocessor": data_preprocessor, **model}


def build_model(given: Any) -> nn.Module:
    """Return the model, and build it if it is given as a dict."""
    if isinstance(given, Mapping):
        given = MODELS.build(given)
    if not isinstance(given, nn.Module):
        raise ConfigTypeError(f"the model must be a torch.nn.Module or a dict that describes one, not {given!r}")
    return given


def refuse_without(model: nn.Module, step: str) -> None:
    """Refuse a model without the method that its loop calls."""
    if not callable(getattr(model, step, None)):
        raise ConfigTypeError(
            f"{type(model).__name__} has no method {step}, which its loop calls; inherit from "
            "hookline.dialects.mmengine.model.BaseModel, or add the method"
        )


def build_train_loop(given: Any, runner: Any, dataloader: Any) -> TrainLoop:
    """Return the training loop: the one named by `type`, or an epoch-based one unless `by_epoch` is false."""
    if isinstance(given, (TrainLoop, BaseLoop)):
        return _as_train_loop(given)
    described = dict(_check_mapping("train_cfg", given))
    if "type" in described and "by_epoch" in described:
        raise NotDescribedError("train_cfg: set type or by_epoch, not both")
    by_epoch = described.pop("by_epoch", True)
    described.setdefault("type", "EpochBasedTrainLoop" if by_epoch else "IterBasedTrainLoop")
    built = LOOPS.build(described, default_args={"runner": runner, "dataloader": dataloader})
    return _as_train_loop(built)


def _as_train_loop(given: Any) -> TrainLoop:
    if isinstance(given, TrainLoop):
        return given
    if isinstance(given, BaseLoop) and not isinstance(given, EvalLoop):
        return adopted_loops.adopt_train_loop(given)
    raise ConfigTypeError(f"train_cfg describes a {type(given).__name__}, which is not a training loop")


def build_eval_loop(given: Any, runner: Any, dataloader: Any, evaluator: Any, stage: str) -> EvalLoop:
    """Return the loop of a validation or a test."""
    if isinstance(given, (EvalLoop, BaseLoop)):
        return _as_eval_loop(given, stage)
    described = dict(_check_mapping(f"{stage}_cfg", given))
    described.setdefault("type", "ValLoop" if stage == "val" else "TestLoop")
    more = {"runner": runner, "dataloader": dataloader, "evaluator": evaluator}
    return _as_eval_loop(LOOPS.build(described, default_args=more), stage)


def _as_eval_loop(given: Any, stage: str) -> EvalLoop:
    if isinstance(given, EvalLoop):
        return given
    if isinstance(given, BaseLoop) and not isinstance(given, TrainLoop):
        return adopted_loops.adopt_eval_loop(given, stage)
    raise ConfigTypeError(f"{stage}_cfg describes a {type(given).__name__}, which is not an evaluation loop")


def _check_mapping(name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"{name} must be a loop or a dict that describes one, not {given!r}")
    return given


def default_hooks(changes: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield the default hooks with the user's changes, and additional hooks under new keys."""
    chosen: dict[str, Any] = dict(DEFAULT_HOOKS)
    for key, value in (changes or {}).items():
        if key not in DEFAULT_HOOKS and (meant := nearest(key, DEFAULT_HOOKS, TOO_CLOSE)):
            raise HookError(f"unknown default hook '{key}'; did you mean '{meant}'?")
        if key in DEFAULT_HOOKS and isinstance(value, Mapping) and "type" not in value:
            value = {"type": DEFAULT_HOOKS[key]["type"], **value}
        if isinstance(value, Mapping) and "type" not in value:
            raise HookError(
                f"unknown default hook '{key}'; available: {', '.join(DEFAULT_HOOKS)}. To add another hook, pass a "
                "hook object or a dict with a 'type'"
            )
        chosen[key] = value
    yield from (value for value in chosen.values() if value is not None)


def build_hook(given: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the hook, and the `priority`, the `on_error` and the budget of its dict."""
    priority = on_error = None
    budget: dict[str, Any] = {}
    if isinstance(given, str):
        given = {"type": given}
    if isinstance(given, Mapping):
        described = dict(given)
        priority, on_error = described.pop("priority", None), described.pop("on_error", None)
        budget = {key: described.pop(key) for key in ("budget",) if key in described}
        given = HOOKS.build(described)
    if isinstance(given, type) or (not isinstance(given, Hook) and not hasattr(given, "get_triggered_stages")):
        raise HookTypeError(f"a hook must inherit from Hook or be a dict with a 'type'; {given!r} is neither")
    return given, priority, on_error, budget


def tell_folder(hook: Any) -> None:
    """Make a resumed run look for checkpoints in the `out_dir` of a CheckpointHook from the mmengine package."""
    given = getattr(hook, "out_dir", None)
    if type(hook).__name__ == "CheckpointHook" and not hasattr(hook, "checkpoint_folder") and given is not None:
        hook.checkpoint_folder = lambda runner: Path(given) / runner.work_dir.resolve().name


def level_of(log_level: int | str) -> int:
    """Return a log level as a number."""
    level = logging.getLevelName(log_level) if isinstance(log_level, str) else log_level
    if not isinstance(level, int):
        raise ConfigValueError(f"log_level must be a log level such as 'INFO', not {log_level!r}")
    return level
