"""The progress display in a notebook: one output of the cell, redrawn in place and removed after the run."""

from __future__ import annotations

import ast
import builtins
import weakref
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


def hide_result(trained: object) -> None:
    """Do not show this object as the result of a cell that ends with a call of `train()`.

    IPython would print every layer of a model. The value of the call is still the model, and a cell that ends with the
    model itself shows it. Outside IPython, this does nothing.
    """
    shell = getattr(builtins, "get_ipython", None)
    ipython = shell() if callable(shell) else None
    formatter = getattr(getattr(ipython, "display_formatter", None), "ipython_display_formatter", None)
    if formatter is None:
        return
    _hidden.add(trained)
    if type(trained) not in formatter:  # a class may have its own way to be shown
        formatter.for_type(type(trained), _show_unless_hidden)


#: The trained models that a call of `train()` has returned.
_hidden: weakref.WeakSet[Any] = weakref.WeakSet()


def _show_unless_hidden(result: object) -> None:
    """Show nothing for the result of `train()`. For anything else, let IPython show it as usual."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    cells = shell.user_ns.get("_ih", [""]) if shell is not None else [""]
    if result not in _hidden or not ends_with_train(cells[-1]):
        raise NotImplementedError  # IPython then tries the other ways to show it


def ends_with_train(cell: str) -> bool:
    r"""Return whether the last expression of a cell is a call of a method `train`, also inside `%time`.

    >>> ends_with_train("model = build()\nrunner.train()"), ends_with_train("runner.train()\nmodel")
    (True, False)
    """
    try:
        last = ast.parse(cell).body[-1]
    except (SyntaxError, IndexError):
        return False
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        return False
    call = last.value
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("run_line_magic", "run_cell_magic") and call.args:
        inner = call.args[-1]
        return isinstance(inner, ast.Constant) and ends_with_train(str(inner.value))
    return call.func.attr == "train"


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
