"""TextLoggerHook: a text printed at three points, to check that hooks run."""

from __future__ import annotations

from functools import partial

from hookline.dialects.imix.engine.hooks.base_hook import HookBase


class TextLoggerHook(HookBase):
    """Prints `before_train:<text>`, `after_train_iter:<text>` and `after_train:<text>`.

    Args:
        text: The text to print.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text

    def before_train(self) -> None:
        """Print the text before training."""
        self._print("before_train")

    def after_train_iter(self) -> None:
        """Print the text after an iteration."""
        self._print("after_train_iter")

    def after_train(self) -> None:
        """Print the text after training."""
        self._print("after_train")

    def _print(self, point: str) -> None:
        self.trainer.runner.terminal.detail(partial(str, f"{point}:{self.text}"))
