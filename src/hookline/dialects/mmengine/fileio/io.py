"""Read and write files through their storage backends."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.fileio.backends import LocalBackend, get_file_backend
from hookline.dialects.mmengine.fileio.handlers import get_handler
from hookline.dialects.mmengine.not_included import not_included

PathLike = str | Path
Arguments = dict[str, Any] | None
backend_instances: dict[str, Any] = {}
not_included(globals(), "generate_presigned_url")


def _of_backend(name: str, path: str | None = None) -> Callable[..., Any]:
    """Return a function that calls a method of the backend for a path: its parameter `path`, or the first one.

    It has the parameters of the method, and `backend_args` after them.
    """
    method = getattr(LocalBackend, name)
    own = list(inspect.signature(method).parameters.values())[1:]
    kind = own[-1].kind if own[-1].kind is not own[-1].VAR_POSITIONAL else own[-1].KEYWORD_ONLY
    signature = inspect.Signature([*own, inspect.Parameter("backend_args", kind, default=None)])
    place = path or own[0].name

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        backend_args = given.arguments.pop("backend_args", None)
        backend = get_file_backend(given.arguments[place], backend_args=backend_args)
        return getattr(backend, name)(*given.args, **given.kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__signature__ = method.__doc__, signature  # type: ignore[attr-defined]  # shown by help()
    return call


get = _of_backend("get")
get_text = _of_backend("get_text")
put = _of_backend("put", "filepath")
exists = _of_backend("exists")
isdir = _of_backend("isdir")
isfile = _of_backend("isfile")
get_local_path = _of_backend("get_local_path")
copyfile = _of_backend("copyfile")
copyfile_from_local = _of_backend("copyfile_from_local", "dst")
copyfile_to_local = _of_backend("copyfile_to_local")
copytree = _of_backend("copytree")
copytree_from_local = _of_backend("copytree_from_local", "dst")
copytree_to_local = _of_backend("copytree_to_local")
copy_if_symlink_fails = _of_backend("copy_if_symlink_fails")
remove = _of_backend("remove")
rmtree = _of_backend("rmtree")
join_path = _of_backend("join_path")
list_dir_or_file = _of_backend("list_dir_or_file")


def put_text(obj: str, filepath: PathLike, backend_args: Arguments = None) -> None:
    """Write a file, and create missing parent folders."""
    get_file_backend(filepath, backend_args=backend_args).put_text(obj, filepath)


def load(
    file: Any,
    file_format: str | None = None,
    file_client_args: Arguments = None,
    backend_args: Arguments = None,
    **kwargs: Any,
) -> Any:
    """Read a JSON, YAML or pickle file, as its ending says; pass a path, or an open file and its format."""
    if isinstance(file, (str, Path)):
        handler = get_handler(file_format or _ending(file))
        content = get(file, backend_args=backend_args or file_client_args)
        opened: Any = io.StringIO(content.decode()) if handler.str_like else io.BytesIO(content)
        return handler.load_from_fileobj(opened, **kwargs)
    if not hasattr(file, "read") or file_format is None:
        raise ConfigTypeError(f"load takes a path, or an open file with file_format='json', not {file!r}")
    return get_handler(file_format).load_from_fileobj(file, **kwargs)


def dump(
    obj: Any,
    file: Any = None,
    file_format: str | None = None,
    file_client_args: Arguments = None,
    backend_args: Arguments = None,
    **kwargs: Any,
) -> Any:
    """Write JSON, YAML or a pickle to a path or an open file; without a file, return the content."""
    if isinstance(file, (str, Path)):
        handler = get_handler(file_format or _ending(file))
        content = handler.dump_to_str(obj, **kwargs)
        put(content.encode() if handler.str_like else content, file, backend_args=backend_args or file_client_args)
        return None
    if file_format is None:
        raise ConfigTypeError("dump needs a path, or file_format='json'")
    if file is None:
        return get_handler(file_format).dump_to_str(obj, **kwargs)
    get_handler(file_format).dump_to_fileobj(obj, file, **kwargs)
    return None


def _ending(file: PathLike) -> str:
    return str(file).rpartition(".")[2]


def list_from_file(
    filename: PathLike,
    prefix: str = "",
    offset: int = 0,
    max_num: int = 0,
    encoding: str = "utf-8",
    file_client_args: Arguments = None,
    backend_args: Arguments = None,
) -> list[str]:
    """Return the lines of a text file from number `offset` on; at most `max_num` of them, unless it is 0."""
    lines = get_text(filename, encoding, backend_args or file_client_args).splitlines()[offset:]
    return [prefix + line for line in (lines[:max_num] if max_num > 0 else lines)]


def dict_from_file(
    filename: PathLike,
    key_type: type[Any] = str,
    encoding: str = "utf-8",
    file_client_args: Arguments = None,
    backend_args: Arguments = None,
) -> dict[Any, Any]:
    """Read a dict from a text file with a key and one or more values per line."""
    found: dict[Any, Any] = {}
    for line in list_from_file(filename, encoding=encoding, backend_args=backend_args or file_client_args):
        key, *values = line.split()
        found[key_type(key)] = values[0] if len(values) == 1 else values
    return found


export_defined(globals())
