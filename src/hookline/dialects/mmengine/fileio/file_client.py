"""FileClient: an older name for where files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.fileio.backends import LocalBackend, get_file_backend


class HardDiskBackend(LocalBackend):
    """An older name of LocalBackend."""


class FileClient:
    """Has the methods of the backend that it is made for.

    Args:
        backend: The name of the backend; `disk` is this machine.
        prefix: What comes before `://` in paths.
        **kwargs: What the backend takes.
    """

    def __init__(self, backend: str | None = None, prefix: str | None = None, **kwargs: Any) -> None:
        name = {"disk": "local"}.get(backend or "", backend)
        uri = f"{prefix}://" if prefix else None
        self.client = get_file_backend(uri, backend_args={**kwargs, **({"backend": name} if name else {})})

    @classmethod
    def infer_client(cls, file_client_args: dict[str, Any] | None = None, uri: str | Path | None = None) -> FileClient:
        """The client of some arguments, or of a path."""
        if file_client_args is None and uri is not None and "://" in str(uri):
            return cls(prefix=str(uri).partition("://")[0])
        return cls(**(file_client_args or {}))

    def __getattr__(self, name: str) -> Any:
        if name == "client":
            raise AttributeError(name)
        return getattr(self.client, name)
