"""Storage backends: local files, and backends that a project registers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.not_included import not_included, stands_for


class BaseStorageBackend:
    """The base class of storage backends; a project may define its own."""

    @property
    def name(self) -> str:
        """Return the name of the backend."""
        return type(self).__name__


class LocalBackend(BaseStorageBackend):
    """The backend for local files."""

    def get(self, filepath: str | Path) -> bytes:
        """Return the bytes of a file."""
        return Path(filepath).read_bytes()

    def get_text(self, filepath: str | Path, encoding: str = "utf-8") -> str:
        """Return the text of a file."""
        return Path(filepath).read_text(encoding=encoding)

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write a file, and create missing parent folders."""
        Path(filepath).parent.mkdir(parents=True, exist_ok=True)
        Path(filepath).write_bytes(obj)

    def put_text(self, obj: str, filepath: str | Path, encoding: str = "utf-8") -> None:
        """Write a file, and create missing parent folders."""
        self.put(obj.encode(encoding), filepath)

    def exists(self, filepath: str | Path) -> bool:
        """Return whether the file or folder exists."""
        return Path(filepath).exists()

    def isdir(self, filepath: str | Path) -> bool:
        """Return whether the path is a folder."""
        return Path(filepath).is_dir()

    def isfile(self, filepath: str | Path) -> bool:
        """Return whether the path is a file."""
        return Path(filepath).is_file()

    def join_path(self, filepath: str | Path, *filepaths: str | Path) -> str:
        """Join parts into one path."""
        return os.path.join(filepath, *filepaths)

    @contextmanager
    def get_local_path(self, filepath: str | Path) -> Iterator[str | Path]:
        """Provide a local path for the file; here, this is the path itself."""
        yield filepath

    def copyfile(self, src: str | Path, dst: str | Path) -> str:
        """Copy a file and return the path of the copy."""
        return str(shutil.copy(src, dst))

    def copytree(self, src: str | Path, dst: str | Path) -> str:
        """Copy a folder to a path that does not exist yet, and return that path."""
        return str(shutil.copytree(src, dst))

    copyfile_from_local = copyfile_to_local = copyfile
    copytree_from_local = copytree_to_local = copytree

    def remove(self, filepath: str | Path) -> None:
        """Remove a file."""
        os.remove(filepath)

    def rmtree(self, dir_path: str | Path) -> None:
        """Remove a folder and everything in it."""
        shutil.rmtree(dir_path)

    def copy_if_symlink_fails(self, src: str | Path, dst: str | Path) -> bool:
        """Link to a file or folder, or copy it if linking fails; return whether it was linked."""
        try:
            os.symlink(src, dst)
        except OSError:
            if Path(src).is_dir():
                self.copytree(src, dst)
            else:
                self.copyfile(src, dst)
            return False
        return True

    def list_dir_or_file(
        self,
        dir_path: str | Path,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: str | tuple[str, ...] | None = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """Return the names in a folder, relative to it, without hidden files."""
        if list_dir and suffix is not None:
            raise ConfigValueError(
                "a suffix applies to files only: call list_dir_or_file(..., list_dir=False, suffix=...)"
            )
        return _list_names(Path(dir_path), Path(dir_path), list_dir, list_file, suffix, recursive)


def _list_names(
    root: Path, folder: Path, dirs: bool, files: bool, suffix: str | tuple[str, ...] | None, recursive: bool
) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        name = str(entry.relative_to(root))
        if entry.is_dir():
            if dirs:
                yield name
            if recursive:
                yield from _list_names(root, entry, dirs, files, suffix, recursive)
        elif files and not entry.name.startswith(".") and (suffix is None or name.endswith(suffix)):
            yield name


backends: dict[str, type[Any]] = {"local": LocalBackend}
prefix_to_backends: dict[str, type[Any]] = {"": LocalBackend, "local": LocalBackend, "file": LocalBackend}


def register_backend(
    name: str, backend: type[Any] | None = None, force: bool = False, prefixes: str | list[str] | None = None
) -> Any:
    """Register a project's own backend under a name, and under the prefixes that paths have before `://`."""

    def add(cls: type[Any]) -> type[Any]:
        for known, names in (
            (backends, [name]),
            (prefix_to_backends, [prefixes] if isinstance(prefixes, str) else prefixes),
        ):
            for each in names or ():
                if each in known and not force:
                    raise ConfigValueError(f"the backend name '{each}' is already taken; replace it with force=True")
                known[each] = cls
        return cls

    return add if backend is None else add(backend)


def get_file_backend(
    uri: str | Path | None = None, *, backend_args: dict[str, Any] | None = None, enable_singleton: bool = False
) -> Any:
    """Return the backend for a path: local, unless the path's prefix or `backend_args` names another one."""
    arguments = dict(backend_args or {})
    name = arguments.pop("backend", None)
    prefix = str(uri).partition("://")[0] if uri is not None and "://" in str(uri) else ""
    cls = backends.get(name) if name is not None else prefix_to_backends.get(prefix.rpartition(":")[2])
    if cls is None:
        where = f"backend '{name}'" if name is not None else f"prefix '{prefix}'"
        raise ConfigValueError(
            f"unknown {where}: only local files are supported; for others, register your own class: "
            "register_backend(name, cls, prefixes)"
        )
    return cls(**arguments)


__path__: list[str] = []  # its modules are this one
modules = ("base", "http_backend", "lmdb_backend", "local_backend", "memcached_backend", "petrel_backend")
stands_for(__name__, *(f"fileio.backends.{name}" for name in (*modules, "registry_utils")))
not_included(globals(), "HTTPBackend", "LmdbBackend", "MemcachedBackend", "PetrelBackend")
export_defined(globals())
