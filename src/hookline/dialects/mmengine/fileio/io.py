"""Read and write files through their storage backends."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.fileio.backends import get_file_backend
from hookline.dialects.mmengine.fileio.handlers import get_handler

PathLike = str | Path
Arguments = dict[str, Any] | None


def get(filepath: PathLike, backend_args: Arguments = None) -> bytes:
    """Return the bytes of a file."""
    found: bytes = get_file_backend(filepath, backend_args=backend_args).get(filepath)
    return found


def get_text(filepath: PathLike, encoding: str = "utf-8", backend_args: Arguments = None) -> str:
    """Return the text of a file."""
    found: str = get_file_backend(filepath, backend_args=backend_args).get_text(filepath, encoding)
    return found


def put(obj: bytes, filepath: PathLike, backend_args: Arguments = None) -> None:
    """Write a file, and create missing parent folders."""
    get_file_backend(filepath, backend_args=backend_args).put(obj, filepath)


def put_text(obj: str, filepath: PathLike, backend_args: Arguments = None) -> None:
    """Write a file, and create missing parent folders."""
    get_file_backend(filepath, backend_args=backend_args).put_text(obj, filepath)


def exists(filepath: PathLike, backend_args: Arguments = None) -> bool:
    """Return whether the file or folder exists."""
    found: bool = get_file_backend(filepath, backend_args=backend_args).exists(filepath)
    return found


def isdir(filepath: PathLike, backend_args: Arguments = None) -> bool:
    """Return whether the path is a folder."""
    found: bool = get_file_backend(filepath, backend_args=backend_args).isdir(filepath)
    return found


def isfile(filepath: PathLike, backend_args: Arguments = None) -> bool:
    """Return whether the path is a file."""
    found: bool = get_file_backend(filepath, backend_args=backend_args).isfile(filepath)
    return found


def get_local_path(filepath: PathLike, backend_args: Arguments = None) -> Any:
    """Return a context manager that provides a local path for the file."""
    return get_file_backend(filepath, backend_args=backend_args).get_local_path(filepath)


def copyfile(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a file and return the path of the copy."""
    found: str = get_file_backend(src, backend_args=backend_args).copyfile(src, dst)
    return found


def copyfile_from_local(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a local file to a backend."""
    found: str = get_file_backend(dst, backend_args=backend_args).copyfile_from_local(src, dst)
    return found


def copyfile_to_local(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a file from a backend to this machine."""
    found: str = get_file_backend(src, backend_args=backend_args).copyfile_to_local(src, dst)
    return found


def copytree(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a folder and return the path of the copy."""
    found: str = get_file_backend(src, backend_args=backend_args).copytree(src, dst)
    return found


def copytree_from_local(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a local folder to a backend."""
    found: str = get_file_backend(dst, backend_args=backend_args).copytree_from_local(src, dst)
    return found


def copytree_to_local(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> str:
    """Copy a folder from a backend to this machine."""
    found: str = get_file_backend(src, backend_args=backend_args).copytree_to_local(src, dst)
    return found


def copy_if_symlink_fails(src: PathLike, dst: PathLike, backend_args: Arguments = None) -> bool:
    """Link to a file or folder, or copy it if linking fails; return whether it was linked."""
    found: bool = get_file_backend(src, backend_args=backend_args).copy_if_symlink_fails(src, dst)
    return found


def remove(filepath: PathLike, backend_args: Arguments = None) -> None:
    """Remove a file."""
    get_file_backend(filepath, backend_args=backend_args).remove(filepath)


def rmtree(dir_path: PathLike, backend_args: Arguments = None) -> None:
    """Remove a folder and everything in it."""
    get_file_backend(dir_path, backend_args=backend_args).rmtree(dir_path)


def join_path(filepath: PathLike, *filepaths: PathLike, backend_args: Arguments = None) -> str:
    """Join parts into one path."""
    found: str = get_file_backend(filepath, backend_args=backend_args).join_path(filepath, *filepaths)
    return found


def list_dir_or_file(
    dir_path: PathLike,
    list_dir: bool = True,
    list_file: bool = True,
    suffix: str | tuple[str, ...] | None = None,
    recursive: bool = False,
    backend_args: Arguments = None,
) -> Any:
    """Return the names in a folder, relative to it, without hidden files."""
    backend = get_file_backend(dir_path, backend_args=backend_args)
    return backend.list_dir_or_file(dir_path, list_dir, list_file, suffix, recursive)


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
