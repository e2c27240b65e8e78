"""Objects that can be looked up by name anywhere in the process."""

from __future__ import annotations

from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from hookline.dialects.mmengine.errors import ConfigTypeError


class ManagerMixin:
    """A base for classes whose objects have names: `get_instance(name)` returns the existing one, or creates it.

    The current instance is the one created last. A Runner creates its own instances, so the current ones belong to the
    newest run. The instances of an earlier run can be looked up as long as that run exists.
    """

    _instances: ClassVar[dict[str, Any]]
    _of_runs: ClassVar[WeakValueDictionary[str, Any]]
    _newest: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._instances, cls._of_runs, cls._newest = {}, WeakValueDictionary(), None

    def __init__(self, name: str = "", **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigTypeError(f"the name of a {type(self).__name__} must be a non-empty string, not {name!r}")
        self._instance_name = name

    @property
    def instance_name(self) -> str:
        """Return the name that it is looked up by."""
        return self._instance_name

    @classmethod
    def get_instance(cls, name: str, **kwargs: Any) -> Self:
        """Return the object of this name; if it does not exist, create it with the other arguments."""
        if not isinstance(name, str):
            raise ConfigTypeError(f"a {cls.__name__} is looked up by its name, a string, not by {name!r}")
        found: Self | None = cls._instances.get(name, cls._of_runs.get(name))
        if found is None:
            found = cls._instances[name] = cls._newest = cls(name=name, **kwargs)
        return found

    @classmethod
    def make_current(cls, made: Self) -> Self:
        """Make an object of a run the current instance, and let it replace any other object of the same name."""
        if cls._instances.get(made.instance_name) is not made:  # keep an instance that the user created
            cls._instances.pop(made.instance_name, None)
        cls._of_runs[made.instance_name] = cls._newest = made
        return made

    @classmethod
    def forget(cls, name: str) -> None:
        """Free the name of an object; the object itself is not changed."""
        cls._instances.pop(name, None)
        cls._of_runs.pop(name, None)

    @classmethod
    def get_current_instance(cls) -> Self:
        """Return the object created last, or create the first one."""
        found: Self = cls.get_instance("mmengine") if cls._newest is None else cls._newest
        return found

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Return whether an object of this name exists."""
        return name in cls._instances or name in cls._of_runs
