"""The progress display in a notebook: one output of the cell that is drawn anew, and goes when the run is over."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.screen.display import Picture

# A notebook has no columns; so many fit on most screens.
WIDTH = 100
NOTHING = {"text/html": "", "text/plain": ""}


def in_notebook() -> bool:
    """Whether this is a notebook (Jupyter, Colab), which shows more than lines; IPython in a terminal is none."""
    shell = getattr(builtins, "get_ipython", None)
    kind = type(shell()) if callable(shell) else type(None)
    return kind.__name__ == "ZMQInteractiveShell" or "google.colab" in kind.__module__


class NotebookDisplay:
    """An output of the cell that is drawn anew."""

    def __init__(self) -> None:
        from IPython import display

        show: Any = display.display
        self._output = show(NOTHING, raw=True, display_id=True)

    def draw(self, picture: Picture) -> None:
        """Draw it in place of the last one."""
        lines = "\n".join(line.plain for line in picture.lines(WIDTH))
        self._output.update({"text/html": f"<pre>{escape(lines)}</pre>", "text/plain": lines}, raw=True)

    def settle(self) -> None:
        """Lines have a place of their own."""

    def close(self) -> None:
        """Leave nothing behind."""
        self._output.update(NOTHING, raw=True)


@contextmanager
def display() -> Iterator[NotebookDisplay]:
    """A display that is there as long as this lasts."""
    with closing(NotebookDisplay()) as shown:
        yield shown
