"""Build the loader of a run from its config: hookline's resumable loader, with the attributes that hooks use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Subset

from hookline.common.checks import check_int
from hookline.common.forwarding import forwarded
from hookline.data.loader import ResumableLoader
from hookline.data.sources import is_plain
from hookline.dialects.mmengine.dataset.orders import BatchSamplerOrder, create_order
from hookline.dialects.mmengine.dataset.sampler import DefaultSampler, _SeededSampler
from hookline.dialects.mmengine.dataset.utils import pseudo_collate
from hookline.dialects.mmengine.dist import get_world_size
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import DATA_SAMPLERS, DATASETS, FUNCTIONS
from hookline.errors import did_you_mean

__all__ = ["MMDataLoader", "build_dataloader"]

#: The options of a dataloader's config that are passed on to the resumable loader.
OPTIONS = (
    *("num_workers", "drop_last", "persistent_workers", "pin_memory", "timeout", "prefetch_factor"),
    "multiprocessing_context",
)
OTHERS = (
    *("dataset", "sampler", "batch_sampler", "batch_size", "shuffle", "collate_fn", "worker_init_fn"),
    *("num_batch_per_epoch", "disable_subprocess_warning"),
)


class MMDataLoader(ResumableLoader):
    """A resumable loader that also has torch's attributes for its samplers and settings."""

    sampler: Any = forwarded("order.sampler", "Return the sampler, which selects the samples and their order.")
    batch_sampler: Any = forwarded("order", "Return the order of batches; its `sampler` selects the samples.")
    num_workers: int = forwarded("_loader.num_workers", "Return the number of processes that read ahead.")
    persistent_workers: bool = forwarded(
        "_loader.persistent_workers", "Return whether the workers stay alive from one epoch to the next."
    )
    _iterator: Any = forwarded(
        "_loader._iterator",
        "Return the owner of persistent workers; a hook that changes the data sets it to None to restart them.",
        settable=True,
    )
    drop_last: bool = forwarded("order.drop_last", "Return whether an incomplete last batch is left out.")
    collate_fn: Any = forwarded("_loader.dataset.collate", "Return the function that turns samples into a batch.")


def build_dataloader(cfg: Any, seed: int | None = None, diff_rank_seed: bool = False) -> Any:
    """Build the loader that a config describes; a loader that is passed in is made resumable if possible.

    Args:
        cfg: `dict(dataset=dict(type=...), sampler=dict(type="DefaultSampler", shuffle=True), batch_size=16, ...)`.
        seed: The seed of the run.
        diff_rank_seed: Whether each process has its own seed; samplers always share one.
    """
    if not isinstance(cfg, Mapping):
        return make_resumable(cfg, seed or 0)
    for name in cfg:
        if name not in OPTIONS and name not in OTHERS:
            raise ConfigKeyError(f"unknown dataloader option '{name}'; {did_you_mean(name, (*OTHERS, *OPTIONS))}")
    if "dataset" not in cfg:
        raise ConfigKeyError(f"a dataloader needs a 'dataset'; this one has {sorted(cfg)}")
    batch_sampler = cfg.get("batch_sampler")
    size = cfg.get("batch_size", batch_sampler.get("batch_size", 1) if isinstance(batch_sampler, Mapping) else 1)
    dataset = _build_dataset(cfg["dataset"])
    options = {name: cfg[name] for name in OPTIONS if name in cfg and name != "drop_last"}
    options["collate_fn"] = _get_collate(cfg.get("collate_fn"))
    options["worker_init_fn"] = _get_worker_init(cfg.get("worker_init_fn"))
    if isinstance(dataset, IterableDataset):
        return DataLoader(dataset, batch_size=size, drop_last=bool(cfg.get("drop_last")), **options)
    if (limit := cfg.get("num_batch_per_epoch")) is not None:
        check_int("with num_batch_per_epoch, the batch_size of a dataloader", size, least=1)
        dataset = _Part(dataset, range(min(limit * size * get_world_size(), len(dataset))))
    sampler = _choose_sampler(cfg, dataset, None if diff_rank_seed else seed)
    if batch_sampler is not None:
        batches = _build_sampler(batch_sampler, {"sampler": sampler, "batch_size": size, "dataset": dataset})
        return MMDataLoader(dataset, order=BatchSamplerOrder(dataset, batches, sampler, seed or 0), **options)
    order = create_order(dataset, sampler, size, bool(cfg.get("drop_last", False)), seed or 0)
    return MMDataLoader(dataset, order=order, **options)


def make_resumable(loader: Any, seed: int = 0) -> Any:
    """Make a torch DataLoader with one of our samplers resumable at any batch; return any other loader unchanged.

    With several processes, a plain DataLoader is read as with a DefaultSampler: otherwise, each would read all samples.
    """
    if type(loader) is not DataLoader or type(loader.batch_sampler) is not BatchSampler:
        return loader
    sampler: Any = loader.sampler
    if get_world_size() > 1 and is_plain(loader):
        sampler = DefaultSampler(loader.dataset, shuffle=isinstance(sampler, RandomSampler))  # type: ignore[arg-type]
    if not isinstance(sampler, _SeededSampler):
        return loader
    order = create_order(loader.dataset, sampler, loader.batch_sampler.batch_size, loader.drop_last, seed)
    names = [name for name in OPTIONS if name != "drop_last"]
    options = {name: getattr(loader, name) for name in (*names, "collate_fn", "worker_init_fn")}
    return MMDataLoader(loader.dataset, order=order, **options)


class _Part(Subset[Any]):
    """The first samples of a dataset, with all attributes of the dataset."""

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # it is missing while the object is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _build_dataset(given: Any) -> Any:
    dataset = DATASETS.build(given) if isinstance(given, Mapping) else given
    if isinstance(given, Mapping) and hasattr(dataset, "full_init"):
        dataset.full_init()
    return dataset


def _choose_sampler(cfg: Mapping[str, Any], dataset: Any, seed: int | None) -> Any:
    given = cfg.get("sampler")
    if given is not None and "shuffle" in cfg:
        raise ConfigValueError(
            "a dataloader with a sampler cannot have 'shuffle'; set it in the sampler: sampler=dict(..., shuffle=True)"
        )
    if given is None:
        given = {"type": "DefaultSampler", "shuffle": bool(cfg.get("shuffle", False))}
    return _build_sampler(given, {"dataset": dataset, "seed": seed})


def _build_sampler(given: Any, known: Mapping[str, Any]) -> Any:
    """Build a sampler from its config, and pass it the known arguments that it takes."""
    if not isinstance(given, Mapping):
        return given
    kind = given.get("type")
    factory = DATA_SAMPLERS.get(kind) if isinstance(kind, str) else kind
    takes = dict(inspect.signature(factory).parameters) if factory is not None else {}
    if isinstance(factory, type) and issubclass(factory, _SeededSampler):
        takes.pop("seed", None)  # it follows the seed of the run, which a resume may change
    anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes.values())
    return DATA_SAMPLERS.build(
        given, default_args={name: value for name, value in known.items() if anything or name in takes}
    )


def _get_collate(given: Any) -> Callable[[list[Any]], Any]:
    if given is None:
        return pseudo_collate
    return _get_function(given, "collate_fn")


def _get_worker_init(given: Any) -> Callable[[int], None] | None:
    return None if given is None else _get_function(given, "worker_init_fn")


def _get_function(given: Any, what: str) -> Callable[..., Any]:
    """Return a function that is given as it is, by its name, or as a dict with `type` and arguments."""
    if isinstance(given, (str, Mapping)):
        parameters = {"type": given} if isinstance(given, str) else dict(given)
        kind = parameters.pop("type", None)
        found = FUNCTIONS.get(kind) if isinstance(kind, str) else kind
        if found is None:
            raise ConfigKeyError(f"{what}: unknown function {kind!r}; {did_you_mean(str(kind), FUNCTIONS)}")
        function: Callable[..., Any] = partial(found, **parameters) if parameters else found
        return function
    if not callable(given):
        raise ConfigTypeError(f"{what} must be a function, its name, or a dict with 'type', not {given!r}")
    return cast("Callable[..., Any]", given)
