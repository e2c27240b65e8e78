"""Weight initialization: functions for one module, and initializers for the modules of a model that a config selects.

    init_cfg = dict(type="Kaiming", layer="Conv2d")
    init_cfg = [dict(type="Normal", std=0.01, layer="Linear"), dict(type="Constant", val=1, layer="BatchNorm2d")]

An initializer changes the modules of the classes in `layer`, children first. Without `layer`, it changes nothing.
`override` has settings for the child with the given `name`, and for everything in it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import WEIGHT_INITIALIZERS

log = logging.getLogger("hookline")


def _fill(module: nn.Module, fill: Any, bias: float) -> None:
    weight, own = getattr(module, "weight", None), getattr(module, "bias", None)
    if isinstance(weight, Tensor):
        fill(weight)
    if isinstance(own, Tensor):
        nn.init.constant_(own, bias)


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    """Set all weights to one value."""
    _fill(module, lambda weight: nn.init.constant_(weight, val), bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    """Draw the weights from a normal distribution."""
    _fill(module, lambda weight: nn.init.normal_(weight, mean, std), bias)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    """Draw the weights from a normal distribution, truncated to the range from a to b."""
    _fill(module, lambda weight: trunc_normal_(weight, mean, std, a, b), bias)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Draw from a normal distribution, truncated to the range from a to b, by inverting its cumulative distribution."""

    def cumulative(bound: float) -> float:
        return (1.0 + math.erf((bound - mean) / std / math.sqrt(2.0))) / 2.0

    with torch.no_grad():
        tensor.uniform_(2 * cumulative(a) - 1, 2 * cumulative(b) - 1).erfinv_()
        return tensor.mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    """Draw the weights uniformly between a and b."""
    _fill(module, lambda weight: nn.init.uniform_(weight, a, b), bias)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal") -> None:
    """Initialize the weights by Glorot's (Xavier) rule."""
    fill = {"normal": nn.init.xavier_normal_, "uniform": nn.init.xavier_uniform_}[_check_distribution(distribution)]
    _fill(module, lambda weight: fill(weight, gain=gain), bias)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: Any = "fan_out",
    nonlinearity: Any = "relu",
    bias: float = 0,
    distribution: str = "normal",
) -> None:
    """Initialize the weights by He's (Kaiming) rule."""
    fill = {"normal": nn.init.kaiming_normal_, "uniform": nn.init.kaiming_uniform_}[_check_distribution(distribution)]
    _fill(module, lambda weight: fill(weight, a=a, mode=mode, nonlinearity=nonlinearity), bias)


def caffe2_xavier_init(module: nn.Module, bias: float = 0) -> None:
    """Initialize the weights as Caffe2 does."""
    kaiming_init(module, a=1, mode="fan_in", nonlinearity="leaky_relu", bias=bias, distribution="uniform")


def bias_init_with_prob(prior_prob: float) -> float:
    """Return the bias that makes a sigmoid start at the given probability.

    >>> round(bias_init_with_prob(0.01), 4)
    -4.5951
    """
    return float(-np.log((1 - prior_prob) / prior_prob))


def _check_distribution(distribution: str) -> str:
    if distribution not in ("normal", "uniform"):
        raise ConfigValueError(f"the distribution of weights must be 'normal' or 'uniform', not {distribution!r}")
    return distribution


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Do nothing: hookline does not record how weights were initialized."""


class BaseInit:
    """Initializes modules of a model. A subclass sets the function to use.

    Args:
        bias: The initial value of biases.
        bias_prob: Replaces `bias`: the probability at which a sigmoid starts.
        layer: Class names of the modules to change, or of their direct bases.
        **settings: Arguments of the function.
    """

    function: Any = None
    needed: tuple[str, ...] = ()
    #: Whether to change all modules, whatever their classes: so for the module that `override` names.
    wholemodule = False

    def __init__(
        self, *, bias: float = 0, bias_prob: float | None = None, layer: str | list[str] | None = None, **settings: Any
    ) -> None:
        self.bias = bias if bias_prob is None else bias_init_with_prob(bias_prob)
        self.layer = [layer] if isinstance(layer, str) else layer or []
        self.settings = settings
        for name in self.needed:
            if name not in settings:
                raise ConfigTypeError(f"{type(self).__name__}: the setting '{name}' is required")

    def __call__(self, module: nn.Module) -> None:
        """Initialize the selected modules inside this module."""
        module.apply(self._initialize)

    def _initialize(self, module: nn.Module) -> None:
        kind = type(module)
        if self.wholemodule or {each.__name__ for each in (kind, *kind.__bases__)}.intersection(self.layer):
            type(self).function(module, bias=self.bias, **self.settings)


class ConstantInit(BaseInit):
    """Sets all weights to `val`."""

    function = staticmethod(constant_init)
    needed = ("val",)


class NormalInit(BaseInit):
    """Draws weights from a normal distribution; settings: `mean`, `std`."""

    function = staticmethod(normal_init)


class TruncNormalInit(BaseInit):
    """Draws weights from a truncated normal distribution; settings: `mean`, `std`, `a`, `b`."""

    function = staticmethod(trunc_normal_init)


class UniformInit(BaseInit):
    """Draws weights uniformly between `a` and `b`."""

    function = staticmethod(uniform_init)


class XavierInit(BaseInit):
    """Initializes weights by Glorot's (Xavier) rule; settings: `gain`, `distribution`."""

    function = staticmethod(xavier_init)


class KaimingInit(BaseInit):
    """Initializes weights by He's (Kaiming) rule; settings: `a`, `mode`, `nonlinearity`, `distribution`."""

    function = staticmethod(kaiming_init)


class Caffe2XavierInit(BaseInit):
    """Initializes weights as Caffe2 does."""

    function = staticmethod(caffe2_xavier_init)


class PretrainedInit:
    """Loads weights from a checkpoint file, without running any code in it.

    Args:
        checkpoint: The file.
        prefix: Load only the weights whose names start with this prefix, which is removed.
        map_location: Has no effect: the weights go to the device of the model.
    """

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = None) -> None:
        self.checkpoint = checkpoint
        self.prefix = prefix

    def __call__(self, module: nn.Module) -> None:
        """Load the weights that fit the module."""
        from hookline.dialects.mmengine.runner import checkpoint

        if self.prefix is None:
            checkpoint.load_checkpoint(module, self.checkpoint)
        else:
            found = checkpoint._load_checkpoint_with_prefix(self.prefix, self.checkpoint)
            checkpoint.load_state_dict(module, found)


def initialize(module: nn.Module, init_cfg: Mapping[str, Any] | list[Mapping[str, Any]]) -> None:
    """Initialize the weights of a module as described by one or several dicts."""
    for given in [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg:
        if not isinstance(given, Mapping):
            raise ConfigTypeError(f"init_cfg must be a dict with a 'type' or a list of such dicts, not {given!r}")
        described = dict(given)
        override = described.pop("override", None)
        initializer = WEIGHT_INITIALIZERS.build(described)
        if override is None and isinstance(initializer, BaseInit) and not initializer.layer:
            log.warning(
                "the init_cfg of %s changes nothing, because it has no 'layer': %s", type(module).__name__, described
            )
        initializer(module)
        described.pop("layer", None)
        for each in [override] if isinstance(override, Mapping) else override or []:
            _override(module, each, described)


def _override(module: nn.Module, given: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """Initialize a child and everything in it, with its own settings or its parent's."""
    own = dict(given)
    name = own.pop("name", None)
    if name is None or (own and "type" not in own):
        raise ConfigValueError(f"an override in init_cfg needs a 'name' and, for other settings, a 'type': {given!r}")
    child = getattr(module, name, None)
    if not isinstance(child, nn.Module):
        raise ConfigValueError(f"init_cfg overrides '{name}', but {type(module).__name__} has no such module")
    initializer = WEIGHT_INITIALIZERS.build(own or described)
    initializer.wholemodule = True
    initializer(child)


export_defined(globals())
