"""Objects that are found again by a name, anywhere in the process."""

from __future__ import annotations

from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from hookline.dialects.mmengine.errors import ConfigTypeError


class ManagerMixin:
    """A class whose objects have names: `get_instance(name)` makes one, or gives the one that is there.

    The one that was made last is the current one. A Runner makes its own, so that they are those of the newest run.
    Those of an earlier one are found as long as it is there.
    """

    _instances: ClassVar[dict[str, Any]]
    _of_runs: ClassVar[WeakValueDictionary[str, Any]]
    _newest: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._instances, cls._of_runs, cls._newest = {}, WeakValueDictionary(), None

    def __init__(self, name: str = "", **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigTypeError(f"a {type(self).__name__} has a name, and {name!r} is none")
        self._instance_name = name

    @property
    def instance_name(self) -> str:
        """The name that it is found by."""
        return self._instance_name

    @classmethod
    def get_instance(cls, name: str, **kwargs: Any) -> Self:
        """The object of this name; made with the other arguments where there is none."""
        if not isinstance(name, str):
            raise ConfigTypeError(f"a {cls.__name__} is found by its name, not by {name!r}")
        found: Self | None = cls._instances.get(name, cls._of_runs.get(name))
        if found is None:
            found = cls._instances[name] = cls._newest = cls(name=name, **kwargs)
        return found

    @classmethod
    def make_current(cls, made: Self) -> Self:
        """Put an object of a run in the place of one of the same name, and before all others."""
        if cls._instances.get(made.instance_name) is not made:  # one that the user made stays
            cls._instances.pop(made.instance_name, None)
        cls._of_runs[made.instance_name] = cls._newest = made
        return made

    @classmethod
    def forget(cls, name: str) -> None:
        """Let the name of an object be free again; the object itself stays as it is."""
        cls._instances.pop(name, None)
        cls._of_runs.pop(name, None)

    @classmethod
    def get_current_instance(cls) -> Self:
        """The object that was made last; where there is none, one is made."""
        found: Self = cls.get_instance("mmengine") if cls._newest is None else cls._newest
        return found

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Whether there is an object of this name."""
        return name in cls._instances or name in cls._of_runs
