"""Run unchanged files: redirect the import names of another system to its dialect."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from hookline.errors import ConfigError, did_you_mean

# Each system that can be aliased, with the packages that its alias redirects.
PACKAGES: dict[str, tuple[str, ...]] = {
    "mmengine": ("mmengine",),
    "imix": ("imix",),
    "pointrix": ("pointrix",),
    "robo_orchard_lab": ("robo_orchard_lab", "robo_orchard_core"),
    "robo_orchard_core": ("robo_orchard_core",),
}
#: Packages that a dialect does not have, and that come from the original if it is installed. They define no hooks,
#: registries or configs, and everything that they import from other packages of the original is the dialect's.
FROM_ORIGINAL = ("mmengine.analysis", "mmengine.hub", "mmengine.infer", "mmengine.testing")
HOME = "hookline.dialects"


def alias(name: str) -> None:
    """Redirect the import names of another system (`mmengine`, ...) to its dialect, for the rest of this process.

    The modules are the same objects under both names. The call is refused if the real package is already imported,
    because objects taken from it would have other classes.
    """
    if name not in PACKAGES:
        raise ConfigError(f"unknown dialect '{name}'; {did_you_mean(name, PACKAGES)}")
    for package in PACKAGES[name]:
        if importlib.util.find_spec(f"{HOME}.{package}") is None:
            raise ConfigError(
                f"this installation of hookline has no dialect '{package}'; install the whole package: "
                "pip install --force-reinstall --no-deps hookline"
            )
        present = sys.modules.get(package)
        if present is not None and not _is_ours(present):
            raise ConfigError(
                f"the real package '{package}' is already imported (from {getattr(present, '__file__', 'somewhere')}); "
                f'call hookline.dialects.alias("{name}") before anything imports it'
            )
    finder = next((each for each in sys.meta_path if isinstance(each, Finder)), None)
    if finder is None:
        finder = Finder()
        sys.meta_path.insert(0, finder)  # before the finders that would find the real package
    finder.packages.update(PACKAGES[name])


def _is_ours(module: ModuleType) -> bool:
    return module.__name__.startswith(f"{HOME}.")


def _called_by_import() -> bool:
    """Return whether the finder is called by an import, which can show an error, or by a search, which expects None.

    Both make the same call. The frames are: this function, the finder, Python's search, and the code that searches.
    """
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"


def _is_borrowed(name: str) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in FROM_ORIGINAL)


def _find_original(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module that comes from the installed original."""
    if not _is_borrowed(name):
        return None
    if name in FROM_ORIGINAL:  # its parent is the dialect's module, which is in another folder
        package = PathFinder.find_spec(name.partition(".")[0])
        path = package.submodule_search_locations if package is not None else []
    return PathFinder.find_spec(name, path)


def page_of(package: str) -> str:
    """Return the page of the documentation about a system."""
    return f"docs/coming-from/{package.removesuffix('_lab').removesuffix('_core')}.md"


def _missing(name: str) -> str:
    package = name.partition(".")[0]
    if not _is_borrowed(name):
        return f"hookline's dialect has no module '{name}'; see {page_of(package)}"
    return f"hookline's dialect takes '{name}' from the original, which is not installed: pip install {package}"


class Finder(MetaPathFinder, Loader):
    """Finds `mmengine.hooks` where `hookline.dialects.mmengine.hooks` is."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the dialect's module for this name; importing one that the dialect lacks raises an error naming it."""
        if name.partition(".")[0] not in self.packages:
            return None
        found = importlib.util.find_spec(f"{HOME}.{name}") if not _is_borrowed(name) else None
        if found is None:
            if (original := _find_original(name, path)) is not None:
                return original
            if _called_by_import():
                raise ModuleNotFoundError(_missing(name), name=name)
            return None
        return ModuleSpec(name, self, origin=found.origin, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the dialect's own module, which may already be imported."""
        module = importlib.import_module(f"{HOME}.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec that the import replaced; the module itself has already run."""
        assert module.__spec__ is not None, "set by the import"
        module.__spec__ = module.__spec__.loader_state
        if not hasattr(module, "__path__") and not hasattr(module, "__getattr__"):
            vars(module)["__getattr__"] = partial(_exported_elsewhere, module.__name__)


def _exported_elsewhere(module: str, name: str) -> Any:
    """Return a public name of another module: a module of an original also has the names that it imports itself."""
    if not name.startswith("_"):
        for package in _packages(module.removeprefix(f"{HOME}.").partition(".")[0]):
            if name in getattr(package, "__all__", ()):
                return getattr(package, name)
    raise AttributeError(f"module '{module}' has no attribute '{name}'")


@cache
def _packages(dialect: str) -> list[ModuleType]:
    home = importlib.import_module(f"{HOME}.{dialect}")
    found = pkgutil.walk_packages(home.__path__, f"{home.__name__}.")
    return [home, *(importlib.import_module(info.name) for info in found if info.ispkg)]
