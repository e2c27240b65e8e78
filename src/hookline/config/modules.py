"""Decides which modules a config may import, before any of them runs.

A module next to the config or under the working directory is the user's own, as it would be for a script in that
folder. So is a module next to the config that this one was made from, if that is under the working directory
(`hookline.rundir.origin`). The modules that `--allow` names may be imported too. So may torch, torchmetrics and
hookline, but `names` accepts only classes of the right kind from them. Installed packages and the standard library are
never the user's own, even if a virtual environment is inside the working directory.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from enum import Enum
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from hookline.errors import ConfigError, nearest

TRUSTED = ("torch", "torchmetrics", "hookline")


class Trust(Enum):
    """Why a module may be imported."""

    OWN = "own"
    ALLOWED = "allowed"
    TRUSTED = "trusted"


class BrokenModuleError(ConfigError):
    """A module that cannot be imported because its own code fails."""

    def __init__(self, message: str, origin: tuple[object, ...]) -> None:
        super().__init__(message)
        #: The failure and its place: the same for every module that fails for this reason.
        self.origin = origin


class Modules:
    """The modules that one config may name."""

    def __init__(self, config_file: Path | None, allow: Sequence[str] = (), folder: Path | None = None) -> None:
        places = (folder, config_file.parent if config_file is not None else None, Path.cwd())
        folders = [place for place in places if place is not None]
        self.roots = list(dict.fromkeys(os.path.abspath(folder) for folder in folders))
        self.allow = tuple(allow)
        self._broken: dict[str, BrokenModuleError] = {}
        importlib.invalidate_caches()  # so that a module written a moment ago, for example from a notebook, is found

    def load(self, name: str) -> tuple[ModuleType, Trust]:
        """Import a module if that is allowed. Refuse any other module without running it."""
        trust = self.judge(name)
        if name in self._broken:  # its code does not run a second time
            raise self._broken[name]
        if trust is not Trust.TRUSTED:
            self._add_to_path()
        try:
            return importlib.import_module(name), trust
        except (Exception, SystemExit) as error:
            # Otherwise, a module that calls sys.exit() on import would end the command, maybe even with code 0.
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise ConfigError(f"the module '{name}' was not found") from None
            self._broken[name] = self._describe_failure(name, error)
            raise self._broken[name] from error

    def judge(self, name: str) -> Trust:
        """Return why this module may be imported, or refuse it with a hint on what to do."""
        for part in name.split("."):
            if not part.isidentifier():
                raise ConfigError(f"'{name}' is not a valid module name; write package.module, not a path")
            if part.startswith("_"):
                raise ConfigError(f"'{name}' is refused: a config cannot use names that begin with an underscore")
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in self.allow):
            return Trust.ALLOWED
        if name.partition(".")[0] in TRUSTED:
            return Trust.TRUSTED
        spec = self._find(name)
        if spec is None:
            raise ConfigError(self._not_found_message(name))
        if not self._is_own(spec):
            raise ConfigError(
                f"the module '{name}' is refused: it is neither next to the config nor under the working directory; "
                f"if you trust it, add --allow {name}"
            )
        self._refuse_namesake(name, spec)
        return Trust.OWN

    def owns(self, module: str) -> bool:
        """Return whether a module that is already imported is the user's own, or allowed."""
        if any(module == prefix or module.startswith(f"{prefix}.") for prefix in self.allow):
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        return file is not None and module.partition(".")[0] not in TRUSTED and self._is_inside(file)

    def _describe_failure(self, name: str, error: BaseException) -> BrokenModuleError:
        """Return the error about a module that fails, with the place in the user's files where it does."""
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{_shown(frame.filename)}:{frame.lineno}" for frame in frames if self._is_inside(frame.filename)]
        # The message of a syntax error has its place.
        place = f" ({places[-1]})" if places and not isinstance(error, SyntaxError) else ""
        reason = f"{type(error).__name__}: {error}"
        return BrokenModuleError(f"the module '{name}' cannot be imported: {reason}{place}", (reason, place))

    def _find(self, name: str) -> ModuleSpec | None:
        """Find a module without importing it. importlib.util.find_spec would run the packages that contain it."""
        parts = name.split(".")
        spec: ModuleSpec | None = None
        folders: Any = [*self.roots, *sys.path]
        for count in range(1, len(parts) + 1):
            full = ".".join(parts[:count])
            spec = PathFinder.find_spec(full, folders)
            if spec is None and count == 1:
                spec = _find_elsewhere(full)  # built in, or from an editable install
            if spec is None:
                return None
            if count < len(parts) and not self._is_own(spec):
                return spec
            folders = list(spec.submodule_search_locations or [])
        return spec

    def _is_own(self, spec: ModuleSpec) -> bool:
        if spec.origin is not None and spec.has_location:
            return self._is_inside(spec.origin)
        # A folder without __init__.py has no file. The modules inside it are checked when they are imported.
        return spec.origin is None and any(self._is_inside(place) for place in spec.submodule_search_locations or [])

    def _is_inside(self, file: str) -> bool:
        path = Path(os.path.abspath(file))
        if any(part in ("site-packages", "dist-packages") for part in path.parts):
            return False
        if any(path.is_relative_to(folder) for folder in _installed()):
            return False
        return any(path.is_relative_to(root) for root in self.roots)

    def _refuse_namesake(self, name: str, spec: ModuleSpec) -> None:
        """Refuse a module if Python has imported another one of the same name, which it would return instead."""
        for loaded in (name.partition(".")[0], name):
            module = sys.modules.get(loaded)
            file = getattr(module, "__file__", None)
            expected = self._find(loaded)
            if module is None or expected is None or expected.origin is None:
                continue
            if file is None or os.path.abspath(file) != os.path.abspath(expected.origin):
                raise ConfigError(
                    f"the module '{loaded}' ({expected.origin}) cannot be imported, because Python has already "
                    f"imported another '{loaded}' ({file or 'built in'}); rename yours"
                )

    def _add_to_path(self) -> None:
        for root in reversed(self.roots):
            if root not in sys.path[: len(self.roots)]:
                sys.path.insert(0, root)

    def _not_found_message(self, name: str) -> str:
        top = name.partition(".")[0]
        places = " and ".join(self.roots)
        best = nearest(top, [file.stem for root in self.roots for file in Path(root).glob("*.py")])
        hint = f"did you mean '{best}'?" if best not in (None, top) else f"looked in {places}"
        return f"the module '{name}' was not found next to the config or under the working directory; {hint}"


@cache
def _installed() -> set[str]:
    """Return the folders of Python's library and of installed packages."""
    return {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}


def _shown(file: str) -> str:
    """Return a path as people write it: relative, if it is below the working directory."""
    path = Path(os.path.abspath(file))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _find_elsewhere(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return None


def split_name(name: str) -> tuple[str, str]:
    """Split `module:attribute` or `module.attribute` into module and attribute."""
    module, separator, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    valid = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
    if not separator or not re.fullmatch(valid, module) or not re.fullmatch(valid, attribute):
        raise ConfigError(f"'{name}' is not a valid name; write 'module:Name', with the module next to the config")
    return module, attribute
