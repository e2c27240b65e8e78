"""Import the registries of a project, which a config names as its scope."""

from __future__ import annotations

import importlib
import logging

from hookline.common.import_rules import check_import

log = logging.getLogger("hookline")


def import_registry(scope: str) -> bool:
    """Import the module `registry` of a package, which creates the registries of its scope; return whether it exists.

    Only this one module of a package with a plain name is imported.
    """
    if not scope.isidentifier():
        return False
    name = f"{scope}.registry"
    check_import(name)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (scope, name):
            log.warning("the registries of '%s' cannot be imported: %s", scope, error)
        return False
    except ImportError as error:
        log.warning("the registries of '%s' cannot be imported: %s", scope, error)
        return False
    return True
