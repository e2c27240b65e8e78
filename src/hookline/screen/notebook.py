"""The progress display in a notebook: one output of the cell, redrawn in place and removed after the run."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.screen.display import Picture

# A notebook has no columns. This width fits on most screens.
WIDTH = 100
NOTHING = {"text/html": "", "text/plain": ""}


def in_notebook() -> bool:
    """Return whether this is a notebook (Jupyter, Colab). IPython in a terminal is not one."""
    shell = getattr(builtins, "get_ipython", None)
    kind = type(shell()) if callable(shell) else type(None)
    return kind.__name__ == "ZMQInteractiveShell" or "google.colab" in kind.__module__


class NotebookDisplay:
    """An output of the cell that is redrawn in place."""

    def __init__(self) -> None:
        from IPython import display

        show: Any = display.display
        self._output = show(NOTHING, raw=True, display_id=True)

    def draw(self, picture: Picture) -> None:
        """Draw a picture in place of the previous one."""
        lines = "\n".join(line.plain for line in picture.lines(WIDTH))
        self._output.update({"text/html": f"<pre>{escape(lines)}</pre>", "text/plain": lines}, raw=True)

    def settle(self) -> None:
        """Do nothing: a notebook shows lines in a separate place."""

    def close(self) -> None:
        """Remove the display."""
        self._output.update(NOTHING, raw=True)


@contextmanager
def display() -> Iterator[NotebookDisplay]:
    """Show a display while the context lasts."""
    with closing(NotebookDisplay()) as shown:
        yield shown
