"""A line a record, on the screen or in any stream."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

from hookline.common.checks import check_choice
from hookline.common.numbers import as_number
from hookline.writers.base import Writer
from hookline.writers.values import flat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ConsoleWriter(Writer):
    """Every record as a line: `step 120  epoch 2  train/loss 0.4103`. Images are a line about each.

    Args:
        stream: `stdout`, `stderr`, or a stream of one's own.
    """

    keeps_images = False  # nobody sees them in a line of text

    def __init__(self, stream: Literal["stdout", "stderr"] | TextIO = "stdout") -> None:
        if not hasattr(stream, "write"):
            check_choice("ConsoleWriter: stream", stream, ("stdout", "stderr"))
        self.stream = stream

    def _say(self, step: int, text: str) -> None:
        # Looked up each time: a progress display or a notebook puts its own stream there.
        stream: Any = getattr(sys, self.stream) if isinstance(self.stream, str) else self.stream
        print(f"step {step}  {text}", file=stream, flush=True)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One line."""
        self._say(step, "  ".join(f"{name} {as_number(value)}" for name, value in scalars.items()))

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One line with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """A line that there is one."""
        height, width = image.shape[:2]
        self._say(step, f"{name}: an image of {width} x {height}" + (f": {caption}" if caption else ""))

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """A line a value."""
        for path, value in flat(config):
            self._say(step, f"{name} {path}={value}")

    def write_text(self, name: str, text: str, step: int) -> None:
        """The text, as it is."""
        self._say(step, f"{name}: {text}")
