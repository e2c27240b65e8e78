"""`hookline plan`: show which hooks run at which points, without running anything."""

from __future__ import annotations

from typing import Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, show, to_the_end

EXAMPLES = """\b
Examples:
  hookline plan                    the plan of the bundled digits run
  hookline plan digits.yaml        the hooks at each point: order, frequency, and reason
  hookline plan digits.yaml --tree the same as a tree, with the file and line of every method
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("plan", epilog=EXAMPLES)(to_the_end()(plan))


def plan(
    words: Words = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show a tree with the file and line of every method.")] = False,
    allow: Allow = None,
) -> None:
    """Show which hooks of CONFIG run at each point.

    This also shows their order, how often they run, and the reason for their order. Only the hooks are checked.
    """
    from hookline.config.builder import build_hooks
    from hookline.engine.assembly import register_all
    from hookline.plan.explanation import Hooks
    from hookline.plan.plan import Plan

    loaded = load_config(words)
    default_hooks, custom_hooks = build_hooks(loaded, allow=allow or ())
    compiled = Plan(_NoHost(), loaded.data.get("points"))
    register_all(compiled, default_hooks, custom_hooks)
    show(Hooks(compiled) if tree else compiled.explain())


class _NoHost:
    """The host of a plan that is only displayed."""
