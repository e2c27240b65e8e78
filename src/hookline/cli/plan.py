"""`hookline plan`: who runs where, before anything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, to_the_end

EXAMPLES = """\b
Examples:
  hookline plan                    of the bundled digits run
  hookline plan digits.yaml        who runs at each point, how often, and why there
  hookline plan digits.yaml --tree the same as a tree, with file and line of every method
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    app.command("plan", epilog=EXAMPLES)(to_the_end()(plan))


def plan(
    words: Words = None,
    tree: Annotated[bool, typer.Option("--tree", help="A tree with file and line of every method.")] = False,
    allow: Allow = None,
) -> None:
    """Check the hooks of CONFIG (and only these), and show who runs at each point, how often, and why there."""
    from hookline.config.builder import build_hooks
    from hookline.engine.assembly import register_all
    from hookline.plan.explanation import Hooks
    from hookline.plan.plan import Plan

    loaded = load_config(words)
    default_hooks, custom_hooks = build_hooks(loaded, allow=allow or ())
    made = Plan(_Nobody(), loaded.data.get("points"))
    register_all(made, default_hooks, custom_hooks)
    print(Hooks(made) if tree else made.explain())


class _Nobody:
    """The host of a plan that is only looked at."""
