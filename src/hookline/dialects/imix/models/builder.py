"""The registries of models, losses and their parts, and one function for each that builds from a config."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hookline.dialects.imix.utils.config import read
from hookline.dialects.imix.utils.registry import Registry, build_from_cfg
from hookline.errors import ConfigError
from hookline.strategies import pick_device

__all__ = [
    "BACKBONES",
    "COMBINE_LAYERS",
    "EMBEDDING",
    "ENCODER",
    "HEADS",
    "LOSSES",
    "POOLERS",
    "VQA_MODELS",
    "build_backbone",
    "build_combine_layer",
    "build_embedding",
    "build_encoder",
    "build_head",
    "build_loss",
    "build_model",
    "build_pooler",
    "build_vqa_models",
]

EMBEDDING = Registry("embedding")
ENCODER = Registry("encoder")
BACKBONES = Registry("backbone")
COMBINE_LAYERS = Registry("combine layer")
POOLERS = Registry("pooler")
HEADS = Registry("head")
LOSSES = Registry("loss")
VQA_MODELS = Registry("model")


def build(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build an object from a dict, or an `nn.Sequential` from a list of dicts."""
    if isinstance(cfg, (list, tuple)):
        return nn.Sequential(*(build_from_cfg(each, registry, default_args) for each in cfg))
    return build_from_cfg(cfg, registry, default_args)


def _builder(registry: Registry) -> Callable[..., Any]:
    return partial(build, registry=registry)


build_embedding = _builder(EMBEDDING)
build_encoder = _builder(ENCODER)
build_pooler = _builder(POOLERS)
build_backbone = _builder(BACKBONES)
build_combine_layer = _builder(COMBINE_LAYERS)
build_head = _builder(HEADS)


def build_loss(cfg: Any) -> Any:
    """Build one loss from a dict, or a list of losses from a list of dicts."""
    if isinstance(cfg, (list, tuple)):
        return [build_from_cfg(each, LOSSES) for each in cfg]
    return build_from_cfg(cfg, LOSSES)


def build_vqa_models(cfg: Any) -> Any:
    """Build the model of `cfg.model`."""
    if (section := read(cfg, "model")) is None:
        raise ConfigError("the config has no 'model': pass one, imixEngine(cfg, model=...), or name a registered one")
    try:
        return build(section, VQA_MODELS)
    except ConfigError as error:
        if read(section, "type") in VQA_MODELS:
            raise
        raise ConfigError(
            f"{error}. iMIX's own models are not included; import the module that registers yours before the engine "
            "is built"
        ) from None


def build_model(cfg: Any) -> Any:
    """Build the model of `cfg.model`, on the device `cfg.model_device`."""
    return build_vqa_models(cfg).to(pick_device(read(cfg, "model_device") or "auto"))
