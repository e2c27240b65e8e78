"""The parts of a run out of what its config says; the dicts of the user stay as they are."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from hookline.common.checks import check_int
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import HOOKS, LOOPS, MODELS
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.errors import HookError, did_you_mean, nearest
from hookline.plan.hook import Hook

#: The hooks that every run has, by the key that `default_hooks` changes them with.
DEFAULT_HOOKS: dict[str, dict[str, Any]] = {
    "runtime_info": {"type": "RuntimeInfoHook"},
    "timer": {"type": "IterTimerHook"},
    "sampler_seed": {"type": "DistSamplerSeedHook"},
    "logger": {"type": "LoggerHook"},
    "param_scheduler": {"type": "ParamSchedulerHook"},
    "checkpoint": {"type": "CheckpointHook", "interval": 1},
}
RANDOMNESS = ("seed", "diff_rank_seed", "deterministic")
#: A new key in `default_hooks` is one more hook, unless it is as close as this to a known one.
TOO_CLOSE = 0.8

#: What `Runner.from_cfg` takes out of a config besides `cfg` itself.
RUNNER_KEYS = (
    *("model", "work_dir", "train_dataloader", "val_dataloader", "test_dataloader", "train_cfg", "val_cfg", "test_cfg"),
    *("auto_scale_lr", "optim_wrapper", "param_scheduler", "val_evaluator", "test_evaluator", "default_hooks"),
    *("custom_hooks", "data_preprocessor", "load_from", "resume", "launcher", "env_cfg", "log_processor", "log_level"),
    *("visualizer", "default_scope", "randomness", "experiment_name"),
)


def refuse_incomplete(**stages: Mapping[str, Any]) -> None:
    """Training, validation and test each need all of their parts, or none."""
    for stage, parts in stages.items():
        given = [name for name, value in parts.items() if value is not None]
        missing = [name for name, value in parts.items() if value is None]
        if given and missing:
            raise ConfigValueError(
                f"for {stage}, give {', '.join(parts)}, or none of them; {', '.join(missing)} is missing"
            )


def only_one_process(launcher: str) -> str:
    """Refuse what is not there yet."""
    if launcher != "none":
        raise ConfigValueError(
            f"launcher is {launcher!r}, and training over several processes is not supported yet; give 'none'"
        )
    return launcher


def randomness(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What `set_randomness` is called with."""
    for name in given or {}:
        if name not in RANDOMNESS:
            raise ConfigValueError(f"randomness has no '{name}'; {did_you_mean(name, RANDOMNESS)}")
    found = {"seed": None, **(given or {})}
    if found["seed"] is not None:
        check_int("randomness: seed", found["seed"], least=0)
    return found


def refuse_wrong_types(work_dir: Any, resume: Any, custom_hooks: Any) -> None:
    """Refuse what would fail much later, or not at all."""
    if not isinstance(work_dir, (str, os.PathLike)):
        raise ConfigTypeError(f"work_dir is the path of a folder, not {work_dir!r}")
    if not isinstance(resume, (bool, type(None))):
        raise ConfigTypeError(f"resume is True or False, not {resume!r}; load_from says from which checkpoint")
    if custom_hooks is not None and (
        isinstance(custom_hooks, (str, Mapping)) or not isinstance(custom_hooks, Sequence)
    ):
        raise ConfigTypeError(f"custom_hooks is a list of hooks, or of dicts with a 'type', not {custom_hooks!r}")


def with_preprocessor(model: Any, data_preprocessor: Any) -> Any:
    """A data_preprocessor of the run is for a model that is described and has none."""
    if data_preprocessor is None or not isinstance(model, Mapping):
        return model
    return {"data_preprocessor": data_preprocessor, **model}


def build_model(given: Any) -> nn.Module:
    """The model, out of a dict that describes it."""
    if isinstance(given, Mapping):
        given = MODELS.build(given)
    if not isinstance(given, nn.Module):
        raise ConfigTypeError(f"the model is a torch.nn.Module, or a dict that describes one, not {given!r}")
    return given


def refuse_without(model: nn.Module, step: str) -> None:
    """Refuse a model that the loops cannot ask."""
    if not callable(getattr(model, step, None)):
        raise ConfigTypeError(
            f"{type(model).__name__} has no {step}, which its loop calls; inherit from "
            "hookline.dialects.mmengine.model.BaseModel, or write one"
        )


def build_train_loop(given: Any, runner: Any, dataloader: Any) -> TrainLoop:
    """The training loop: of `type`, or by epochs unless `by_epoch` says otherwise."""
    if isinstance(given, TrainLoop):
        return given
    described = dict(_mapping("train_cfg", given))
    if "type" in described and "by_epoch" in described:
        raise ConfigValueError("train_cfg: give type or by_epoch, not both")
    by_epoch = described.pop("by_epoch", True)
    described.setdefault("type", "EpochBasedTrainLoop" if by_epoch else "IterBasedTrainLoop")
    built = LOOPS.build(described, default_args={"runner": runner, "dataloader": dataloader})
    if not isinstance(built, TrainLoop):
        raise ConfigTypeError(f"train_cfg describes a {type(built).__name__}, which is no training loop")
    return built


def build_eval_loop(given: Any, runner: Any, dataloader: Any, evaluator: Any, stage: str) -> EvalLoop:
    """The loop of a validation or a test."""
    if isinstance(given, EvalLoop):
        return given
    described = dict(_mapping(f"{stage}_cfg", given))
    described.setdefault("type", "ValLoop" if stage == "val" else "TestLoop")
    more = {"runner": runner, "dataloader": dataloader, "evaluator": evaluator}
    built = LOOPS.build(described, default_args=more)
    if not isinstance(built, EvalLoop):
        raise ConfigTypeError(f"{stage}_cfg describes a {type(built).__name__}, which is no evaluation loop")
    return built


def _mapping(name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"{name} is a loop, or a dict that describes one, not {given!r}")
    return given


def default_hooks(changes: Mapping[str, Any] | None) -> Iterator[Any]:
    """The default hooks with the user's changes, and what has a key of its own."""
    chosen: dict[str, Any] = dict(DEFAULT_HOOKS)
    for key, value in (changes or {}).items():
        if key not in DEFAULT_HOOKS and (meant := nearest(key, DEFAULT_HOOKS, TOO_CLOSE)):
            raise HookError(f"no default hook is called '{key}'; did you mean '{meant}'?")
        if key in DEFAULT_HOOKS and isinstance(value, Mapping) and "type" not in value:
            value = {"type": DEFAULT_HOOKS[key]["type"], **value}
        if isinstance(value, Mapping) and "type" not in value:
            raise HookError(
                f"no default hook is called '{key}'; available: {', '.join(DEFAULT_HOOKS)}. One more hook is a hook, "
                "or a dict with a 'type'"
            )
        chosen[key] = value
    yield from (value for value in chosen.values() if value is not None)


def build_hook(given: Any) -> tuple[Any, Any, Any]:
    """A hook, and what its dict says about its priority and about failures."""
    placed = tolerance = None
    if isinstance(given, str):
        given = {"type": given}
    if isinstance(given, Mapping):
        described = dict(given)
        placed, tolerance = described.pop("priority", None), described.pop("on_error", None)
        given = HOOKS.build(described)
    if isinstance(given, type) or (not isinstance(given, Hook) and not hasattr(given, "get_triggered_stages")):
        raise HookTypeError(f"a hook inherits from Hook, or is a dict with a 'type', and {given!r} is neither")
    return given, placed, tolerance


def tell_folder(hook: Any) -> None:
    """A CheckpointHook of the package mmengine saves into `out_dir`, too, where a resumed run has to look."""
    given = getattr(hook, "out_dir", None)
    if type(hook).__name__ == "CheckpointHook" and not hasattr(hook, "checkpoint_folder") and given is not None:
        hook.checkpoint_folder = lambda runner: Path(given) / runner.work_dir.resolve().name


class HookTypeError(HookError, TypeError):
    """Something that is no hook."""


def level_of(log_level: int | str) -> int:
    """A level of logging as a number."""
    level = logging.getLevelName(log_level) if isinstance(log_level, str) else log_level
    if not isinstance(level, int):
        raise ConfigValueError(f"log_level is a level of logging such as 'INFO', not {log_level!r}")
    return level
