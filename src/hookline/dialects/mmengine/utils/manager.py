"""Objects that are found again by a name."""

from hookline.dialects.mmengine.instances import ManagerMixin

#: The original needs a class of classes for this; here it is an ordinary one.
ManagerMeta = type

__all__ = ["ManagerMeta", "ManagerMixin"]
