"""Sweeps of W&B over the keys of a trainer's config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hookline.dialects.pointrix.utils.config import config_to_primitive


def convert2wandb(sweep_config: Mapping[str, Any], config: Any) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the config of a sweep with flat names, and the keys of the trainer's config that they stand for.

    The `parameters` are nested like the trainer's config; W&B needs one level, so `optimizer: {lr: ...}` becomes
    `optimizer_lr`. Keys that the trainer's config does not have are left out.
    """
    paths = list(_paths(config_to_primitive(config), sweep_config["parameters"]))
    flat = {"_".join(path): _at(sweep_config["parameters"], path) for path in paths}
    return {**sweep_config, "parameters": flat}, paths


def _paths(config: Any, wanted: Mapping[str, Any]) -> Iterator[list[str]]:
    for key, value in config.items():
        if key in wanted:
            if isinstance(value, Mapping):
                yield from ([key, *rest] for rest in _paths(value, wanted[key]))
            else:
                yield [key]


def _at(tree: Mapping[str, Any], path: list[str]) -> Any:
    found: Any = tree
    for key in path:
        found = found[key]
    return found
