"""Logger and ErrorLogger: what is printed goes to the screen and, while a trainer runs, to its run.log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hookline.screen.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console


class TerminalLogger:
    """Prints as a console of rich does; all else is asked of that console, which is made when first used."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def print(self, *objects: Any, **options: Any) -> None:
        """Texts, tables and panels, one after the other."""
        self.terminal.show(*objects, **options)

    def log(self, *objects: Any, **options: Any) -> None:
        """The same, with the time before it."""
        self.terminal.show(f"\\[{time.strftime('%H:%M:%S')}]", *objects, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal.console, name)


class ErrorTerminal(Terminal):
    """A terminal on the error stream."""

    @property
    def console(self) -> Console:
        """The screen, in bold red."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, style="bold red", soft_wrap=True, highlight=False)
        return self._console


Logger = TerminalLogger(Terminal())
ErrorLogger = TerminalLogger(ErrorTerminal())
