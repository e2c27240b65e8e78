"""Weight initialization: functions for one module, and initializers for the modules of a model that a config selects.

    init_cfg = dict(type="Kaiming", layer="Conv2d")
    init_cfg = [dict(type="Normal", std=0.01, layer="Linear"), dict(type="Constant", val=1, layer="BatchNorm2d")]

Without `layer`, an initializer changes all modules that have a weight. `override` has settings for the child with the
given `name`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import WEIGHT_INITIALIZERS


def _fill(module: nn.Module, fill: Any, bias: float) -> None:
    weight, own = getattr(module, "weight", None), getattr(module, "bias", None)
    if isinstance(weight, nn.Parameter):
        fill(weight)
    if isinstance(own, nn.Parameter):
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
    _fill(module, lambda weight: nn.init.trunc_normal_(weight, mean, std, a, b), bias)


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
    return float(-math.log((1 - prior_prob) / prior_prob))


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
        layer: Class names of the modules to change. By default, all modules with weights.
        **settings: Arguments of the function.
    """

    function: Any = None
    needed: tuple[str, ...] = ()

    def __init__(
        self, *, bias: float = 0, bias_prob: float | None = None, layer: str | list[str] | None = None, **settings: Any
    ) -> None:
        self.bias = bias if bias_prob is None else bias_init_with_prob(bias_prob)
        self.layers = [layer] if isinstance(layer, str) else layer
        self.settings = settings
        for name in self.needed:
            if name not in settings:
                raise ConfigTypeError(f"{type(self).__name__}: the setting '{name}' is required")

    def __call__(self, module: nn.Module) -> None:
        """Initialize the selected modules inside this module."""
        for each in module.modules():
            names = {kind.__name__ for kind in type(each).__mro__}
            if self.layers is None or names.intersection(self.layers):
                type(self).function(each, bias=self.bias, **self.settings)


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
        from hookline.dialects.mmengine.runner.checkpoint import load_checkpoint

        revise = [] if self.prefix is None else [(rf"^{self.prefix}\.", "")]
        load_checkpoint(module, self.checkpoint, revise_keys=[(r"^module\.", ""), *revise])


def initialize(module: nn.Module, init_cfg: Mapping[str, Any] | list[Mapping[str, Any]]) -> None:
    """Initialize the weights of a module as described by one or several dicts."""
    for given in [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg:
        if not isinstance(given, Mapping):
            raise ConfigTypeError(f"init_cfg must be a dict with a 'type' or a list of such dicts, not {given!r}")
        described = dict(given)
        override = described.pop("override", None)
        if override is None or "layer" in described:
            WEIGHT_INITIALIZERS.build(described)(module)
        for each in [override] if isinstance(override, Mapping) else override or []:
            own = dict(each)
            name = own.pop("name")
            child = getattr(module, name, None)
            if not isinstance(child, nn.Module):
                raise ConfigValueError(f"init_cfg overrides '{name}', but {type(module).__name__} has no such module")
            WEIGHT_INITIALIZERS.build({**described, **own} if "type" not in own else own)(child)
