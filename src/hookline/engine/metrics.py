"""Metrics of an evaluation: torchmetrics objects, or plain callables, which are averaged over the samples."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common.escape import escaped
from hookline.common.numbers import count
from hookline.data.weights import batch_size
from hookline.engine.steps import describe
from hookline.errors import ConfigError, HooklineError
from hookline.record.history import read_numbers

log = logging.getLogger("hookline")


def accuracy(preds: Tensor, target: Tensor) -> Tensor:
    """Return the share of samples whose largest output is at the correct class.

    >>> accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])).item()
    0.5
    """
    if not isinstance(preds, Tensor):
        raise HooklineError(
            f"accuracy needs a tensor of outputs, but the predictions of the step are a {type(preds).__name__}; write "
            "a step that returns (preds, target)"
        )
    return (preds.argmax(dim=-1) == target).float().mean()


#: How many values stay on their device before they are added up.
KEPT = 1000


class Average:
    """The mean of a number over samples. Values stay on their device until there are many, or until they are needed."""

    def __init__(self) -> None:
        self._values: list[float | Tensor] = []
        self._weights: list[float] = []
        self._sums = torch.zeros(2, dtype=torch.float64)

    def update(self, value: Any, weight: float) -> None:
        """Add the mean of one batch. A batch of weight 0 is left out: its mean may be NaN."""
        if not weight:
            return
        if value.__class__ is not Tensor or value.ndim or value.requires_grad:
            tensor = torch.as_tensor(value).detach()
            value = tensor.float().mean() if tensor.numel() > 1 else tensor.reshape(())
        # A copy, because the function may write its next result into the same tensor.
        self._values.append(float(value) if value.is_cpu else value.clone())
        self._weights.append(weight)
        if len(self._values) == KEPT:
            self._add_up()

    def sums(self) -> Tensor:
        """Return the sum over all samples, and their number."""
        self._add_up()
        return self._sums

    def _add_up(self) -> None:
        values = torch.tensor(read_numbers(self._values), dtype=torch.float64)
        weights = torch.tensor(self._weights, dtype=torch.float64)
        self._sums = self._sums + torch.stack([(values * weights).sum(), weights.sum()])
        self._values, self._weights = [], []


def mean_of(sums: Tensor) -> float:
    """Return the mean from a sum over samples, and their number."""
    return float(sums[0] / sums[1])


class Metrics:
    """The metrics of one evaluation loop: `reset` at its start, `update` for each batch, `compute` at its end."""

    def __init__(self, metrics: Mapping[str, Any] | Any | None) -> None:
        if metrics is None:
            metrics = {}
        if not isinstance(metrics, Mapping) or hasattr(metrics, "compute"):
            metrics = {"": metrics}  # a MetricCollection names its metrics itself
        self._metrics = dict(metrics)
        #: The results about which a warning was shown.
        self._reported: set[str] = set()
        for name, metric in self._metrics.items():
            if not hasattr(metric, "update") and not callable(metric):
                raise HooklineError(f"the metric '{name}' must be callable, or have update and compute, not {metric!r}")

    @property
    def has_functions(self) -> bool:
        """Return whether a metric is a function, whose results are averaged."""
        return any(not hasattr(metric, "compute") for metric in self._metrics.values())

    @property
    def names(self) -> list[str]:
        """Return the names of the metrics. One that names its results itself is shown as its class."""
        return [name or type(metric).__name__ for name, metric in self._metrics.items()]

    def copies(self) -> tuple[Metrics, list[str]]:
        """Return copies of the metrics for a trial, and reports of those that are left out because they have no copy.

        A function with a closure may remember something there, which has no copy either, and so may an object whose
        copy is itself. The only result of these is known without a call: a number with the name of the metric.
        """
        copied, reports = Metrics(None), []
        copied._reported = self._reported
        for name, metric in self._metrics.items():
            try:
                if hasattr(metric, "compute"):
                    copied._metrics[name] = copy_of(metric)
                else:
                    copied._metrics[name] = _no_result if _may_remember(metric) else deepcopy(metric)
            except Exception as error:
                reports.append(f"'{name or type(metric).__name__}' ({type(error).__name__}: {error})")
        return copied, reports

    def memories(self) -> dict[str, Any]:
        """Return the metrics whose state outlives an evaluation: those with `state_dict` and `load_state_dict`.

        Modules are left out: they all have these methods. torchmetrics modules are reset for every evaluation.
        """
        return {name: metric for name, metric in self._metrics.items() if has_memory(metric)}

    def reset(self, device: torch.device) -> None:
        """Start from scratch, on the device of the run."""
        self._averages: dict[str, Average] = {}
        for metric in self._stateful():
            if hasattr(metric, "to"):
                metric.to(device)
            metric.reset()

    def shares(self, other: Metrics) -> bool:
        """Return whether other metrics are these, or have an object of these."""
        return self is other or any(one is each for one in self._stateful() for each in other._stateful())

    def _stateful(self) -> list[Any]:
        return [metric for metric in self._metrics.values() if hasattr(metric, "compute")]

    def update(self, outputs: Any, batch: Any, weight: float, check: bool = False) -> None:
        """Update with the outputs of the evaluation step: a tuple is passed as arguments, a mapping as keywords.

        In an average, the batch has this weight. `check` refuses the result of a function that has another length than
        the batch.
        """
        for name, metric in self._metrics.items():
            take = metric.update if hasattr(metric, "compute") else metric
            try:
                value = _call(take, outputs)
            except Exception as error:
                if isinstance(error, TypeError):
                    _refuse_wrong_outputs(name, take, outputs, error)
                error.add_note(f"in the metric '{name}', called with the result of the evaluation step")
                raise
            if take is metric:
                value = _check_mean(name, value)
                if check:
                    _check_length(name, value, outputs, batch)
                try:
                    self._average(name).update(value, weight)
                except RuntimeError as error:  # a sparse tensor, for example
                    raise _no_mean(name, value) from error

    def _average(self, name: str) -> Average:
        if name not in self._averages:  # creating an average costs more than adding to it
            self._averages[name] = Average()
        return self._averages[name]

    def compute(
        self, total: Callable[[Tensor], Tensor] = lambda value: value, losses: Average | None = None
    ) -> dict[str, Any]:
        """Return all results by name, and the mean of the losses. A metric with several results names them itself.

        `total` sums a tensor over all processes, for functions and losses. A torchmetrics object does this itself.
        """
        means = self._means(total, losses)
        results: dict[str, Any] = {}
        for name, metric in self._metrics.items():
            results |= self._results(name, metric, means)
        return results if losses is None else results | {"loss": means[None]}

    def try_compute(self) -> tuple[dict[str, Any], dict[str, Exception]]:
        """Return the results of this process alone after one batch, and the errors of metrics that have none yet.

        Such a metric may need more than one batch. A result that is no number is refused all the same.
        """
        means = self._means(lambda value: value, None)
        results: dict[str, Any] = {}
        failed: dict[str, Exception] = {}
        for name, metric in self._metrics.items():
            try:
                results |= self._results(name, metric, means)
            except ConfigError:
                raise
            except Exception as error:
                failed[name] = error
        return results, failed

    def _results(self, name: str, metric: Any, means: Mapping[str | None, float]) -> dict[str, Any]:
        """Return the results of one metric by name."""
        value = metric.compute() if hasattr(metric, "compute") else means[name]
        if isinstance(value, Mapping) and value:
            found = {f"{name}/{key}" if name else key: inner for key, inner in value.items()}
        else:
            found = {name or type(metric).__name__: value}
        return {label: as_result(label, result, self._reported) for label, result in found.items()}

    def _means(self, total: Callable[[Tensor], Tensor], losses: Average | None) -> dict[str | None, float]:
        """Return the means of the functions by name, and of the losses as None, after one exchange for all of them."""
        sums: dict[str | None, Tensor] = {
            name: self._sums(name) for name, metric in self._metrics.items() if not hasattr(metric, "compute")
        }
        if losses is not None:
            sums[None] = losses.sums()
        return dict(zip(sums, map(mean_of, total(torch.stack(list(sums.values())))), strict=True)) if sums else {}

    def _sums(self, name: str) -> Tensor:
        try:
            return self._average(name).sums()
        except (ConfigError, RuntimeError) as error:  # a tensor on the device meta, for example
            raise ConfigError(f"the metric '{escaped(name)}' has no mean over the batches: {error}") from error


def as_result(name: str, value: Any, reported: set[str]) -> Any:
    """Return the result of a metric as a number, if it is one. Refuse what is neither a number nor an array.

    Arrays are passed to hooks, but are not recorded. The first one of each metric is reported.
    """
    value = as_number(plain(value))
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < sys.float_info.max):
        return value
    size = value.numel() if isinstance(value, Tensor) else getattr(value, "size", 0)
    complex_tensor = isinstance(value, Tensor) and (value.is_complex() or value.is_meta)
    if not hasattr(value, "shape") or not size or complex_tensor:
        found = "an int that no float can hold" if isinstance(value, int) else describe(value)
        raise ConfigError(
            f"the metric '{escaped(name)}' must be a number, a tensor, or a mapping of names to these, not {found}"
        )
    if name not in reported:
        reported.add(name)
        log.warning(
            "the metric '%s' is %s: hooks receive it, but it is not recorded; return one number to record it",
            *(name, describe(value)),
        )
    return value


def copy_of(metric: Any, known: dict[int, Any] | None = None) -> Any:
    """Return a copy of a metric object. Refuse one that copies as itself."""
    copied = deepcopy(metric, known)
    if copied is metric:
        raise TypeError("its copy is the object itself")
    return copied


def _may_remember(metric: Any) -> bool:
    """Return whether a callable may keep something that a copy of it would share."""
    if isinstance(metric, (FunctionType, BuiltinFunctionType, type)):
        return bool(getattr(metric, "__closure__", None))
    return hasattr(type(metric), "__deepcopy__") and deepcopy(metric) is metric


def has_memory(metric: Any) -> bool:
    """Return whether a metric has a state of its own to save."""
    return hasattr(metric, "state_dict") and hasattr(metric, "load_state_dict") and not isinstance(metric, nn.Module)


def _check_mean(name: str, value: Any) -> Any:
    """Return the result of a function as it can be averaged over the samples. Refuse anything else."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
        return value  # the usual case, for every batch
    if isinstance(value, Mapping):
        raise ConfigError(
            f"the metric '{escaped(name)}' is a function and must return one number for a batch, not a mapping; for "
            "several numbers, use several functions, or an object with update, compute and reset"
        )
    value = as_number(value)
    try:
        tensor = torch.as_tensor(value)
        fine = tensor.numel() > 0 and not tensor.is_complex()
    except (TypeError, ValueError, RuntimeError):  # torch raises a different error for None, text and lists
        fine = False
    if not fine:
        raise _no_mean(name, value)
    return value


def _check_length(name: str, value: Any, outputs: Any, batch: Any) -> None:
    """Refuse several numbers that are not one per sample, or per element, of anything in the outputs or the batch."""
    tensor = torch.as_tensor(value)
    if tensor.numel() == 1 or tensor.shape[0] in _sizes(outputs) | _sizes(batch):
        return
    raise ConfigError(
        f"the metric '{escaped(name)}' is a function and must return one number for a batch, or one per sample, but "
        f"returned {describe(tensor)} for {count(batch_size(outputs, batch), 'sample')}; return its mean, or another "
        "single number"
    )


def _sizes(given: Any) -> set[int]:
    """Return the numbers of samples and of elements of the tensors and lists in what is given.

    The length of a tuple or list with tensors counts its parts, and not samples.
    """
    inner = list(given.values()) if isinstance(given, Mapping) else given
    parts = list(inner) if isinstance(inner, (tuple, list)) else [inner]
    tensors = [each for each in parts if isinstance(each, Tensor) and each.ndim]
    found = {size for each in tensors for size in (each.shape[0], each.numel())}
    found |= {len(each) for each in parts if isinstance(each, (tuple, list))}
    return found if tensors else found | {len(parts)}


def _no_mean(name: str, value: Any) -> ConfigError:
    return ConfigError(
        f"the metric '{escaped(name)}' must return a number, or a tensor of numbers, for a batch, not {describe(value)}"
    )


def _refuse_wrong_outputs(name: str, take: Callable[..., Any], outputs: Any, error: TypeError) -> None:
    """Raise an error that says what to return if a metric cannot be called with the outputs of the evaluation step."""
    try:
        parameters = inspect.signature(take)
    except (TypeError, ValueError):  # written in C, without a signature
        return
    try:
        _call(parameters.bind, outputs)
    except TypeError:
        plain_kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wanted = [
            each.name
            for each in parameters.parameters.values()
            if each.default is inspect.Parameter.empty and each.kind in plain_kinds
        ]
        raise ConfigError(
            f"the metric '{escaped(name)}' takes ({', '.join(wanted)}), but the evaluation step returned "
            f"{_describe_outputs(outputs)}; let the step return ({', '.join(wanted)})"
        ) from error


def _describe_outputs(outputs: Any) -> str:
    if isinstance(outputs, Mapping):
        return f"a mapping with the keys {', '.join(map(escaped, outputs))}"
    if isinstance(outputs, (tuple, list)):
        return f"{len(outputs)} values"
    return describe(outputs)


def _call(take: Callable[..., Any], outputs: Any) -> Any:
    if isinstance(outputs, (tuple, list)):
        return take(*outputs)
    if isinstance(outputs, Mapping):
        return take(**outputs)
    return take(outputs)


def _no_result(*outputs: Any, **named: Any) -> float:
    return 0.0


def plain(value: Any) -> Any:
    """Return a single number as a Python number, and any other tensor on the CPU."""
    if isinstance(value, Tensor):
        if value.is_meta:
            return value
        return value.item() if value.numel() == 1 else value.detach().cpu()
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "size", 0) == 1 else value


def as_number(value: Any) -> Any:
    """Return a number of any kind as an int or a float, and anything else as it is."""
    if isinstance(value, bool):
        return int(value)
    try:
        return float(value) if isinstance(value, (Decimal, Fraction)) else value
    except OverflowError:
        return value
