"""Unchanged files: the import names of another system, led to its dialect."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from hookline.errors import ConfigError, did_you_mean

# What can be stood in for, and which packages come along.
PACKAGES: dict[str, tuple[str, ...]] = {
    "mmengine": ("mmengine",),
    "imix": ("imix",),
    "pointrix": ("pointrix",),
    "robo_orchard_lab": ("robo_orchard_lab", "robo_orchard_core"),
    "robo_orchard_core": ("robo_orchard_core",),
}
HOME = "hookline.dialects"


def alias(name: str) -> None:
    """Make the import names of another system (`mmengine`, ...) mean its dialect, in this process from now on.

    The modules are the same objects under both names. It is refused when the real package is imported already: what
    was taken from it would not be of the same classes.
    """
    if name not in PACKAGES:
        raise ConfigError(f"there is no dialect '{name}'; {did_you_mean(name, PACKAGES)}")
    for package in PACKAGES[name]:
        present = sys.modules.get(package)
        if present is not None and not _is_ours(present):
            raise ConfigError(
                f"the real package '{package}' is imported already (from {getattr(present, '__file__', 'somewhere')}); "
                f'call hookline.dialects.alias("{name}") before anything imports it'
            )
    finder = next((each for each in sys.meta_path if isinstance(each, Finder)), None)
    if finder is None:
        finder = Finder()
        sys.meta_path.insert(0, finder)  # before those that would find the real package
    finder.packages.update(PACKAGES[name])


def _is_ours(module: ModuleType) -> bool:
    return module.__name__.startswith(f"{HOME}.")


def _an_import_asks() -> bool:
    """Whether the finder is asked by an import, which may be told why, or by a search, which wants None for an answer.

    Both ask in the same words. The frames are: this function, the finder, Python's search, and who searches.
    """
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"


class Finder(MetaPathFinder, Loader):
    """Finds `mmengine.hooks` where `hookline.dialects.mmengine.hooks` is."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The dialect's module of this name; an import of one that the dialect does not have is refused by name."""
        if name.partition(".")[0] not in self.packages:
            return None
        found = importlib.util.find_spec(f"{HOME}.{name}")
        if found is None:
            if _an_import_asks():
                raise ModuleNotFoundError(f"hookline's dialect has no module '{name}'; see docs/coming-from", name=name)
            return None
        return ModuleSpec(name, self, origin=found.origin, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The dialect's own module, which may be imported already."""
        module = importlib.import_module(f"{HOME}.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; only the spec is put back, which the import has changed."""
        assert module.__spec__ is not None, "the import has set it"
        module.__spec__ = module.__spec__.loader_state
