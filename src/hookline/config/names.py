"""What a config may name, and in which slot. A config is data: it can choose among things, not reach for any.

Searched in this order: what is registered for the slot, the short names of its home (torch.optim for an optimizer),
and `module:Name`. A module of the user's own may give any callable that is defined there. torch, torchmetrics and
hookline give only classes of the slot's kind, because torch has functions that run a shell. Whatever else must be
allowed by the person at the command line.
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
    """A place in the config that names something: what for, and where it is looked up."""

    kind: str
    registry: Registry | None = None
    #: Modules whose classes can be named without the module.
    homes: tuple[str, ...] = ()
    #: Classes, as `module:Name`: of torch, torchmetrics and hookline, only what inherits from one of these.
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
    """Names of one config -> classes and functions.

    Args:
        config_file: The file whose folder's modules are the user's own; without one, only the working directory.
        allow: Modules (with everything below them) that may be named besides.
    """

    def __init__(self, config_file: Path | None = None, allow: Sequence[str] = ()) -> None:
        self.modules = Modules(config_file, allow)

    def resolve(self, slot: str, name: str) -> Callable[..., Any]:
        """What a name means in a slot; one that means nothing, or may not be used, is refused."""
        place = SLOTS[slot]
        if place.registry is not None and name in place.registry:
            return place.registry.get(name)
        if ":" not in name and "." not in name:
            return self._short(place, name)
        module_name, path = split_name(name)
        if any(part.startswith("_") for part in path.split(".")):
            raise ConfigError(f"'{name}' is refused: a config cannot name what begins with an underscore")
        if place.extra is not None and module_name.partition(".")[0] == place.homes[0]:
            _home(place.homes[0], place)  # says what to install where the package is not there
        module, trust = self.modules.load(module_name)
        found = _walk(module, path, name)
        if trust is Trust.TRUSTED:
            self._require_class(place, found, name, module_name)
        elif trust is Trust.OWN:
            self._require_own(place, found, name)
        if not callable(found):
            raise ConfigError(f"'{name}' is no {place.kind}: it is a {type(found).__name__}, which cannot be called")
        return found  # type: ignore[no-any-return]  # whatever the module has there; that it is callable was checked

    def import_modules(self, names: Iterable[str]) -> None:
        """Import modules for what they register, under the same rules."""
        for name in names:
            self.modules.load(name)

    def _short(self, place: Slot, name: str) -> Callable[..., Any]:
        known = list(place.registry or ())
        bases = _bases(place)
        for home in place.homes if name.isidentifier() and not name.startswith("_") else ():
            module = _home(home, place)
            if module is None:
                continue
            found: Any = getattr(module, name, None)
            if _is_class_of(found, bases):
                return found  # type: ignore[no-any-return]  # a class of the slot's kind
            known += [key for key, value in vars(module).items() if _is_class_of(value, bases) and key[0] != "_"]
        raise ConfigError(f"no {place.kind} is called '{name}'; {_choice(name, known)}")

    def _require_class(self, place: Slot, found: Any, name: str, module: str) -> None:
        if _is_class_of(found, _bases(place)):
            return
        what = " or ".join(base.replace(":", ".") for base in place.bases)
        rule = f"only subclasses of {what}" if what else "no function or class"
        raise ConfigError(
            f"'{name}' is refused: of {module.partition('.')[0]}, a {place.kind} can be {rule}; "
            f"if you trust what it can do, add --allow {module}"
        )

    def _require_own(self, place: Slot, found: Any, name: str) -> None:
        """Refuse what a module of the user's own only imported: `mynet:system` may be os.system."""
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            return
        home = getattr(found, "__module__", None) or "builtins"
        if self.modules.owns(home) or _is_class_of(found, _bases(place)):
            return
        raise ConfigError(
            f"'{name}' is refused: it is {home}.{found.__qualname__}, which is not defined in a module of your own; "
            f"if you trust what it can do, add --allow {home}"
        )


def _walk(module: ModuleType, path: str, name: str) -> Any:
    """The attribute of a module; what lies inside of a class can be named too, but not inside of another module."""
    found: Any = module
    for part in path.split("."):
        if found is not module and not inspect.isclass(found):
            raise ConfigError(f"'{name}' is refused: '{part}' is looked up in what is neither its module nor a class")
        try:
            inner = getattr(found, part)
        except AttributeError:
            known = [key for key, value in vars(found).items() if callable(value) and key[0] != "_"]
            where = f"module '{module.__name__}'" if found is module else f"class '{found.__name__}'"
            raise ConfigError(f"the {where} has no '{part}'; {_choice(part, known)}") from None
        except Exception as error:  # some modules compute their attributes
            raise ConfigError(f"'{name}' cannot be looked up: {type(error).__name__}: {error}") from error
        found = inner
    return found


def _choice(name: str, known: Sequence[str]) -> str:
    """The nearest name, or all of them where they are few."""
    best = nearest(name, known)
    if best is None and len(known) > 12:
        return "your own is named 'module:Name'"
    return did_you_mean(name, known)


def _bases(place: Slot) -> tuple[type, ...]:
    bases = []
    for base in place.bases:
        module, _, attribute = base.partition(":")
        home = _home(module, place)
        if home is not None:
            bases.append(getattr(home, attribute))
    return tuple(bases)


def _home(module: str, place: Slot) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if place.extra is not None and error.name == module.partition(".")[0]:
            raise ConfigError(
                f"a {place.kind} of {error.name} needs it installed: pip install 'hookline[{place.extra}]'"
            ) from error
        return None


def _is_class_of(found: Any, bases: tuple[type, ...]) -> bool:
    """A class of the right kind, and itself from a package we know: what such a package imports is not its own."""
    return inspect.isclass(found) and issubclass(found, bases) and found.__module__.partition(".")[0] in TRUSTED
