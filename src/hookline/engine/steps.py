"""The user's step: how it is called, what it may give back, and two steps that many runs can use as they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hookline.errors import HooklineError

WHAT_TO_RETURN = (
    "return the loss as a tensor with one element, or a mapping with 'loss' in it (or entries whose names contain "
    "'loss', which are added up), or (outputs, loss)"
)


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    """A training step for classification: the mean cross entropy of a batch `(inputs, classes)`."""
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)


def predict(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """An evaluation step for batches `(inputs, target)`: what the model says, and what is right."""
    inputs, target = batch
    return model(inputs), target


def call_model(model: nn.Module, batch: Any) -> Any:
    """The step where none is given: a mapping as keywords, a tuple or list as arguments, anything else as it is."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


def updates_itself(step: Callable[..., Any]) -> bool:
    """Whether a step makes its own updates: it has a parameter named `optim`."""
    try:
        return "optim" in inspect.signature(step).parameters
    except (TypeError, ValueError):  # a callable without a readable signature
        return False


def as_outputs(result: Any) -> dict[str, Any]:
    """What a step gave, as the dict that hooks see, with the loss in it under `loss`."""
    if isinstance(result, Tensor):
        outputs: dict[str, Any] = {"loss": result}
    elif isinstance(result, Mapping):
        outputs = dict(result)
        if "loss" not in outputs:
            outputs["loss"] = _sum_of_losses(outputs)
    elif isinstance(result, (tuple, list)) and len(result) == 2:
        given, loss = result
        outputs = {**given, "loss": loss} if isinstance(given, Mapping) else {"outputs": given, "loss": loss}
    else:
        raise HooklineError(f"the step gave {describe(result)}; {WHAT_TO_RETURN}")
    loss = outputs["loss"]
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise HooklineError(f"the loss of the step is {describe(loss)}; {WHAT_TO_RETURN}")
    return outputs


def own_outputs(result: Any) -> dict[str, Any]:
    """What a step that makes its own updates gave: nothing is fine, and so are numbers that contain no loss."""
    if result is None:
        return {}
    if result.__class__ is dict:  # the usual case, without detours
        loss = result.get("loss")
        if loss.__class__ is Tensor and loss.numel() == 1:
            return {**result}
    if isinstance(result, Mapping) and "loss" not in result and not any("loss" in str(name) for name in result):
        return dict(result)
    return as_outputs(result)


def explain_backward(error: RuntimeError, loss: Any) -> None:
    """Say what to do about a loss that has no gradient, where that is why its backward pass failed."""
    if isinstance(loss, Tensor) and not loss.requires_grad:
        raise HooklineError(
            "the loss has no gradient: it was detached (.item(), .detach(), no_grad), or no parameter of the model "
            "that asks for one took part in it; return the loss as the model's outputs gave it"
        ) from error


def _sum_of_losses(outputs: Mapping[str, Any]) -> Any:
    losses = [value for name, value in outputs.items() if "loss" in name]
    if not losses:
        raise HooklineError(f"the step gave a mapping with {sorted(outputs)}, and no loss in it; {WHAT_TO_RETURN}")
    return sum(torch.as_tensor(loss) for loss in losses)


def describe(value: Any) -> str:
    """What a value is, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
