"""What a trainer is made of, looked at before anything is done with it: a wrong part is refused with what to write."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from hookline.dialects.robo_orchard_core.refusals import SettingTypeError, SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import (
    SimpleBatchProcessor,
    refuse_misspelt_forward,
    refuse_wrong_forward,
)
from hookline.errors import ConfigError

#: What accelerate takes in the place of an optimizer and a scheduler, where an engine of its own makes them.
STAND_INS = frozenset({"DummyOptim", "DummyScheduler"})


def check_limits(max_step: int | None, max_epoch: int | None) -> None:
    """At least one of them says how long to train."""
    if max_step is None and max_epoch is None:
        raise SettingValueError("how long to train? Give max_step or max_epoch")
    for name, value in (("max_step", max_step), ("max_epoch", max_epoch)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SettingValueError(f"{name} is how many there will be, at least 1, not {value!r}")


def check_parts(accelerator: Any, model: Any, dataloader: Any, optimizer: Any, lr_scheduler: Any) -> None:
    """Everything that accelerate prepares is what it has to be."""
    try:
        from accelerate import Accelerator  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            "the trainer needs accelerate, which is not installed: pip install 'hookline[robo_orchard]'"
        ) from error
    for name, value, kind, called in (
        ("accelerator", accelerator, Accelerator, "an accelerate.Accelerator"),
        ("model", model, torch.nn.Module, "a torch.nn.Module"),
        ("optimizer", optimizer, torch.optim.Optimizer, "an optimizer of torch"),
    ):
        if not isinstance(value, kind) and type(value).__name__ not in STAND_INS:
            raise SettingTypeError(f"{name} is {called}, not {_shown(value)}")
    if isinstance(dataloader, type) or not (hasattr(dataloader, "__iter__") or hasattr(dataloader, "__getitem__")):
        raise SettingTypeError(f"dataloader gives batches again and again, as a DataLoader, not {_shown(dataloader)}")
    steps = hasattr(lr_scheduler, "step") or type(lr_scheduler).__name__ in STAND_INS
    if lr_scheduler is not None and (isinstance(lr_scheduler, type) or not steps):
        raise SettingTypeError(f"lr_scheduler is a scheduler of torch, or None, not {_shown(lr_scheduler)}")


def check_config(name: str, value: Any, kind: type, base: type) -> None:
    """A setting that is a config is one, or none.

    It may be of any class that is derived from `base`; where it makes something, of the kind that `kind` makes.
    """
    if value is None:
        return
    if isinstance(value, base):
        _check_made(name, value, kind)
        return
    fields = value if isinstance(value, Mapping) else {}
    written = ", ".join(f"{key}={item!r}" for key, item in fields.items()) or "..."
    if name == "resume_from" and isinstance(value, str):
        written = f"resume_from={value!r}"
    raise SettingTypeError(f"{name} is a {kind.__name__}, not {_shown(value)}; write {name}={kind.__name__}({written})")


def _check_made(name: str, config: Any, kind: Any) -> None:
    """A config makes what the setting is for."""
    if "class_type" not in kind.model_fields:
        return
    made, expected = config.class_type, kind.model_fields["class_type"].default
    if not issubclass(made, expected):
        raise SettingTypeError(
            f"{name} makes a {expected.__name__}, and {type(config).__name__} makes a {made.__name__}; write "
            f"{name}={kind.__name__}(...), and give other hooks to the trainer as hooks=[...]"
        )


def check_processor(processor: Any) -> None:
    """It can be called as the trainer calls it."""
    if isinstance(processor, type):
        raise SettingTypeError(f"batch_processor is a processor, not the class of one; write {processor.__name__}()")
    if not callable(processor):
        raise SettingTypeError(f"batch_processor is a SimpleBatchProcessor, not {_shown(processor)}")
    try:
        inspect.signature(processor).bind(pipeline_hooks=None, on_batch_hook_args=None, model=None)
    except ValueError:  # some callables cannot say what they take
        return
    except TypeError:
        raise SettingTypeError(
            f"batch_processor is a SimpleBatchProcessor, not {FunctionInfo(processor)}; of a function that takes the "
            "model and a batch, SimpleBatchProcessor.from_callable(function) makes one"
        ) from None
    if isinstance(processor, SimpleBatchProcessor) and type(processor).__call__ is SimpleBatchProcessor.__call__:
        _check_forward(processor)


def _check_forward(processor: SimpleBatchProcessor) -> None:
    """A processor that calls its forward has one; its constructor need not have called that of its base."""
    refuse_misspelt_forward(processor)
    if getattr(processor.forward, "__func__", None) is SimpleBatchProcessor.forward:
        name = type(processor).__name__
        raise SettingTypeError(
            f"batch_processor is a {name}, which has no forward(model, batch); derive a class that has one, or write "
            "SimpleBatchProcessor.from_callable(function)"
        )
    refuse_wrong_forward(processor.forward)


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
