"""BaseObject and BaseModule: what is made of a section of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hookline.dialects.pointrix.utils.config import parse_structured


class BaseObject:
    """An object with a config: `Config` says what may stand in it, and `setup` takes the rest of the arguments."""

    @dataclass
    class Config:
        """Nothing, unless a subclass has fields."""

    def __init__(self, cfg: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.cfg: Any = parse_structured(self.Config, cfg)
        self.setup(*args, **kwargs)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Make the object; `self.cfg` is there."""


class BaseModule(BaseObject, nn.Module):
    """The same for a module of torch."""
