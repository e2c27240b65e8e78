"""Handlers for file formats: JSON, YAML, and pickles of plain data."""

from __future__ import annotations

import io
import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.fileio.tensors import SAFE
from hookline.dialects.mmengine.not_included import stands_for
from hookline.errors import StorageError

__all__ = ["BaseFileHandler", "JsonHandler", "PickleHandler", "YamlHandler", "register_handler"]

#: The names that a pickle may use. Anything else could run code.
HARMLESS = {
    "builtins": {"set", "frozenset", "complex", "bytearray", "range", "slice"},
    "collections": {"OrderedDict", "defaultdict", "Counter", "deque"},
    "_codecs": {"encode"},
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
}


#: Stands in for numpy's array class: a pickle that calls that class could use bytes of the file as memory addresses.
ARRAY = object()


class BaseFileHandler(ABC):
    """The base class of handlers, which read and write one file format; a project may define its own."""

    #: Whether the file is text or bytes.
    str_like = True

    @abstractmethod
    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read the content of an open file."""

    @abstractmethod
    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write to an open file."""

    @abstractmethod
    def dump_to_str(self, obj: Any, **kwargs: Any) -> Any:
        """Return the text or the bytes."""

    def load_from_path(self, filepath: str, mode: str = "r", **kwargs: Any) -> Any:
        """Read the content of a file."""
        with open(filepath, mode, encoding=None if "b" in mode else "utf-8") as file:
            return self.load_from_fileobj(file, **kwargs)

    def dump_to_path(self, obj: Any, filepath: str, mode: str = "w", **kwargs: Any) -> None:
        """Write a file."""
        with open(filepath, mode, encoding=None if "b" in mode else "utf-8") as file:
            self.dump_to_fileobj(obj, file, **kwargs)


class JsonHandler(BaseFileHandler):
    """Reads and writes JSON. Sets, ranges, and numpy arrays and numbers are written as lists and numbers."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read the content of an open file."""
        return json.load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write to an open file."""
        file.write(self.dump_to_str(obj, **kwargs))

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """Return the text."""
        return json.dumps(obj, **{"default": set_default, **kwargs})


class YamlHandler(BaseFileHandler):
    """Reads and writes YAML of plain data; a tag never creates any other object."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read the content of an open file."""
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(file)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write to an open file."""
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # its annotation is narrow
        yaml.dump(_plain(obj), file)

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """Return the text."""
        text = io.StringIO()
        self.dump_to_fileobj(obj, text)
        return text.getvalue()


class PickleHandler(BaseFileHandler):
    """Reads and writes pickles. It refuses to read anything but plain data, arrays and tensors: it could run code."""

    str_like = False

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read the content of an open file."""
        return PlainUnpickler(file, **kwargs).load()

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write to an open file."""
        pickle.dump(obj, file, **{"protocol": 2, **kwargs})

    def dump_to_str(self, obj: Any, **kwargs: Any) -> bytes:
        """Return the bytes."""
        return pickle.dumps(obj, **{"protocol": 2, **kwargs})


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that reads only plain data, numpy arrays and tensors."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function that a pickle names, if it is harmless; refuse any other."""
        module = {"__builtin__": "builtins"}.get(module, module)  # its name in Python 2, which protocol 2 still uses
        if (module, name) == ("numpy", "ndarray"):
            return ARRAY
        if (module, name) in SAFE:
            return SAFE[module, name]
        if name == "_reconstruct" and name in HARMLESS.get(module, ()):
            return partial(_new_array, super().find_class(module, name))
        if name in HARMLESS.get(module, ()):
            return super().find_class(module, name)
        raise StorageError(
            f"the pickle holds a {module}.{name}, but only plain data, numpy arrays and tensors are read, because "
            "other objects could run code. If you trust the file, read it with Python's own pickle.load"
        )


def _new_array(reconstruct: Callable[..., Any], kind: object, shape: Any, code: Any) -> Any:
    """Create the empty array that numpy then fills."""
    if kind is not ARRAY:
        raise StorageError(f"the pickle creates an array of the class {kind!r}, but only plain numpy arrays are read")
    return reconstruct(np.ndarray, shape, code)


def _plain(value: Any) -> Any:
    """Return plain data, with types that YAML and JSON lack converted to lists and numbers."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    return value


def set_default(value: Any) -> Any:
    """Return what JSON can hold in place of a value."""
    if isinstance(value, (set, frozenset, range, np.generic, np.ndarray)):
        return _plain(value)
    raise ConfigTypeError(f"a {type(value).__name__} cannot be written as JSON")


file_handlers: dict[str, BaseFileHandler] = {
    "json": JsonHandler(),
    "yaml": YamlHandler(),
    "yml": YamlHandler(),
    "pickle": PickleHandler(),
    "pkl": PickleHandler(),
}


def register_handler(file_formats: str | list[str], **kwargs: Any) -> Callable[[type[Any]], type[Any]]:
    """Register a project's own handler for the endings of its files."""

    def add(cls: type[Any]) -> type[Any]:
        if not issubclass(cls, BaseFileHandler):
            raise ConfigTypeError(f"a file handler must be a subclass of BaseFileHandler, and {cls.__name__} is not")
        for ending in [file_formats] if isinstance(file_formats, str) else file_formats:
            file_handlers[ending] = cls(**kwargs)
        return cls

    return add


def get_handler(ending: str) -> BaseFileHandler:
    """Return the handler for files with this ending."""
    if ending not in file_handlers:
        raise ConfigValueError(f"unknown file ending '.{ending}'; available: {', '.join(file_handlers)}")
    return file_handlers[ending]


__path__: list[str] = []  # its modules are this one
modules = ("base", "json_handler", "pickle_handler", "registry_utils", "yaml_handler")
stands_for(__name__, *(f"fileio.handlers.{name}" for name in modules))
