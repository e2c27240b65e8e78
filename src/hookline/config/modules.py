"""Which modules a config may make Python import, decided before any of them runs.

A module that stands beside the config, or under the working directory, is the user's own, as it would be for a script
in that folder. What `--allow` names may be imported too, and torch, torchmetrics and hookline, of which `names` then
takes only classes of the right kind. Installed packages and the standard library are never the user's own, also where
a virtual environment lies inside the working directory.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from enum import Enum
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


class Modules:
    """The modules that one config may name."""

    def __init__(self, config_file: Path | None, allow: Sequence[str] = ()) -> None:
        folders = [Path.cwd()] if config_file is None else [config_file.parent, Path.cwd()]
        self.roots = list(dict.fromkeys(os.path.abspath(folder) for folder in folders))
        self.allow = tuple(allow)
        importlib.invalidate_caches()  # a module that was written a moment ago, as in a notebook, is to be found

    def load(self, name: str) -> tuple[ModuleType, Trust]:
        """Import a module, if that is allowed; anything else is refused without running it."""
        trust = self.judge(name)
        if trust is not Trust.TRUSTED:
            self._put_on_path()
        try:
            return importlib.import_module(name), trust
        except (Exception, SystemExit) as error:
            # A module that calls sys.exit() when imported would otherwise end the command, maybe even with code 0.
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                raise ConfigError(f"there is no module '{name}'") from None
            raise ConfigError(f"the module '{name}' cannot be imported: {type(error).__name__}: {error}") from error

    def judge(self, name: str) -> Trust:
        """Why this module may be imported, or a refusal that says what to do."""
        for part in name.split("."):
            if not part.isidentifier():
                raise ConfigError(f"'{name}' is no name of a module; write package.module, without paths")
            if part.startswith("_"):
                raise ConfigError(f"'{name}' is refused: a config cannot name what begins with an underscore")
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in self.allow):
            return Trust.ALLOWED
        if name.partition(".")[0] in TRUSTED:
            return Trust.TRUSTED
        spec = self._find(name)
        if spec is None:
            raise ConfigError(self._not_found(name))
        if not self._is_own(spec):
            raise ConfigError(
                f"the module '{name}' is refused: it stands neither beside the config nor under the working directory; "
                f"if you trust what it can do, add --allow {name}"
            )
        self._refuse_namesake(name, spec)
        return Trust.OWN

    def owns(self, module: str) -> bool:
        """Whether a module that is already imported is the user's own, or allowed."""
        if any(module == prefix or module.startswith(f"{prefix}.") for prefix in self.allow):
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        return file is not None and module.partition(".")[0] not in TRUSTED and self._is_inside(file)

    def _find(self, name: str) -> ModuleSpec | None:
        """Where a module would come from. importlib.util.find_spec would run the packages around it."""
        parts = name.split(".")
        spec: ModuleSpec | None = None
        folders: Any = [*self.roots, *sys.path]
        for count in range(1, len(parts) + 1):
            full = ".".join(parts[:count])
            spec = PathFinder.find_spec(full, folders)
            if spec is None and count == 1:
                spec = _elsewhere(full)  # built in, or of an editable install
            if spec is None:
                return None
            if count < len(parts) and not self._is_own(spec):
                return spec
            folders = list(spec.submodule_search_locations or [])
        return spec

    def _is_own(self, spec: ModuleSpec) -> bool:
        if spec.origin is not None and spec.has_location:
            return self._is_inside(spec.origin)
        # A folder without __init__.py has no file of its own; what is imported from it is looked at in its turn.
        return spec.origin is None and any(self._is_inside(place) for place in spec.submodule_search_locations or [])

    def _is_inside(self, file: str) -> bool:
        path = Path(os.path.abspath(file))
        if any(part in ("site-packages", "dist-packages") for part in path.parts):
            return False
        installed = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
        if any(path.is_relative_to(folder) for folder in installed):
            return False
        return any(path.is_relative_to(root) for root in self.roots)

    def _refuse_namesake(self, name: str, spec: ModuleSpec) -> None:
        """Python keeps one module of a name: another one, imported before, would be taken instead."""
        for loaded in (name.partition(".")[0], name):
            module = sys.modules.get(loaded)
            file = getattr(module, "__file__", None)
            expected = self._find(loaded)
            if module is None or expected is None or expected.origin is None:
                continue
            if file is None or os.path.abspath(file) != os.path.abspath(expected.origin):
                raise ConfigError(
                    f"the module '{loaded}' ({expected.origin}) cannot be imported, since Python already has another "
                    f"'{loaded}' ({file or 'built in'}); give yours another name"
                )

    def _put_on_path(self) -> None:
        for root in reversed(self.roots):
            if root not in sys.path[: len(self.roots)]:
                sys.path.insert(0, root)

    def _not_found(self, name: str) -> str:
        top = name.partition(".")[0]
        places = " and ".join(self.roots)
        best = nearest(top, [file.stem for root in self.roots for file in Path(root).glob("*.py")])
        hint = f"did you mean '{best}'?" if best not in (None, top) else f"looked in {places}"
        return f"there is no module '{name}' beside the config or under the working directory; {hint}"


def _elsewhere(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return None


def split_name(name: str) -> tuple[str, str]:
    """Module and attribute of `module:attribute` or `module.attribute`."""
    module, separator, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    valid = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
    if not separator or not re.fullmatch(valid, module) or not re.fullmatch(valid, attribute):
        raise ConfigError(f"'{name}' is no name; write 'module:Name', with the module beside the config")
    return module, attribute
