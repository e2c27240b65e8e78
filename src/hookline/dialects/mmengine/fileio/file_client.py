"""FileClient: the older interface to storage backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.fileio.backends import LocalBackend, get_file_backend

__all__ = ["FileClient", "HardDiskBackend"]


class HardDiskBackend(LocalBackend):
    """The older name of LocalBackend."""


class FileClient:
    """A client with the methods of its backend.

    Args:
        backend: The name of the backend; `disk` is the local one.
        prefix: The prefix that paths have before `://`.
        **kwargs: Arguments of the backend.
    """

    def __init__(self, backend: str | None = None, prefix: str | None = None, **kwargs: Any) -> None:
        name = {"disk": "local"}.get(backend or "", backend)
        uri = f"{prefix}://" if prefix else None
        self.client = get_file_backend(uri, backend_args={**kwargs, **({"backend": name} if name else {})})

    @classmethod
    def infer_client(cls, file_client_args: dict[str, Any] | None = None, uri: str | Path | None = None) -> FileClient:
        """Create the client for the given arguments, or for a path."""
        if file_client_args is None and uri is not None and "://" in str(uri):
            return cls(prefix=str(uri).partition("://")[0])
        return cls(**(file_client_args or {}))

    def __getattr__(self, name: str) -> Any:
        if name == "client":
            raise AttributeError(name)
        return getattr(self.client, name)
