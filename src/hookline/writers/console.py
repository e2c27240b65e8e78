"""ConsoleWriter: one line per record, on the screen or in any stream."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

from hookline.common.checks import check_choice
from hookline.common.escape import escaped, escaped_lines
from hookline.common.numbers import as_number
from hookline.writers.base import Writer
from hookline.writers.values import flatten

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ConsoleWriter(Writer):
    """Prints one line per record: `step 120  epoch 2  train/loss 0.4103`. For an image, a line shows its size.

    Args:
        stream: `stdout`, `stderr`, or any text stream.
    """

    keeps_images = False  # a line of text cannot show them

    def __init__(self, stream: Literal["stdout", "stderr"] | TextIO = "stdout") -> None:
        if not hasattr(stream, "write"):
            check_choice("ConsoleWriter: stream", stream, ("stdout", "stderr"))
        self.stream = stream

    def _print(self, step: int, text: str) -> None:
        # Looked up each time, because a progress display or a notebook may replace the stream.
        stream: Any = getattr(sys, self.stream) if isinstance(self.stream, str) else self.stream
        print(escaped_lines(f"step {step}  {text}"), file=stream, flush=True)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Print one line."""
        self._print(step, "  ".join(f"{escaped(name)} {as_number(value)}" for name, value in scalars.items()))

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Print one line with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """Print one line with the size and the caption."""
        height, width = image.shape[:2]
        size = f"an image of {width} x {height}"
        self._print(step, f"{escaped(name)}: {size}" + (f": {escaped(caption)}" if caption else ""))

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Print one line per value."""
        for path, value in flatten(config):
            self._print(step, f"{escaped(name)} {escaped(path)}={escaped(value)}")

    def write_text(self, name: str, text: str, step: int) -> None:
        """Print the text, with its line breaks."""
        self._print(step, f"{escaped(name)}: {text}")
