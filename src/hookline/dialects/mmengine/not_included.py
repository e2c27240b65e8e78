"""Names of the original that code can import, inherit from and annotate with, and whose use raises an error."""

from __future__ import annotations

import sys
from abc import ABCMeta
from typing import Any, NoReturn

from hookline.dialects.mmengine.errors import ConfigAttributeError, RefusedError

PAGE = "docs/coming-from/mmengine.md"


class NotIncluded(ABCMeta):
    """The class of these names, functions and constants among them."""

    refusal: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to call it: it is not included."""
        raise RefusedError(cls.refusal)

    __iter__ = __len__ = __contains__ = __getitem__ = __call__

    def __getattr__(cls, name: str) -> NoReturn:
        raise ConfigAttributeError(name if name.startswith("_") else cls.refusal)


def not_included(module: dict[str, Any], *names: str) -> None:
    """Define names in a module, which is given as `globals()`: importing them works, and using them does not."""
    home = module["__name__"].partition("dialects.")[2]
    for name in names:
        refusal = f"{home}.{name} is not included in hookline's dialect, and can only be imported; see {PAGE}"
        module.get("__all__", []).append(name)
        module[name] = NotIncluded(name, (), {"__module__": module["__name__"], "refusal": refusal})


def stands_for(module: str, *others: str) -> None:
    """Let other modules of the original be imported as this one, which has their names. They are in its package."""
    for name in others:
        sys.modules[f"{__package__}.{name}"] = sys.modules[module]
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[f"{__package__}.{parent}".rstrip(".")], last, sys.modules[module])
