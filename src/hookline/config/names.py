"""Resolves the names in a config to classes and functions, and decides which names are allowed.

A config is data: it can choose from a set of things, but it cannot reach everything. Each slot is searched in this
order: the names registered for it, the short names of its home (torch.optim for an optimizer), and `module:Name`. The
user's own modules may provide any callable that is defined there. torch, torchmetrics and hookline provide only classes
of the slot's kind, because torch has functions that run a shell. Anything else must be allowed on the command line.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hookline.config.modules import TRUSTED, Modules, Trust, split_name
from hookline.errors import ConfigError, did_you_mean, nearest
from hookline.plan.registry import DATASETS, HOOKS, METRICS, MODELS, STEPS, WRITERS, Registry

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


SLOTS = {
    "model": Slot("model", MODELS, ("torch.nn",), ("torch.nn:Module",)),
    "optimizer": Slot("optimizer", None, ("torch.optim",), ("torch.optim:Optimizer",)),
    "scheduler": Slot("scheduler", None, ("torch.optim.lr_scheduler",), ("torch.optim.lr_scheduler:LRScheduler",)),
    "dataset": Slot("dataset", DATASETS, ("torch.utils.data",), ("torch.utils.data:Dataset",)),
    "dataloader": Slot(
        "dataloader",
        None,
        ("torch.utils.data", "hookline.data.loader"),
        ("torch.utils.data:DataLoader", "hookline.data.loader:ResumableLoader"),
    ),
    "collate_fn": Slot("collate_fn"),
    "function": Slot("function"),
    "metric": Slot("metric", METRICS, _METRIC_HOMES, ("torchmetrics:Metric",), "metrics"),
    "step": Slot("step", STEPS),
    "hook": Slot("hook", HOOKS, (), ("hookline.plan.hook:Hook",)),
    "writer": Slot("writer", WRITERS, (), ("hookline.writers.base:Writer",)),
}


class Resolver:
    """Resolves the names in one config to classes and functions.

    Args:
        config_file: The modules in its folder are the user's own. Without a file, only the working directory counts.
        allow: Further modules that may be named, with everything below them.
    """

    def __init__(self, config_file: Path | None = None, allow: Sequence[str] = ()) -> None:
        self.modules = Modules(config_file, allow)

    def resolve(self, slot: str, name: str) -> Callable[..., Any]:
        """Return the class or function that a name means in a slot. Refuse unknown and forbidden names."""
        place = SLOTS[slot]
        if place.registry is not None and name in place.registry:
            return place.registry.get(name)
        if ":" not in name and "." not in name:
            return self._resolve_short_name(place, name)
        module_name, path = split_name(name)
        if any(part.startswith("_") for part in path.split(".")):
            raise ConfigError(f"'{name}' is refused: a config cannot use names that begin with an underscore")
        if place.extra is not None and module_name.partition(".")[0] == place.homes[0]:
            _import_home(place.homes[0], place)  # if the package is missing, this error says what to install
        module, trust = self.modules.load(module_name)
        found = _look_up(module, path, name)
        if trust is Trust.TRUSTED:
            self._require_class(place, found, name, module_name)
        elif trust is Trust.OWN:
            self._require_own(place, found, name)
        if not callable(found):
            raise ConfigError(
                f"'{name}' cannot be the {place.kind}: it is a {type(found).__name__}, which is not callable"
            )
        return found  # type: ignore[no-any-return]  # any object from a module, checked to be callable

    def import_modules(self, names: Iterable[str]) -> None:
        """Import modules for the names that they register, under the same rules."""
        for name in names:
            self.modules.load(name)

    def _resolve_short_name(self, place: Slot, name: str) -> Callable[..., Any]:
        known = list(place.registry or ())
        bases = _import_bases(place)
        for home in place.homes if name.isidentifier() and not name.startswith("_") else ():
            module = _import_home(home, place)
            if module is None:
                continue
            found: Any = getattr(module, name, None)
            if _is_class_of(found, bases):
                return found  # type: ignore[no-any-return]  # a class of the slot's kind
            known += [key for key, value in vars(module).items() if _is_class_of(value, bases) and key[0] != "_"]
        raise ConfigError(f"unknown {place.kind} '{name}'; {_suggest(name, known)}")

    def _require_class(self, place: Slot, found: Any, name: str, module: str) -> None:
        if _is_class_of(found, _import_bases(place)):
            return
        what = " or ".join(base.replace(":", ".") for base in place.bases)
        package = module.partition(".")[0]
        rule = f"must be a subclass of {what} if it comes from {package}" if what else f"cannot come from {package}"
        raise ConfigError(f"'{name}' is refused: the {place.kind} {rule}; if you trust it, add --allow {module}")

    def _require_own(self, place: Slot, found: Any, name: str) -> None:
        """Refuse an object that the user's own module only imports: `mynet:system` may be os.system."""
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            return
        home = getattr(found, "__module__", None) or "builtins"
        if self.modules.owns(home) or _is_class_of(found, _import_bases(place)):
            return
        raise ConfigError(
            f"'{name}' is refused: it is {home}.{found.__qualname__}, which is not defined in one of your own modules; "
            f"if you trust it, add --allow {home}"
        )


def _look_up(module: ModuleType, path: str, name: str) -> Any:
    """Return an attribute of a module. It may be inside a class, but not inside another module."""
    found: Any = module
    for part in path.split("."):
        if found is not module and not inspect.isclass(found):
            raise ConfigError(
                f"'{name}' is refused: '{part}' is inside something that is neither this module nor a class"
            )
        try:
            inner = getattr(found, part)
        except AttributeError:
            known = [key for key, value in vars(found).items() if callable(value) and key[0] != "_"]
            where = f"module '{module.__name__}'" if found is module else f"class '{found.__name__}'"
            raise ConfigError(f"the {where} has no '{part}'; {_suggest(part, known)}") from None
        except Exception as error:  # some modules compute their attributes
            raise ConfigError(f"'{name}' cannot be looked up: {type(error).__name__}: {error}") from error
        found = inner
    return found


def _suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the closest name, or with all names if they are few."""
    best = nearest(name, known)
    if best is None and len(known) > 12:
        return "to use your own, write 'module:Name'"
    return did_you_mean(name, known)


def _import_bases(place: Slot) -> tuple[type, ...]:
    bases = []
    for base in place.bases:
        module, _, attribute = base.partition(":")
        home = _import_home(module, place)
        if home is not None:
            bases.append(getattr(home, attribute))
    return tuple(bases)


def _import_home(module: str, place: Slot) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if place.extra is not None and error.name == module.partition(".")[0]:
            raise ConfigError(
                f"{error.name}, which this {place.kind} needs, is not installed: pip install 'hookline[{place.extra}]'"
            ) from error
        return None


def _is_class_of(found: Any, bases: tuple[type, ...]) -> bool:
    """Return whether this is a class of the right kind that a trusted package defines, and does not only import."""
    return inspect.isclass(found) and issubclass(found, bases) and found.__module__.partition(".")[0] in TRUSTED
