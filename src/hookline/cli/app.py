"""The `hookline` app, built from its commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hookline.cli import (
    batch,
    compare,
    export,
    hooks,
    init,
    inspect,
    plan,
    profile,
    replay,
    report,
    run_as,
    schema,
    sweep,
    test,
    train,
    verify,
    watch,
)
from hookline.cli.common import show, suggest_override
from hookline.cli.errors import Traceback, show_error
from hookline.common import launched
from hookline.common.version import VERSION
from hookline.errors import exit_code_of


class Commands(TyperGroup):
    """The command group. It exits with 130 after Ctrl-C, where typer would exit with 1."""

    def invoke(self, context: Any) -> Any:
        """Run a command."""
        words = [*getattr(context, "_protected_args", ()), *context.args]
        try:
            return super().invoke(context)
        except EOFError as error:  # typer would take it for the end of its own input, and hide it
            show_error(error)
            raise SystemExit(exit_code_of(error)) from None
        except Exception as error:
            if hasattr(error, "option_name"):
                suggest_override(error, words)
            raise
        except KeyboardInterrupt as error:
            # With several processes, every one would show it. A run has already said how to continue it.
            if not (launched.is_launched() or getattr(error, "reported", False)):
                show("hookline: interrupted", error=True)
            raise SystemExit(130) from None


app = typer.Typer(
    name="hookline",
    cls=Commands,
    help="A hook-driven training engine for PyTorch.",
    epilog="Start here: hookline train (the bundled digits run), then hookline init DIR (your own project). "
    "Exit codes: 0 done, 1 any other error, 2 config or hook, 3 data, 4 numerics (NaN or Inf), 5 storage, "
    "6 distributed, 7 the same step failed three times (do not requeue), 129, 130 or 143 after a signal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    train,
    test,
    replay,
    batch,
    verify,
    sweep,
    plan,
    profile,
    hooks,
    inspect,
    export,
    compare,
    report,
    watch,
    schema,
    init,
    run_as,
):
    command.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"hookline {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    traceback: Traceback = False,
) -> None:
    pass
