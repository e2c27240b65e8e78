"""DefaultOptimWrapperConstructor, which groups parameters by their kind and name."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import OPTIM_WRAPPERS, OPTIMIZERS
from hookline.errors import did_you_mean
from hookline.strategies import unwrap

log = logging.getLogger("hookline")

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm)
DEFORMABLE = ("DeformConv2d", "ModulatedDeformConv2d")
DECAYS = ("norm_decay_mult", "bias_decay_mult", "dwconv_decay_mult", "flat_decay_mult")
OPTIONS = ("custom_keys", "bias_lr_mult", "dcn_offset_lr_mult", *DECAYS, "bypass_duplicate")


class DefaultOptimWrapperConstructor:
    """Builds the optimizer of a model and wraps it.

    Args:
        optim_wrapper_cfg: `dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.1), ...)`.
        paramwise_cfg: Settings for individual parameters: `custom_keys` (matches a part of the name; the longest match
            wins), `bias_lr_mult`, `bias_decay_mult`, `norm_decay_mult`, `dwconv_decay_mult`, `flat_decay_mult`,
            `dcn_offset_lr_mult`, `bypass_duplicate`. If set, every parameter becomes a separate group.
    """

    def __init__(self, optim_wrapper_cfg: Mapping[str, Any], paramwise_cfg: Mapping[str, Any] | None = None) -> None:
        if not isinstance(optim_wrapper_cfg, Mapping):
            raise ConfigTypeError(f"optim_wrapper_cfg must be a dict, not a {type(optim_wrapper_cfg).__name__}")
        if "optimizer" not in optim_wrapper_cfg:
            raise ConfigKeyError(f"optim_wrapper needs an 'optimizer'; it only has {sorted(optim_wrapper_cfg)}")
        if paramwise_cfg is not None and not isinstance(paramwise_cfg, Mapping):
            raise ConfigTypeError(f"paramwise_cfg must be a dict, not a {type(paramwise_cfg).__name__}")
        self.optim_wrapper_cfg = {name: value for name, value in optim_wrapper_cfg.items() if name != "optimizer"}
        self.optimizer_cfg = dict(optim_wrapper_cfg["optimizer"])
        self.paramwise_cfg: dict[str, Any] = dict(paramwise_cfg or {})
        self.base_lr = self.optimizer_cfg.get("lr")
        self.base_wd = self.optimizer_cfg.get("weight_decay")
        self._unused = set(self.paramwise_cfg.get("custom_keys") or {})
        self._validate_cfg()

    def _validate_cfg(self) -> None:
        given = self.paramwise_cfg
        for name, value in (("lr", self.base_lr), ("weight_decay", self.base_wd)):
            if isinstance(value, str):
                raise ConfigTypeError(f"optimizer: {name} must be a number, not {value!r}")
        if type(self) is DefaultOptimWrapperConstructor:  # a subclass may have more options
            for name in given:
                if name not in OPTIONS:
                    raise ConfigKeyError(f"paramwise_cfg has no option '{name}'; {did_you_mean(name, OPTIONS)}")
        custom = given.get("custom_keys", {})
        if not isinstance(custom, Mapping):
            raise ConfigTypeError(f"custom_keys must be a dict of dicts, not a {type(custom).__name__}")
        decays = [name for name in DECAYS[:3] if name in given]
        decays += [f"custom_keys['{key}']" for key, options in custom.items() if "decay_mult" in options]
        if decays and self.base_wd is None:
            raise ConfigValueError(f"{decays[0]} multiplies the optimizer's weight_decay, which is not set")

    def __call__(self, model: nn.Module) -> Any:
        """Return the wrapped optimizer of a model."""
        model = unwrap(model)
        params: Any = model.parameters()
        if self.paramwise_cfg:
            params = []
            self.add_params(params, model)
            for key in sorted(self._unused):
                log.warning("paramwise_cfg: the key '%s' in custom_keys matches no parameter name", key)
        kind = self.optimizer_cfg.get("type")
        found = OPTIMIZERS.get(kind) if isinstance(kind, str) else kind
        first = "params" if found is None else next(iter(inspect.signature(found).parameters), "params")
        optimizer = OPTIMIZERS.build({**self.optimizer_cfg, first: params})
        return OPTIM_WRAPPERS.build({"type": "OptimWrapper", **self.optim_wrapper_cfg, "optimizer": optimizer})

    def add_params(
        self, params: list[dict[str, Any]], module: nn.Module, prefix: str = "", is_dcn_module: bool | None = None
    ) -> None:
        """Add a group for each parameter of a module and its submodules."""
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{prefix}.{name}"
            seen = any(parameter is one for group in params for one in group["params"])
            if seen and self.paramwise_cfg.get("bypass_duplicate"):
                log.warning("skipping %s: it is a duplicate of an earlier parameter", full.strip("."))
                continue
            if not parameter.requires_grad:
                log.warning("skipping %s: it is not trained (requires_grad=False)", full.strip("."))
                continue
            own = self._custom(full)
            if own is None:
                own = self._by_kind(module, name, prefix, parameter.ndim, bool(is_dcn_module))
            params.append({"params": [parameter], **own})
        deformable = any(kind.__name__ in DEFORMABLE for kind in type(module).__mro__)
        for name, child in module.named_children():
            self.add_params(params, child, f"{prefix}.{name}" if prefix else name, deformable)

    def _custom(self, full: str) -> dict[str, Any] | None:
        """Return the settings of the longest matching key in `custom_keys`, or None if no key matches."""
        custom = self.paramwise_cfg.get("custom_keys", {})
        for key in sorted(sorted(custom), key=len, reverse=True):
            if key in full:
                self._unused.discard(key)
                options = custom[key]
                found: dict[str, Any] = {}
                if self.base_lr is not None:
                    found["lr"] = self.base_lr * options.get("lr_mult", 1.0)
                if self.base_wd is not None:
                    found["weight_decay"] = self.base_wd * options.get("decay_mult", 1.0)
                return {**found, **options}
        return None

    def _by_kind(self, module: nn.Module, name: str, prefix: str, dimensions: int, in_dcn: bool) -> dict[str, Any]:
        given = self.paramwise_cfg
        is_norm = isinstance(module, NORMS)
        is_bias = name == "bias"
        own: dict[str, Any] = {}
        if is_bias and not (is_norm or in_dcn) and given.get("bias_lr_mult") is not None:
            own["lr"] = self.base_lr * given["bias_lr_mult"]
        is_offset = in_dcn and "conv_offset" in prefix and isinstance(module, nn.Conv2d)
        if is_offset and given.get("dcn_offset_lr_mult") is not None:
            own["lr"] = self.base_lr * given["dcn_offset_lr_mult"]
        is_depthwise = isinstance(module, nn.Conv2d) and module.in_channels == module.groups
        kinds = (is_norm, is_bias and not in_dcn, is_depthwise, dimensions == 1 and not in_dcn)
        for fits, decay in zip(kinds, DECAYS, strict=True):
            if fits and given.get(decay) is not None and self.base_wd is not None:
                own["weight_decay"] = self.base_wd * given[decay]
                break
        return own
