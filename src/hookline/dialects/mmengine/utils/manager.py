"""Objects that can be looked up by name."""

from typing import TypeVar

from hookline.dialects.mmengine.instances import ManagerMixin

#: The original needs a metaclass for this; here, an ordinary class is enough.
ManagerMeta = type

T = TypeVar("T")
__all__ = ["ManagerMeta", "ManagerMixin"]
