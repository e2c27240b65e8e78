"""MemoryWriter: keeps everything in lists, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hookline.writers.base import Writer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MemoryWriter(Writer):
    """Keeps everything in lists: `records`, `images`, `configs`, `histograms`, `texts` and `tables`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.images: list[tuple[str, Any, int, str | None]] = []
        self.configs: list[tuple[str, dict[str, Any], int]] = []
        self.histograms: list[tuple[str, NDArray[np.float64], int]] = []
        self.texts: list[tuple[str, str, int]] = []
        self.tables: list[tuple[str, list[str], list[list[Any]], int]] = []

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Keep one record."""
        self.records.append({"step": step, **scalars})

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Keep one record with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Keep one image."""
        self.images.append((name, image, step, caption))

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Keep a copy of the config."""
        self.configs.append((name, dict(config), step))

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """Keep the values themselves."""
        self.histograms.append((name, values, step))

    def write_text(self, name: str, text: str, step: int) -> None:
        """Keep one text."""
        self.texts.append((name, text, step))

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Keep one table."""
        self.tables.append((name, list(columns), [list(row) for row in rows], step))

    def _lists(self) -> dict[str, list[Any]]:
        return {
            "records": self.records,
            "images": self.images,
            "configs": self.configs,
            "histograms": self.histograms,
            "texts": self.texts,
            "tables": self.tables,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the lengths of the lists."""
        return {name: len(kept) for name, kept in self._lists().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop everything that was added after the checkpoint, if this is still the same writer."""
        for name, kept in self._lists().items():
            del kept[state.get(name, 0) :]
