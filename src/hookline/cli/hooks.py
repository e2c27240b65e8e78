"""`hookline hooks`: list all hooks, or show one in full."""

from __future__ import annotations

from typing import Annotated

import typer

from hookline.cli.common import show
from hookline.common.escape import escaped
from hookline.errors import HooklineError
from hookline.plan.registry import HOOKS

EXAMPLES = """\b
Examples:
  hookline hooks                   all hooks, including hooks of installed packages
  hookline hooks CheckpointHook    one hook: description, parameters, points, example
  hookline hooks --markdown        the docs page about all built-in hooks
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("hooks", epilog=EXAMPLES)(hooks)


def hooks(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The hook to show in full.")] = "",
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the docs page about the built-in hooks as Markdown.")
    ] = False,
) -> None:
    """List the available hooks, or describe one of them."""
    from hookline.cli import documentation

    if markdown:
        show(documentation.page(), end="")
    else:
        show(documentation.as_text(name) if name else listing())


def listing() -> str:
    """Return one line per hook: name, priority, summary, and the package if it is not hookline."""
    from hookline.cli import documentation

    rows = []
    for name in HOOKS:
        try:
            hook = documentation.read(name)
        except HooklineError as error:  # a broken plugin must not hide the others
            rows.append((name, "", f"cannot be loaded: {error}", ""))
            continue
        origin = HOOKS.origin(name)
        rows.append((name, hook.priority, hook.summary, "" if origin == "hookline" else f"  [{origin}]"))
    table = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    return "\n".join(
        f"{name:{widths[0]}}  {priority:{widths[1]}}  {text}{origin}" for name, priority, text, origin in table
    )
