"""The user's step: how it is called and what it may return, and two ready-made steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hookline.errors import HooklineError
from hookline.optim.refusals import refuse_complex

WHAT_TO_RETURN = (
    "return the loss as a tensor with one element, or a mapping with the key 'loss' (or with keys that contain 'loss', "
    "whose values are added up), or (outputs, loss)"
)


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean cross entropy of a batch `(inputs, classes)`: a training step for classification."""
    inputs, target = _pair(batch, "cross_entropy")
    outputs = model(inputs)
    if not isinstance(outputs, Tensor):
        raise HooklineError(
            f"the step cross_entropy needs a tensor of logits, but the model returned {describe(outputs)}; write a "
            f"step, a function of the model and a batch: {WHAT_TO_RETURN}"
        )
    return nn.functional.cross_entropy(outputs, target)


def predict(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Return the model's predictions and the targets: an evaluation step for batches `(inputs, target)`."""
    inputs, target = _pair(batch, "predict")
    return model(inputs), target


def _pair(batch: Any, step: str) -> tuple[Any, Any]:
    """Return the inputs and the target of a batch."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else describe(batch)
        raise HooklineError(
            f"the step {step} needs batches (inputs, target), but the loader yields {found}; write a step, a function "
            "of the model and a batch"
        )
    return batch[0], batch[1]


def call_model(model: nn.Module, batch: Any) -> Any:
    """Call the model with the batch: the default step.

    A mapping is passed as keywords, a tuple or list as arguments, and anything else unchanged.
    """
    try:
        if isinstance(batch, Mapping):
            return model(**batch)
        if isinstance(batch, (tuple, list)):
            return model(*batch)
        return model(batch)
    except TypeError as error:
        refuse_batch(model, batch, error)
        raise


def refuse_batch(model: nn.Module, batch: Any, error: TypeError) -> None:
    """Say what to write if the model was called with the batch, because there is no step, and does not accept it."""
    found = getattr(model, "module", model)  # of a wrapper for several processes
    try:
        accepts = inspect.signature(found.forward).bind
    except ValueError:  # it has no readable signature
        return
    try:
        if isinstance(batch, Mapping):
            accepts(**batch)
        else:
            accepts(*(batch if isinstance(batch, (tuple, list)) else (batch,)))
    except TypeError as why:
        raise HooklineError(
            "without a step, the model is called with the batch, which "
            f"{type(found).__name__}.forward does not accept: {why}; write a step, a function of the model and a "
            "batch, and set it: train.step, val.step or test.step"
        ) from error


def updates_itself(step: Callable[..., Any]) -> bool:
    """Return whether a step calls `optim.update` itself: then it has a parameter named `optim`."""
    try:
        return "optim" in inspect.signature(step).parameters
    except (TypeError, ValueError):  # a callable without a readable signature
        return False


def as_outputs(result: Any) -> dict[str, Any]:
    """Return the result of a step as the dict that hooks see, with the loss under `loss`."""
    if isinstance(result, Tensor):
        outputs: dict[str, Any] = {"loss": result}
    elif isinstance(result, Mapping):
        outputs = dict(result)
        if "loss" not in outputs:
            outputs["loss"] = _sum_of_losses(outputs)
    elif isinstance(result, (tuple, list)) and len(result) == 2:
        given, loss = result
        if _is_number(given) and _is_number(loss):
            raise HooklineError(
                "the step returned a pair of two single numbers, but only one of them can be the loss; return them by "
                'name: {"loss": loss, "aux": aux}'
            )
        outputs = {**given, "loss": loss} if isinstance(given, Mapping) else {"outputs": given, "loss": loss}
    else:
        raise HooklineError(f"the step returned {describe(result)}; {WHAT_TO_RETURN}")
    loss = outputs["loss"]
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise HooklineError(f"the loss of the step is {describe(loss)}; {WHAT_TO_RETURN}")
    return outputs


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and not value.ndim)


def own_outputs(result: Any) -> dict[str, Any]:
    """Return the result of a step that calls `optim.update` itself, as a dict. It may be None, or without a loss."""
    if result is None:
        return {}
    if result.__class__ is dict:  # a fast path for the usual case
        loss = result.get("loss")
        if loss.__class__ is Tensor and not loss.ndim and not loss.is_complex():
            return {**result}
    if isinstance(result, Mapping) and "loss" not in result and not any("loss" in str(name) for name in result):
        return dict(result)
    outputs = as_outputs(result)
    refuse_complex(outputs["loss"])
    return outputs


def _sum_of_losses(outputs: Mapping[str, Any]) -> Any:
    losses = [value for name, value in outputs.items() if "loss" in str(name)]
    if not losses:
        raise HooklineError(
            f"the step returned a mapping with {sorted(outputs, key=str)}, but without a loss; {WHAT_TO_RETURN}"
        )
    return sum(torch.as_tensor(loss) for loss in losses)


def describe(value: Any) -> str:
    """Return the type of a value, and the shape of a tensor, for a message."""
    if isinstance(value, Tensor):
        kind = "complex " * value.is_complex() + "sparse " * value.is_sparse
        return f"a {kind}tensor of shape {tuple(value.shape)}" + " on the device 'meta'" * value.is_meta
    if value is None:
        return "None"
    return f"{'an empty' if isinstance(value, Mapping) and not value else 'a'} {type(value).__name__}"
