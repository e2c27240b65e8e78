"""The registries of data sets, and the loaders that `train_data` and `test_data` of a config describe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.utils.data
from torch.utils.data import DataLoader, Sampler

from hookline.dialects.imix.utils.config import read
from hookline.dialects.imix.utils.registry import Registry, build_from_cfg
from hookline.errors import ConfigError, did_you_mean
from hookline.plan.registry import construct

__all__ = [
    "DATASETS",
    "PREPROCESSOR",
    "PROCESSOR",
    "VOCAB",
    "build_dataset",
    "build_imix_test_loader",
    "build_imix_train_loader",
]

VOCAB = Registry("vocabulary")
PREPROCESSOR = Registry("preprocessor")
DATASETS = Registry("data set")
PROCESSOR = Registry("processor")

#: The keys of a section of data.
KEYS = (
    *("data", "samples_per_gpu", "workers_per_gpu", "drop_last", "pin_memory", "shuffle", "sampler", "batch_sampler"),
    "is_run_eval",
)

build_vocab = partial(build_from_cfg, registry=VOCAB)
build_preprocessor = partial(build_from_cfg, registry=PREPROCESSOR)


def build_dataset(dataset_cfg: Any, default_args: Any = None) -> Any:
    """Build a data set from `dict(type=..., ...)`."""
    return build_from_cfg(dataset_cfg, DATASETS, default_args)


def build_imix_train_loader(cfg: Any) -> DataLoader[Any]:
    """Build the loader that `cfg.train_data` describes."""
    return _build_loader(cfg, "train_data")


def build_imix_test_loader(cfg: Any, dataset_name: str | None = "") -> DataLoader[Any]:
    """Build the loader that `cfg.test_data` describes."""
    return _build_loader(cfg, "test_data")


def _build_loader(cfg: Any, name: str) -> DataLoader[Any]:
    section = read(cfg, name)
    if not isinstance(section, Mapping) or "data" not in section:
        raise ConfigError(
            f"the config needs {name}=dict(data=dict(type=...), samples_per_gpu=..., ...), or pass the batches: "
            "imixEngine(cfg, data_loader=...)"
        )
    for key in section:
        if key not in KEYS:
            raise ConfigError(f"{name} has no '{key}'; {did_you_mean(str(key), KEYS)}")
    dataset = build_dataset(section["data"])
    options = {
        "num_workers": section.get("workers_per_gpu", 0),
        "pin_memory": section.get("pin_memory", False),
        "collate_fn": getattr(dataset, "collate_fn", None),
    }
    if section.get("batch_sampler"):
        options["batch_sampler"] = _build_sampler(section["batch_sampler"], dataset, f"{name}: batch_sampler")
        return DataLoader(dataset, **options)
    if section.get("sampler"):
        options["sampler"] = _build_sampler(section["sampler"], dataset, f"{name}: sampler")
    options |= {"batch_size": section.get("samples_per_gpu", 1), "drop_last": section.get("drop_last", False)}
    return DataLoader(dataset, shuffle=section.get("shuffle", False), **options)


def _build_sampler(given: Any, dataset: Any, where: str) -> Any:
    """Build a sampler of torch from its name, or from `dict(type=..., ...)`. Any other object is used as it is."""
    if not isinstance(given, (str, Mapping)):
        return given
    parameters = {"type": given} if isinstance(given, str) else dict(given)
    known = {name: kind for name, kind in vars(torch.utils.data).items() if _is_sampler(kind)}
    kind = parameters.pop("type", None)
    if kind not in known:
        raise ConfigError(f"{where}: unknown sampler {kind!r}; {did_you_mean(str(kind), known)}")
    if isinstance(inner := parameters.get("sampler"), (str, Mapping)):
        parameters["sampler"] = _build_sampler(inner, dataset, where)
    elif kind != "BatchSampler":
        parameters.setdefault("data_source" if "Distributed" not in str(kind) else "dataset", dataset)
    return construct(known[kind], parameters, str(kind))


def _is_sampler(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Sampler)
