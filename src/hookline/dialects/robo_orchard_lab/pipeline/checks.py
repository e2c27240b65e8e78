"""Check the parts of a trainer before they are used. The error for a wrong part says what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from hookline.dialects.errors import SettingTypeError, SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import (
    SimpleBatchProcessor,
    refuse_misspelled_forward,
    refuse_wrong_forward,
)
from hookline.writers.extras import require_libraries

#: Placeholders that accelerate accepts for an optimizer and a scheduler if an engine such as DeepSpeed creates them.
STAND_INS = frozenset({"DummyOptim", "DummyScheduler"})


def check_limits(max_step: int | None, max_epoch: int | None) -> None:
    """Check that at least one limit is set, and that the limits are valid."""
    if max_step is None and max_epoch is None:
        raise SettingValueError("the trainer needs a limit: set max_step or max_epoch")
    for name, value in (("max_step", max_step), ("max_epoch", max_epoch)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SettingValueError(f"{name} must be an int of at least 1, not {value!r}")


def check_parts(accelerator: Any, model: Any, dataloader: Any, optimizer: Any, lr_scheduler: Any) -> None:
    """Check the types of all parts that accelerate prepares."""
    require_libraries("the trainer", "robo_orchard", "accelerate")
    from accelerate import Accelerator  # type: ignore[import-untyped]

    for name, value, kind, called in (
        ("accelerator", accelerator, Accelerator, "an accelerate.Accelerator"),
        ("model", model, torch.nn.Module, "a torch.nn.Module"),
        ("optimizer", optimizer, torch.optim.Optimizer, "a torch optimizer"),
    ):
        if not isinstance(value, kind) and type(value).__name__ not in STAND_INS:
            raise SettingTypeError(f"{name} must be {called}, not {_describe(value)}")
    if isinstance(dataloader, type) or not (hasattr(dataloader, "__iter__") or hasattr(dataloader, "__getitem__")):
        raise SettingTypeError(
            f"dataloader must be an iterable of batches, such as a DataLoader, not {_describe(dataloader)}"
        )
    steps = hasattr(lr_scheduler, "step") or type(lr_scheduler).__name__ in STAND_INS
    if lr_scheduler is not None and (isinstance(lr_scheduler, type) or not steps):
        raise SettingTypeError(f"lr_scheduler must be a torch scheduler or None, not {_describe(lr_scheduler)}")


def check_config(name: str, value: Any, kind: type, base: type) -> None:
    """Check a setting that must be a config or None.

    The config may be of any subclass of `base`. If it creates an object, that must be of the class that `kind` creates.
    """
    if value is None:
        return
    if isinstance(value, base):
        _check_product(name, value, kind)
        return
    fields = value if isinstance(value, Mapping) else {}
    written = ", ".join(f"{key}={item!r}" for key, item in fields.items()) or "..."
    if name == "resume_from" and isinstance(value, str):
        written = f"resume_from={value!r}"
    raise SettingTypeError(
        f"{name} must be a {kind.__name__}, not {_describe(value)}; write {name}={kind.__name__}({written})"
    )


def _check_product(name: str, config: Any, kind: Any) -> None:
    """Check that a config creates an object of the class that the setting needs."""
    if "class_type" not in kind.model_fields:
        return
    made, expected = config.class_type, kind.model_fields["class_type"].default
    if not issubclass(made, expected):
        raise SettingTypeError(
            f"{name} must create a {expected.__name__}, but {type(config).__name__} creates a {made.__name__}; write "
            f"{name}={kind.__name__}(...), and pass other hooks to the trainer as hooks=[...]"
        )


def check_processor(processor: Any) -> None:
    """Check that a batch processor can be called as the trainer calls it."""
    if isinstance(processor, type):
        raise SettingTypeError(f"batch_processor must be an object, not a class; write {processor.__name__}()")
    if not callable(processor):
        raise SettingTypeError(f"batch_processor must be a SimpleBatchProcessor, not {_describe(processor)}")
    try:
        inspect.signature(processor).bind(pipeline_hooks=None, on_batch_hook_args=None, model=None)
    except ValueError:  # some callables have no signature
        return
    except TypeError:
        raise SettingTypeError(
            f"batch_processor must be a SimpleBatchProcessor, not {FunctionInfo(processor)}; to use a function that "
            "takes the model and a batch, write SimpleBatchProcessor.from_callable(function)"
        ) from None
    if isinstance(processor, SimpleBatchProcessor) and type(processor).__call__ is SimpleBatchProcessor.__call__:
        _check_forward(processor)


def _check_forward(processor: SimpleBatchProcessor) -> None:
    """Check the forward of a processor. Its constructor may not have called the one of the base class."""
    refuse_misspelled_forward(processor)
    if getattr(processor.forward, "__func__", None) is SimpleBatchProcessor.forward:
        name = type(processor).__name__
        raise SettingTypeError(
            f"batch_processor is a {name}, which has no forward(model, batch); write a subclass that has one, or use "
            "SimpleBatchProcessor.from_callable(function)"
        )
    refuse_wrong_forward(processor.forward)


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
