"""The kinds of things that a config names: models, datasets, metrics, hooks, ..., and where each kind is looked up."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from hookline.plan.registry import DATASETS, HOOKS, METRICS, MODELS, SCHEDULERS, STEPS, WRITERS, Registry

HOOK_KEYS = ("priority", "on_error", "ranks", "budget")
_METRIC_FIELDS = (
    *("classification", "regression", "aggregation", "clustering", "nominal", "retrieval", "segmentation", "shape"),
    *("text", "image", "audio", "video", "detection", "multimodal", "wrappers"),
)
_METRIC_HOMES = ("torchmetrics", *(f"torchmetrics.{field}" for field in _METRIC_FIELDS))


@dataclass(frozen=True)
class Slot:
    """A place in the config that names something: what it is for, and where the name is looked up."""

    kind: str
    registry: Registry | None = None
    #: Modules whose classes can be named without their module.
    homes: tuple[str, ...] = ()
    #: Base classes, as `module:Name`. Classes from torch, torchmetrics and hookline must inherit from one of these.
    bases: tuple[str, ...] = ()
    #: The extra of hookline that installs the homes.
    extra: str | None = None
    #: The parameter that hookline itself fills in: the one with this name, or else the first one.
    filled: str | None = None
    #: Keys of its mapping that are not parameters.
    keys: tuple[str, ...] = ()
    #: True if code accepts other objects than instances of the bases: any list is a dataset.
    duck_typed: bool = False


SLOTS = {
    "model": Slot("model", MODELS, ("torch.nn",), ("torch.nn:Module",)),
    "optimizer": Slot(
        "optimizer", None, ("torch.optim",), ("torch.optim:Optimizer",), filled="params", keys=("fused",)
    ),
    "scheduler": Slot(
        "scheduler",
        SCHEDULERS,
        ("torch.optim.lr_scheduler",),
        ("torch.optim.lr_scheduler:LRScheduler",),
        filled="optimizer",
        keys=("when", "monitor"),
    ),
    "dataset": Slot("dataset", DATASETS, ("torch.utils.data",), ("torch.utils.data:Dataset",), duck_typed=True),
    "sampler": Slot(
        "sampler",
        None,
        ("torch.utils.data",),
        ("torch.utils.data:Sampler", "hookline.data.loader:Order"),
        duck_typed=True,
    ),
    "dataloader": Slot(
        "dataloader",
        None,
        ("torch.utils.data", "hookline.data.loader"),
        ("torch.utils.data:DataLoader", "hookline.data.loader:ResumableLoader"),
        duck_typed=True,
    ),
    "collate_fn": Slot("collate_fn"),
    "function": Slot("function"),
    "metric": Slot(
        "metric", METRICS, _METRIC_HOMES, ("torchmetrics:Metric", "torchmetrics:MetricCollection"), "metrics"
    ),
    "step": Slot("step", STEPS),
    "hook": Slot("hook", HOOKS, (), ("hookline.runner.hook:Hook",), keys=HOOK_KEYS),
    "writer": Slot("writer", WRITERS, (), ("hookline.writers.base:Writer",)),
}
#: A nested object about which nothing is known: torch, torchmetrics and hookline provide classes of all kinds.
OBJECT = Slot("object", bases=tuple(base for slot in SLOTS.values() for base in slot.bases))


def loaded_bases(slot: Slot) -> tuple[type, ...]:
    """Return the base classes of a slot whose modules were imported. Others cannot have subclasses."""
    bases = []
    for base in slot.bases:
        module, _, attribute = base.partition(":")
        if sys.modules.get(module) is not None:
            bases.append(getattr(sys.modules[module], attribute))
    return tuple(bases)


def slots_of(found: type) -> tuple[str, ...]:
    """Return the slots that a class is of, the most specific ones: a torchmetrics class is a metric, not a model."""
    bases = {name: [base for base in loaded_bases(slot) if issubclass(found, base)] for name, slot in SLOTS.items()}
    matched = [base for some in bases.values() for base in some]

    def is_general(base: type) -> bool:
        return any(other is not base and issubclass(other, base) for other in matched)

    return tuple(name for name, some in bases.items() if some and not all(is_general(base) for base in some))


def is_nominal(found: type) -> bool:
    """Return whether code that takes this class accepts nothing but its instances."""
    names = slots_of(found)
    return bool(names) and not any(SLOTS[name].duck_typed for name in names)
