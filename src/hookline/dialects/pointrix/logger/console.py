"""Logger and ErrorLogger: they print to the screen and, while a trainer runs, to its run.log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hookline.screen.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console


class TerminalLogger:
    """Prints like a rich console. Other attributes come from a rich console, which is created on first use."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts, tables and panels, one after the other."""
        self.terminal.show(*objects, **options)

    def log(self, *objects: Any, **options: Any) -> None:
        """Print with the time of day in front."""
        self.terminal.show(f"\\[{time.strftime('%H:%M:%S')}]", *objects, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal.console, name)


class ErrorTerminal(Terminal):
    """A terminal on the error stream."""

    @property
    def console(self) -> Console:
        """Return the console of the error stream, in bold red."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, style="bold red", soft_wrap=True, highlight=False)
        return self._console


Logger = TerminalLogger(Terminal())
ErrorLogger = TerminalLogger(ErrorTerminal())
