"""BaseObject, the base class of objects that are built from a section of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hookline.dialects.pointrix.utils.config import parse_structured


class BaseObject:
    """An object with a config. `Config` declares the fields, and `setup` gets the other arguments."""

    @dataclass
    class Config:
        """The fields of the section; none in the base class."""

    def __init__(self, cfg: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.cfg: Any = parse_structured(self.Config, cfg)
        self.setup(*args, **kwargs)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Set up the object from the other arguments; `self.cfg` is already set."""
