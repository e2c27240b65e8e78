"""The forward pass of an engine: model and loss function, called with the arguments that their signatures ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from hookline.dialects.errors import SettingTypeError
from hookline.engine.steps import as_outputs
from hookline.errors import blame

#: The counters that iMIX's engine passes to a model along with the batch, and the engine's attributes for them.
COUNTERS = {"cur_epoch": "epoch", "cur_iter": "iter", "inner_iter": "inner_iter"}
#: Names of parameters that take the whole batch.
WHOLE = frozenset({"batch", "batch_data", "data", "data_batch", "inputs_dict", "samples"})

WITHOUT_LOSS_FN = (
    "without a loss_fn, the model gets the whole batch and must return its losses itself; for any other model, pass "
    "one to the engine: loss_fn=torch.nn.CrossEntropyLoss(), or any function of (output), (output, target) or "
    "(model, batch)"
)

Forward = Callable[[Any, Any], tuple[Any, Any]]


def build_forward(model: nn.Module, loss_fn: Callable[..., Any] | None) -> Forward:
    """Return a function `(engine, batch) -> (model output, losses)`. The signatures are read once, here.

    - `loss_fn(model, batch)` calls the model itself.
    - `loss_fn(output)` is iMIX's convention: the model gets the whole batch.
    - `loss_fn(output, target)` needs batches `(inputs, target)`: the model gets the inputs.
    - Without a `loss_fn`, the model returns the losses.
    """
    wants, takes_whole = _counters(model), _takes_whole(model)

    def call(engine: Any, given: Any) -> Any:
        if not wants:
            return engine.wrapped(given)
        return engine.wrapped(given, **{name: getattr(engine, value) for name, value in wants})

    if loss_fn is None:
        return _expect_losses(call, type(model).__name__, takes_whole)
    names = _positional(loss_fn)
    if names[:1] == ["model"] and len(names) == 2:
        return lambda engine, batch: (None, loss_fn(engine.wrapped, batch))
    if len(names) < 2:

        def whole(engine: Any, batch: Any) -> tuple[Any, Any]:
            output = call(engine, batch)
            return output, loss_fn(output)

        return whole
    gets_batch = names[1] in WHOLE

    def split(engine: Any, batch: Any) -> tuple[Any, Any]:
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        output = call(engine, batch[0] if pair and not takes_whole else batch)
        return output, loss_fn(output, batch[1] if pair and not gets_batch else batch)

    return split


def _expect_losses(call: Callable[[Any, Any], Any], name: str, takes_whole: bool) -> Forward:
    """Return the forward pass of a model that returns its losses itself."""

    def losses(engine: Any, batch: Any) -> tuple[Any, Any]:
        try:
            output = call(engine, batch)
        except TypeError as error:
            if not takes_whole and isinstance(batch, (tuple, list)) and engine.iter == engine.start_iter:
                blame(error, f"{name} was called with a whole batch, a {type(batch).__name__} of {len(batch)}")
                blame(error, WITHOUT_LOSS_FN)
            raise
        if isinstance(output, Tensor) and output.numel() != 1:
            raise SettingTypeError(
                f"{name} returned a tensor of shape {tuple(output.shape)}, not a loss; {WITHOUT_LOSS_FN}"
            )
        if isinstance(output, Mapping) and not any("loss" in str(key) for key in output):
            given = ", ".join(map(str, output)) or "an empty dict"
            raise SettingTypeError(f"{name} returned {given}, but no loss; {WITHOUT_LOSS_FN}")
        return output, output

    return losses


def as_output(losses: Any) -> dict[str, Any]:
    """Return the result of a loss function in the form of `trainer.output`."""
    if isinstance(losses, Tensor):
        return {"loss": losses}
    if isinstance(losses, Mapping):
        return dict(losses)
    return as_outputs(losses)


def _signature(function: Callable[..., Any]) -> list[inspect.Parameter]:
    inner = function.forward if isinstance(function, nn.Module) else function
    try:
        return list(inspect.signature(inner).parameters.values())
    except (TypeError, ValueError):  # a callable without a readable signature
        return []


def _positional(function: Callable[..., Any]) -> list[str]:
    """Return the names of the required positional parameters."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in _signature(function) if each.kind in kinds and each.default is each.empty]


def _counters(model: nn.Module) -> list[tuple[str, str]]:
    """Return the counters that the model takes. As in iMIX, a model with `**kwargs` gets all of them."""
    parameters = _signature(model)
    names = {each.name for each in parameters}
    everything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    return [(name, value) for name, value in COUNTERS.items() if everything or name in names]


def _takes_whole(model: nn.Module) -> bool:
    """Return whether the signature of a model shows that it takes whole batches."""
    names = [each.name for each in _signature(model)]
    return bool(_counters(model)) or (bool(names) and names[0] in WHOLE)
