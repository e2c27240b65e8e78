"""Objects that are found again by a name, anywhere in the process."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from hookline.dialects.mmengine.errors import ConfigTypeError


class ManagerMixin:
    """A class whose objects have names: `get_instance(name)` makes one, or gives the one that is there.

    The one that was made last is the current one. A Runner makes its own, so that they are those of the newest run.
    """

    _instances: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._instances = {}

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
        if name not in cls._instances:
            cls._instances[name] = cls(name=name, **kwargs)
        found: Self = cls._instances[name]
        return found

    @classmethod
    def make_current(cls, made: Self) -> Self:
        """Put an object in the place of one of the same name, and before all others."""
        cls._instances.pop(made.instance_name, None)
        cls._instances[made.instance_name] = made
        return made

    @classmethod
    def forget(cls, name: str) -> None:
        """Let the name of an object be free again; the object itself stays as it is."""
        cls._instances.pop(name, None)

    @classmethod
    def get_current_instance(cls) -> Self:
        """The object that was made last; where there is none, one is made."""
        if not cls._instances:
            cls.get_instance("mmengine")
        found: Self = next(reversed(cls._instances.values()))
        return found

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Whether there is an object of this name."""
        return name in cls._instances
