"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import hookline
from hookline.cli import hooks, init, plan, schema, test, train

app = typer.Typer(
    name="hookline",
    help="A hook-driven training engine for PyTorch.",
    epilog="Start here: hookline train (the bundled digits run), then hookline init DIR (a project of your own). "
    "Exit codes: 0 done, 2 config or hook, 3 data, 4 numerics, 5 storage, 130 interrupted, 1 anything else.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (train, test, plan, hooks, schema, init):
    command.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hookline {hookline.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
