"""What the hooks that write files do not take over."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError


def refuse_other_storage(who: str, *given: Any) -> None:
    """Refuse storage other than the disk: files are written atomically and verified, which needs one."""
    for backend in given:
        if backend and backend != {"backend": "local"} and backend != {"backend": "disk"}:
            raise ConfigValueError(
                f"{who}: files are written to the disk, and no other backend is offered, so {backend!r} cannot be had; "
                "write to the disk, and copy from there in a hook at after_run"
            )
