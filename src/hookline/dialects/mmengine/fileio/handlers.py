"""What is in files: JSON, YAML, and pickles of plain data."""

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
from hookline.errors import StorageError

#: What a pickle may be made of. Anything else could run code.
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


#: Stands for numpy's class of arrays: called by a pickle, that would take bytes of the file for addresses of memory.
ARRAY = object()


class BaseFileHandler(ABC):
    """Reads and writes one kind of file; a project may have its own."""

    #: Whether the file is text or bytes.
    str_like = True

    @abstractmethod
    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """What is in an open file."""

    @abstractmethod
    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write into an open file."""

    @abstractmethod
    def dump_to_str(self, obj: Any, **kwargs: Any) -> Any:
        """The text, or the bytes."""

    def load_from_path(self, filepath: str, mode: str = "r", **kwargs: Any) -> Any:
        """What is in a file."""
        with open(filepath, mode, encoding=None if "b" in mode else "utf-8") as file:
            return self.load_from_fileobj(file, **kwargs)

    def dump_to_path(self, obj: Any, filepath: str, mode: str = "w", **kwargs: Any) -> None:
        """Write a file."""
        with open(filepath, mode, encoding=None if "b" in mode else "utf-8") as file:
            self.dump_to_fileobj(obj, file, **kwargs)


class JsonHandler(BaseFileHandler):
    """JSON; sets, ranges and numpy's arrays and numbers are written as lists and numbers."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """What is in an open file."""
        return json.load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write into an open file."""
        file.write(self.dump_to_str(obj, **kwargs))

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """The text."""
        return json.dumps(obj, **{"default": _as_json, **kwargs})


class YamlHandler(BaseFileHandler):
    """YAML of plain data; a tag never makes anything else of it."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """What is in an open file."""
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(file)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write into an open file."""
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # its annotation is narrow
        yaml.dump(_plain(obj), file)

    def dump_to_str(self, obj: Any, **kwargs: Any) -> str:
        """The text."""
        text = io.StringIO()
        self.dump_to_fileobj(obj, text)
        return text.getvalue()


class PickleHandler(BaseFileHandler):
    """Pickles. One that holds more than plain data and numpy arrays is refused, because reading it could run code."""

    str_like = False

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """What is in an open file."""
        return PlainUnpickler(file, **kwargs).load()

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write into an open file."""
        pickle.dump(obj, file, **{"protocol": 2, **kwargs})

    def dump_to_str(self, obj: Any, **kwargs: Any) -> bytes:
        """The bytes."""
        return pickle.dumps(obj, **{"protocol": 2, **kwargs})


class PlainUnpickler(pickle.Unpickler):
    """Reads pickles of plain data and numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """A class or function that a pickle names, if it is harmless."""
        module = {"__builtin__": "builtins"}.get(module, module)  # as Python 2 called it, and protocol 2 still does
        if (module, name) == ("numpy", "ndarray"):
            return ARRAY
        if name == "_reconstruct" and name in HARMLESS.get(module, ()):
            return partial(_new_array, super().find_class(module, name))
        if name in HARMLESS.get(module, ()):
            return super().find_class(module, name)
        raise StorageError(
            f"the pickle holds a {module}.{name}, and only plain data and numpy arrays are read, because others could "
            "run code. If you trust the file, read it with Python's own pickle.load"
        )


def _new_array(reconstruct: Callable[..., Any], kind: object, shape: Any, code: Any) -> Any:
    """An array as numpy begins to read one."""
    if kind is not ARRAY:
        raise StorageError(f"the pickle makes an array of {kind!r}, and only plain arrays of numpy are read")
    return reconstruct(np.ndarray, shape, code)


def _plain(value: Any) -> Any:
    """Plain data, with what YAML and JSON have no word for as lists and numbers."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, (set, frozenset, range, np.generic, np.ndarray)):
        return _plain(value)
    raise ConfigTypeError(f"a {type(value).__name__} cannot be written as JSON")


HANDLERS: dict[str, BaseFileHandler] = {
    "json": JsonHandler(),
    "yaml": YamlHandler(),
    "yml": YamlHandler(),
    "pickle": PickleHandler(),
    "pkl": PickleHandler(),
}


def register_handler(file_formats: str | list[str], **kwargs: Any) -> Callable[[type[Any]], type[Any]]:
    """Make a handler of a project's own known by the endings of its files."""

    def add(cls: type[Any]) -> type[Any]:
        if not issubclass(cls, BaseFileHandler):
            raise ConfigTypeError(f"a handler of files is a BaseFileHandler, not a {cls.__name__}")
        for ending in [file_formats] if isinstance(file_formats, str) else file_formats:
            HANDLERS[ending] = cls(**kwargs)
        return cls

    return add


def handler_of(ending: str) -> BaseFileHandler:
    """What reads and writes files of an ending."""
    if ending not in HANDLERS:
        raise ConfigValueError(f"files that end with '.{ending}' are not known; available: {', '.join(HANDLERS)}")
    return HANDLERS[ending]
