"""The check that files are only written to the local disk."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError


def refuse_other_storage(who: str, *given: Any) -> None:
    """Refuse any storage but the local disk, because files are written atomically and then verified."""
    if all(backend is not None for backend in given) and len(given) > 1:
        raise ConfigValueError(f"{who}: file_client_args is the old name of backend_args; set only one of them")
    for backend in given:
        if backend and backend != {"backend": "local"} and backend != {"backend": "disk"}:
            raise ConfigValueError(
                f"{who}: the backend {backend!r} is not supported: files are only written to the local disk; "
                "write to the disk, and copy the files from there in a hook at after_run"
            )
