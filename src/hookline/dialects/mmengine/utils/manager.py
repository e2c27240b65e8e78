"""Objects that can be looked up by name."""

from hookline.dialects.mmengine.instances import ManagerMixin

#: The original needs a metaclass for this; here, an ordinary class is enough.
ManagerMeta = type

__all__ = ["ManagerMeta", "ManagerMixin"]
