"""TextLoggerHook: a text at three points, to see that hooks run."""

from __future__ import annotations

from functools import partial

from hookline.dialects.imix.engine.hooks.base_hook import HookBase


class TextLoggerHook(HookBase):
    """Says `before_train:<text>`, `after_train_iter:<text>` and `after_train:<text>`.

    Args:
        text: What to say.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text

    def before_train(self) -> None:
        """Training begins."""
        self._say("before_train")

    def after_train_iter(self) -> None:
        """An iteration is over."""
        self._say("after_train_iter")

    def after_train(self) -> None:
        """Training is over."""
        self._say("after_train")

    def _say(self, point: str) -> None:
        self.trainer.runner.terminal.detail(partial(str, f"{point}:{self.text}"))
