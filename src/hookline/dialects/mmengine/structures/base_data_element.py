"""BaseDataElement: the data and the metadata of a sample, as attributes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

OWN = ("_metainfo_fields", "_data_fields")


class Names(dict[str, None]):
    """A set of names that keeps their order, so that runs are repeatable."""

    def add(self, name: str) -> None:
        """Add a name at the end, unless it is there."""
        self.setdefault(name)

    def remove(self, name: str) -> None:
        """Remove a name."""
        del self[name]


class BaseDataElement:
    """Data fields (annotations, predictions) and metadata fields (shape, file name) of a sample.

    Assigning an attribute sets a data field. A name belongs either to the data or to the metadata.

    >>> sample = BaseDataElement(metainfo={"img_shape": (4, 6)}, boxes=torch.zeros(2, 4))
    >>> sample.keys(), sample.metainfo, "boxes" in sample, sample.get("missing")
    (['boxes'], {'img_shape': (4, 6)}, True, None)
    """

    _metainfo_fields: Names
    _data_fields: Names
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field."""

    def __init__(self, *, metainfo: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._metainfo_fields = Names()
        self._data_fields = Names()
        if metainfo is not None:
            self.set_metainfo(metainfo)
        if kwargs:
            self.set_data(kwargs)

    # -- setting

    def set_metainfo(self, metainfo: dict[str, Any]) -> None:
        """Set metadata fields to copies of these values."""
        assert isinstance(metainfo, dict), f"metainfo must be a dict, not a {type(metainfo).__name__}"
        for name, value in copy.deepcopy(metainfo).items():
            self.set_field(value, name, field_type="metainfo")

    def set_data(self, data: dict[str, Any]) -> None:
        """Set data fields."""
        assert isinstance(data, dict), f"data must be a dict, not a {type(data).__name__}"
        for name, value in data.items():
            setattr(self, name, value)

    def update(self, instance: BaseDataElement) -> None:
        """Set all fields of another element."""
        assert isinstance(instance, BaseDataElement), f"expected a data element, not a {type(instance).__name__}"
        self.set_metainfo(dict(instance.metainfo_items()))
        self.set_data(dict(instance.items()))

    def set_field(self, value: Any, name: str, dtype: Any = None, field_type: str = "data") -> None:
        """Set a field of the data or of the metadata; with `dtype`, only to a value of this type."""
        assert field_type in ("metainfo", "data"), f"field_type must be 'metainfo' or 'data', not {field_type!r}"
        assert dtype is None or isinstance(value, dtype), f"{name} must be a {dtype}, not a {type(value).__name__}"
        mine, others, other = self._data_fields, self._metainfo_fields, "metainfo"
        if field_type == "metainfo":
            mine, others, other = others, mine, "data"
        if name in others:
            raise AttributeError(f"'{name}' is already a field of the {other}, so it cannot be set in the {field_type}")
        mine.add(name)
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in OWN:
            self.set_field(value, name)
        elif name in vars(self):
            raise AttributeError(f"'{name}' is private and cannot be replaced")
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, item: str) -> None:
        if item in OWN:
            raise AttributeError(f"'{item}' is private and cannot be deleted")
        super().__delattr__(item)
        self._metainfo_fields.pop(item, None)
        self._data_fields.pop(item, None)

    __delitem__ = __delattr__

    def pop(self, *args: Any) -> Any:
        """Remove a field and return its value; if it is missing, return the default, if one is given."""
        assert len(args) < 3, "pop takes a name and an optional default"
        name = args[0]
        if name not in self:
            if len(args) == 2:
                return args[1]
            raise KeyError(f"'{name}' is neither in the metainfo nor in the data")
        self._metainfo_fields.pop(name, None)
        self._data_fields.pop(name, None)
        return vars(self).pop(*args)

    # -- reading

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field, or the default."""
        return getattr(self, key, default)

    def __contains__(self, item: str) -> bool:
        return item in self._data_fields or item in self._metainfo_fields

    def keys(self) -> list[str]:
        """Return the names of the data fields, without the private ones behind properties."""
        behind = {f"_{name}" for name in self._data_fields if isinstance(getattr(type(self), name, None), property)}
        return [name for name in self._data_fields if name not in behind]

    def metainfo_keys(self) -> list[str]:
        """Return the names of the metadata fields."""
        return list(self._metainfo_fields)

    def all_keys(self) -> list[str]:
        """Return the names of all fields."""
        return self.metainfo_keys() + self.keys()

    def values(self) -> list[Any]:
        """Return the values of the data fields."""
        return [getattr(self, name) for name in self.keys()]

    def metainfo_values(self) -> list[Any]:
        """Return the values of the metadata fields."""
        return [getattr(self, name) for name in self.metainfo_keys()]

    def all_values(self) -> list[Any]:
        """Return the values of all fields."""
        return self.metainfo_values() + self.values()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of the data fields."""
        for name in self.keys():
            yield name, getattr(self, name)

    def metainfo_items(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of the metadata fields."""
        for name in self.metainfo_keys():
            yield name, getattr(self, name)

    def all_items(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of all fields."""
        for name in self.all_keys():
            yield name, getattr(self, name)

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return the metadata as a dict."""
        return dict(self.metainfo_items())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict; elements inside become dicts, too."""
        return {
            name: value.to_dict() if isinstance(value, BaseDataElement) else value for name, value in self.all_items()
        }

    # -- copies

    def new(self, *, metainfo: dict[str, Any] | None = None, **kwargs: Any) -> Self:
        """Return a new element of the same type, with other metadata or other data if they are given."""
        made = type(self)()
        made.set_metainfo(dict(self.metainfo_items()) if metainfo is None else metainfo)
        made.set_data(kwargs or dict(self.items()))
        return made

    def clone(self) -> Self:
        """Return a copy that shares the values of its data fields."""
        made = type(self)()
        made.set_metainfo(dict(self.metainfo_items()))
        made.set_data(dict(self.items()))
        return made

    def _converted(self, convert: Callable[[Any], Any], kinds: tuple[type, ...]) -> Self:
        made = self.new()
        for name, value in self.items():
            if isinstance(value, kinds):
                made.set_data({name: convert(value)})
        return made

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return a copy with all data that has a method `to` moved or converted."""
        made = self.new()
        for name, value in self.items():
            if hasattr(value, "to"):
                made.set_data({name: value.to(*args, **kwargs)})
        return made

    def cpu(self) -> Self:
        """Return a copy with its tensors on the CPU."""
        return self._converted(lambda value: value.cpu(), (torch.Tensor, BaseDataElement))

    def cuda(self) -> Self:
        """Return a copy with its tensors on the GPU."""
        return self._converted(lambda value: value.cuda(), (torch.Tensor, BaseDataElement))

    def detach(self) -> Self:
        """Return a copy with detached tensors."""
        return self._converted(lambda value: value.detach(), (torch.Tensor, BaseDataElement))

    def numpy(self) -> Self:
        """Return a copy with arrays in place of tensors."""
        return self._converted(lambda value: value.detach().cpu().numpy(), (torch.Tensor, BaseDataElement))

    def to_tensor(self) -> Self:
        """Return a copy with tensors in place of arrays."""
        made = self._converted(torch.from_numpy, (np.ndarray,))
        for name, value in self.items():
            if isinstance(value, BaseDataElement):
                made.set_data({name: value.to_tensor()})
        return made

    def __repr__(self) -> str:
        parts = (("META INFORMATION", self.metainfo_items()), ("DATA FIELDS", self.items()))
        lines = [f"\n\n    {title}" + "".join(map(_line, items)) for title, items in parts]
        return f"<{type(self).__name__}({''.join(lines)}\n) at {hex(id(self))}>"


def _line(item: tuple[str, Any]) -> str:
    name, value = item
    return f"\n    {name}: " + _text(value).replace("\n", "\n        ")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"\n{name}: " + _text(each).replace("\n", "\n    ") for name, each in value.items())
    return repr(value)
