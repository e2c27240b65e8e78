"""Resolves the names in a config to classes and functions, and decides which names are allowed.

A config is data: it can choose from a set of things, but it cannot reach everything. Each slot is searched in this
order: the names registered for it, the short names of its home (torch.optim for an optimizer), and `module:Name`. The
user's own modules may provide any callable that is defined there. torch, torchmetrics and hookline provide only classes
of the slot's kind, because torch has functions that run a shell. Anything else must be allowed on the command line.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hookline.common.marks import MOST_PROBLEMS
from hookline.config.modules import TRUSTED, Modules, Trust, split_name
from hookline.config.slots import OBJECT, SLOTS, Slot, loaded_bases
from hookline.config.suggestions import suggest
from hookline.errors import ConfigError

_ANY_KIND = "a model, a dataset, a sampler, a metric, ..."


class UnknownNameError(ConfigError):
    """A short name that is neither registered nor a class of the slot's homes."""


class Resolver:
    """Resolves the names in one config to classes and functions.

    Args:
        config_file: The modules in its folder are the user's own. Without a file, only the working directory counts.
        allow: Further modules that may be named, with everything below them.
        folder: One more folder whose modules are the user's own.
    """

    def __init__(self, config_file: Path | None = None, allow: Sequence[str] = (), folder: Path | None = None) -> None:
        self.modules = Modules(config_file, allow, folder)
        self._unknown = 0

    def resolve(self, slot: str, name: str, given: Collection[str] = ()) -> Callable[..., Any]:
        """Return the class or function that a name means in a slot. Refuse unknown and forbidden names.

        `given` are the parameters that the config gives it: for an unknown name, the suggestion should accept them.
        """
        return self._resolve([SLOTS[slot]], SLOTS[slot], name, given)

    def resolve_object(
        self, slots: Sequence[str], around: str, name: str, given: Collection[str] = ()
    ) -> Callable[..., Any]:
        """Return the class or function that the name of a nested object means.

        `slots` are the slots of the classes that its parameter takes. If there are none, short names are looked up as
        in the part `around` it, and torch, torchmetrics and hookline provide classes of all kinds.
        """
        places = [SLOTS[slot] for slot in slots or (around,)]
        full = OBJECT if not slots else places[0]
        if len(slots) > 1:
            full = Slot(" or ".join(slots), bases=tuple(base for place in places for base in place.bases))
        return self._resolve(places, full, name, given)

    def _resolve(self, places: Sequence[Slot], full: Slot, name: str, given: Collection[str]) -> Callable[..., Any]:
        """Look a short name up in `places`, and a full name under the rules of `full`."""
        for place in places:
            if place.registry is not None and name in place.registry:
                return place.registry.get(name)
        if ":" not in name and "." not in name:
            found = _find_short_name(places, name)
            if found is not None:
                return found
            self._unknown += 1  # an error shows a few problems only, and a hint takes time
            hint = _hint(places, name, given, nested=full is OBJECT) if self._unknown <= MOST_PROBLEMS else ""
            kind = " or ".join(place.kind for place in places)
            raise UnknownNameError(f"unknown {kind} '{name}'; {hint}")
        module_name, path = split_name(name)
        if any(part.startswith("_") for part in path.split(".")):
            raise ConfigError(f"'{name}' is refused: a config cannot use names that begin with an underscore")
        for slot in SLOTS.values():
            if slot.extra is not None and module_name.partition(".")[0] == slot.homes[0]:
                _import_home(slot.homes[0], slot)  # if the package is missing, this error says what to install
        module, trust = self.modules.load(module_name)
        found = _look_up(module, path, name)
        if trust is Trust.TRUSTED:
            self._require_class(full, found, name, module_name)
        elif trust is Trust.OWN:
            self._require_own(full, found, name)
        if not callable(found):
            raise ConfigError(
                f"'{name}' cannot be the {full.kind}: it is a {type(found).__name__}, which is not callable"
            )
        return found  # type: ignore[no-any-return]  # any object from a module, checked to be callable

    def import_modules(self, names: Iterable[str]) -> None:
        """Import modules for the names that they register, under the same rules."""
        for name in names:
            self.modules.load(name)

    def _require_class(self, place: Slot, found: Any, name: str, module: str) -> None:
        if _is_class_of(found, loaded_bases(place)):
            return
        bases = " or ".join(base.replace(":", ".") for base in place.bases)
        what = _ANY_KIND if place is OBJECT else f"a subclass of {bases}"
        package = module.partition(".")[0]
        rule = f"must be {what} if it comes from {package}" if bases else f"cannot come from {package}"
        raise ConfigError(f"'{name}' is refused: the {place.kind} {rule}; if you trust it, add --allow {module}")

    def _require_own(self, place: Slot, found: Any, name: str) -> None:
        """Refuse an object that the user's own module only imports: `mynet:system` may be os.system."""
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            return
        home = getattr(found, "__module__", None) or "builtins"
        if self.modules.owns(home) or _is_class_of(found, loaded_bases(place)):
            return
        raise ConfigError(
            f"'{name}' is refused: it is {home}.{found.__qualname__}, which is not defined in one of your own modules; "
            f"if you trust it, add --allow {home}"
        )


def _find_short_name(places: Sequence[Slot], name: str) -> Callable[..., Any] | None:
    """Return the class with this name in the homes of some slots; None if there is none."""
    for place, module in _homes(places, name):
        found: Any = getattr(module, name, None)
        if _is_class_of(found, loaded_bases(place)):
            return found  # type: ignore[no-any-return]  # a class of the slot's kind
    return None


def _homes(places: Sequence[Slot], name: str) -> Iterator[tuple[Slot, ModuleType]]:
    for place in places:
        for home in place.homes if name.isidentifier() and not name.startswith("_") else ():
            module = _import_home(home, place)
            if module is not None:
                yield place, module


def _hint(places: Sequence[Slot], name: str, given: Collection[str], nested: bool) -> str:
    """Return the end of the message about an unknown name."""
    homes: dict[str, Any] = {}
    for place, module in _homes(places, name):
        bases = loaded_bases(place)
        homes |= {key: value for key, value in vars(module).items() if key[0] != "_" and _is_class_of(value, bases)}
    registered = {key: place.registry.get for place in places if place.registry is not None for key in place.registry}
    other = (
        "for an object of another kind, write 'module:Name'; for a plain mapping, add _plain_: true" if nested else ""
    )
    parameters = [key for key in given if key != "type" and key not in places[0].keys]
    elsewhere = [place.registry.elsewhere.get(name) for place in places if place.registry is not None]
    return next(filter(None, elsewhere), None) or suggest(name, registered, homes, parameters, places[0].filled, other)


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
            raise ConfigError(f"the {where} has no '{part}'; {suggest(part, known)}") from None
        except Exception as error:  # some modules compute their attributes
            raise ConfigError(f"'{name}' cannot be looked up: {type(error).__name__}: {error}") from error
        found = inner
    return found


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
