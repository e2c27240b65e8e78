"""How weights begin: functions for one module, and initializers for those modules of a model that a config names.

    init_cfg = dict(type="Kaiming", layer="Conv2d")
    init_cfg = [dict(type="Normal", std=0.01, layer="Linear"), dict(type="Constant", val=1, layer="BatchNorm2d")]

Without `layer`, an initializer changes all modules that have a weight. `override` describes one child by its `name`.
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
    """All weights the same."""
    _fill(module, lambda weight: nn.init.constant_(weight, val), bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    """Weights of a normal distribution."""
    _fill(module, lambda weight: nn.init.normal_(weight, mean, std), bias)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    """Weights of a normal distribution between a and b."""
    _fill(module, lambda weight: nn.init.trunc_normal_(weight, mean, std, a, b), bias)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    """Weights between a and b."""
    _fill(module, lambda weight: nn.init.uniform_(weight, a, b), bias)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal") -> None:
    """Weights by Glorot's rule."""
    fill = {"normal": nn.init.xavier_normal_, "uniform": nn.init.xavier_uniform_}[_known(distribution)]
    _fill(module, lambda weight: fill(weight, gain=gain), bias)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: Any = "fan_out",
    nonlinearity: Any = "relu",
    bias: float = 0,
    distribution: str = "normal",
) -> None:
    """Weights by He's rule."""
    fill = {"normal": nn.init.kaiming_normal_, "uniform": nn.init.kaiming_uniform_}[_known(distribution)]
    _fill(module, lambda weight: fill(weight, a=a, mode=mode, nonlinearity=nonlinearity), bias)


def caffe2_xavier_init(module: nn.Module, bias: float = 0) -> None:
    """As Caffe2 does."""
    kaiming_init(module, a=1, mode="fan_in", nonlinearity="leaky_relu", bias=bias, distribution="uniform")


def bias_init_with_prob(prior_prob: float) -> float:
    """The bias with which a sigmoid begins at a probability.

    >>> round(bias_init_with_prob(0.01), 4)
    -4.5951
    """
    return float(-math.log((1 - prior_prob) / prior_prob))


def _known(distribution: str) -> str:
    if distribution not in ("normal", "uniform"):
        raise ConfigValueError(f"a distribution of weights is 'normal' or 'uniform', not {distribution!r}")
    return distribution


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Nothing: no notes are kept of how weights began."""


class BaseInit:
    """Initializes modules of a model; a subclass says with which function.

    Args:
        bias: What biases begin with; or
        bias_prob: the probability that a sigmoid begins with.
        layer: Names of the classes of modules to change; all that have weights, unless given.
        **settings: Of the function.
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
                raise ConfigTypeError(f"{type(self).__name__} needs '{name}'")

    def __call__(self, module: nn.Module) -> None:
        """Change the modules that are meant."""
        for each in module.modules():
            names = {kind.__name__ for kind in type(each).__mro__}
            if self.layers is None or names.intersection(self.layers):
                type(self).function(each, bias=self.bias, **self.settings)


class ConstantInit(BaseInit):
    """All weights `val`."""

    function = staticmethod(constant_init)
    needed = ("val",)


class NormalInit(BaseInit):
    """Of a normal distribution: `mean`, `std`."""

    function = staticmethod(normal_init)


class TruncNormalInit(BaseInit):
    """Of a normal distribution between `a` and `b`: `mean`, `std`."""

    function = staticmethod(trunc_normal_init)


class UniformInit(BaseInit):
    """Between `a` and `b`."""

    function = staticmethod(uniform_init)


class XavierInit(BaseInit):
    """By Glorot's rule: `gain`, `distribution`."""

    function = staticmethod(xavier_init)


class KaimingInit(BaseInit):
    """By He's rule: `a`, `mode`, `nonlinearity`, `distribution`."""

    function = staticmethod(kaiming_init)


class Caffe2XavierInit(BaseInit):
    """As Caffe2 does."""

    function = staticmethod(caffe2_xavier_init)


class PretrainedInit:
    """Weights out of a file; nothing in it is run.

    Args:
        checkpoint: The file.
        prefix: Take only the weights whose names begin with this, without it.
        map_location: Not needed: they go where the model is.
    """

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = None) -> None:
        self.checkpoint = checkpoint
        self.prefix = prefix

    def __call__(self, module: nn.Module) -> None:
        """Load what fits."""
        from hookline.dialects.mmengine.runner.checkpoint import load_checkpoint

        revise = [] if self.prefix is None else [(rf"^{self.prefix}\.", "")]
        load_checkpoint(module, self.checkpoint, revise_keys=[(r"^module\.", ""), *revise])


def initialize(module: nn.Module, init_cfg: Mapping[str, Any] | list[Mapping[str, Any]]) -> None:
    """Change the weights of a module as one or several descriptions say."""
    for given in [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg:
        if not isinstance(given, Mapping):
            raise ConfigTypeError(f"init_cfg is a dict with a 'type', or a list of them, not {given!r}")
        described = dict(given)
        override = described.pop("override", None)
        if override is None or "layer" in described:
            WEIGHT_INITIALIZERS.build(described)(module)
        for each in [override] if isinstance(override, Mapping) else override or []:
            own = dict(each)
            name = own.pop("name")
            child = getattr(module, name, None)
            if not isinstance(child, nn.Module):
                raise ConfigValueError(f"init_cfg overrides '{name}', and {type(module).__name__} has no such module")
            WEIGHT_INITIALIZERS.build({**described, **own} if "type" not in own else own)(child)
