"""`hookline hooks`: what there is, and what one of them does."""

from __future__ import annotations

from typing import Annotated

import typer

from hookline.errors import HooklineError
from hookline.plan.registry import HOOKS

EXAMPLES = """\b
Examples:
  hookline hooks                   all hooks, also those of installed packages
  hookline hooks CheckpointHook    what one does, its parameters, its points, an example
  hookline hooks --markdown        the page of the docs about all that hookline brings
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    app.command("hooks", epilog=EXAMPLES)(hooks)


def hooks(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One hook, in full.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="The page of the docs, to standard output.")] = False,
) -> None:
    """List the hooks that a config can name, or show one of them in full."""
    from hookline.cli import documentation

    if markdown:
        print(documentation.page(), end="")
    else:
        print(documentation.as_text(name) if name else listing())


def listing() -> str:
    """A line a hook: name, priority, what it does, where it comes from."""
    from hookline.cli import documentation

    rows = []
    for name in HOOKS:
        try:
            hook = documentation.read(name)
        except HooklineError as error:  # a plugin that is broken must not hide the others
            rows.append((name, "", f"cannot be loaded: {error}", ""))
            continue
        origin = HOOKS.origin(name)
        rows.append((name, hook.priority, hook.summary, "" if origin == "hookline" else f"  [{origin}]"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(
        f"{name:{widths[0]}}  {priority:{widths[1]}}  {text}{origin}" for name, priority, text, origin in rows
    )
