"""The progress display in a notebook: one output of the cell that is drawn anew, and goes when the run is over."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.display import Picture

# A notebook has no columns; so many fit on most screens.
WIDTH = 100


def in_notebook() -> bool:
    """Whether this is a notebook (Jupyter, Colab), which shows more than lines; IPython in a terminal is none."""
    shell = getattr(builtins, "get_ipython", None)
    kind = type(shell()) if callable(shell) else type(None)
    return kind.__name__ == "ZMQInteractiveShell" or "google.colab" in kind.__module__


@contextmanager
def display() -> Iterator[Callable[[Picture], None]]:
    """An output that is drawn anew as long as this lasts; gives what draws it."""
    from IPython import display as ipython

    show: Any = ipython.display
    shown = show({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def draw(picture: Picture) -> None:
        lines = "\n".join(line.plain for line in picture.lines(WIDTH))
        shown.update({"text/html": f"<pre>{escape(lines)}</pre>", "text/plain": lines}, raw=True)

    try:
        yield draw
    finally:
        shown.update({"text/html": "", "text/plain": ""}, raw=True)
