"""Objects that can be looked up by name anywhere in the process."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any, ClassVar, Self

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.errors import ConfigTypeError


class Instances(MutableMapping[str, Any]):
    """The objects of a class by name, oldest first. Objects of a run do not outlive it, except the newest object."""

    def __init__(self) -> None:
        self._all: dict[str, weakref.ref[Any]] = {}
        self._kept: dict[str, Any] = {}
        self._newest: Any = None

    def __getitem__(self, name: str) -> Any:
        found = self._all[name]()
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str, made: Any) -> None:
        self.add_of_run(name, made)
        self._kept[name] = made

    def add_of_run(self, name: str, made: Any) -> None:
        """Add an object of a run. An object of the user's that has the name already stays the user's."""
        if self._kept.get(name) is not made:
            self._kept.pop(name, None)
        self._all.pop(name, None)
        self._all[name], self._newest = weakref.ref(made), made

    def __delitem__(self, name: str) -> None:
        if self._all.pop(name)() is self._newest:
            self._newest = None
        self._kept.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, made in self._all.items() if made() is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


class ManagerMixin:
    """A base for classes whose objects have names: `get_instance(name)` returns the existing one, or creates it.

    The current instance is the one created last. A Runner creates its own instances, so the current ones belong to the
    newest run. The instances of an earlier run can be looked up as long as that run exists.
    """

    #: The objects of each class, by name. Code that creates many of them clears it.
    _instance_dict: ClassVar[MutableMapping[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._instance_dict = Instances()

    def __init__(self, name: str = "", **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigTypeError(f"the name of a {type(self).__name__} must be a non-empty string, not {name!r}")
        self._instance_name = name

    instance_name: str = forwarded("_instance_name", "Return the name that it is looked up by.")

    @classmethod
    def get_instance(cls, name: str, **kwargs: Any) -> Self:
        """Return the object of this name; if it does not exist, create it with the other arguments."""
        if not isinstance(name, str):
            raise ConfigTypeError(f"a {cls.__name__} is looked up by its name, a string, not by {name!r}")
        found: Self | None = cls._instance_dict.get(name)
        if found is None:
            found = cls._instance_dict[name] = cls(name=name, **kwargs)
        return found

    @classmethod
    def make_current(cls, made: Self) -> Self:
        """Make an object of a run the current instance, and let it replace any other object of the same name."""
        known = cls._instance_dict
        if isinstance(known, Instances):
            known.add_of_run(made.instance_name, made)
        else:  # somebody has put a plain dict in its place
            known.pop(made.instance_name, None)
            known[made.instance_name] = made
        return made

    @classmethod
    def forget(cls, name: str) -> None:
        """Free the name of an object; the object itself is not changed."""
        cls._instance_dict.pop(name, None)

    @classmethod
    def get_current_instance(cls) -> Self:
        """Return the object created last, or create the first one."""
        known = list(cls._instance_dict.values())
        found: Self = known[-1] if known else cls.get_instance("mmengine")
        return found

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Return whether an object of this name exists."""
        return name in cls._instance_dict
