"""`hookline run-as`: run a script written for another system, unchanged."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import show
from hookline.dialects.imports import PACKAGES
from hookline.errors import ConfigError, HooklineError, exit_code_of

EXAMPLES = """\b
Examples:
  hookline run-as mmengine train.py --work-dir work     words after SCRIPT are passed to the script
  hookline run-as robo_orchard_lab train.py             includes the modules of robo_orchard_core
  hookline run-as --allow-python-config mmengine train.py config.py
\b
The exit code is that of the script: the value passed to sys.exit(), or 1 after an error.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    settings = {"allow_interspersed_args": False}
    app.command("run-as", epilog=EXAMPLES, context_settings=settings)(run)


def run(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help=f"One of {', '.join(PACKAGES)}.")],
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The file to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Arguments for the script, in sys.argv.")
    ] = None,
    allow_python_config: Annotated[
        bool,
        typer.Option(
            "--allow-python-config",
            help="Allow Python configs. Reading one runs its code, so use only files you trust.",
        ),
    ] = False,
) -> None:
    """Run a script written for another system, unchanged.

    Imports of that system load hookline's dialect of it instead. The original does not have to be installed.
    """
    from hookline.dialects import script as scripts

    if not os.path.isfile(script):
        late = str(script).startswith("-")
        hint = f"; put the options of run-as first: hookline run-as {script} {system} SCRIPT" if late else ""
        raise ConfigError(f"script {script} does not exist{hint}")
    try:
        scripts.run(system, script, arguments or (), allow_python_config)
    except HooklineError as error:
        line = scripts.line_in(script, error)
        if line is not None:
            error.add_note(f"in {script}, line {line}")
        raise
    except Exception as error:
        own = error.with_traceback(scripts.own_traceback(script, error))
        show("".join(traceback.format_exception(own)), end="", error=True)
        raise SystemExit(exit_code_of(error)) from None
