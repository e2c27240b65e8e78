"""Epoch: one pass over the data in a loop of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.errors import HooklineError
from hookline.integrations.inverted import PASS_ENDED


class Epoch:
    """One pass over the data in a loop of the user: it yields the batches that are left of it."""

    def __init__(self, advance: Callable[[], Any], at_end: Callable[[], None], number: int) -> None:
        self._advance, self._at_end = advance, at_end
        #: The number of the epoch, from 0.
        self.number = number
        #: True once all its batches were used, or training was stopped.
        self.ended = False

    def __repr__(self) -> str:
        return f"epoch {self.number}"

    def __iter__(self) -> Epoch:
        if self.ended:
            raise HooklineError(f"the batches of {self} are used up; write one loop over them: for batch in epoch")
        return self

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        value = self._advance()
        if value is PASS_ENDED:
            self.ended = True
            self._at_end()
            raise StopIteration
        return value
