"""A writer that keeps everything in lists, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.writers.base import Writer


class MemoryWriter(Writer):
    """Keeps what it is given: `records`, `images`, `configs`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.images: list[tuple[str, Any, int, str | None]] = []
        self.configs: list[tuple[str, dict[str, Any], int]] = []

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One record."""
        self.records.append({"step": step, **scalars})

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One record with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image, as it is."""
        self.images.append((name, image, step, caption))

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config, copied."""
        self.configs.append((name, dict(config), step))
