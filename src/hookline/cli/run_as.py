"""`hookline run-as`: a script written for another system, unchanged."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated

import typer

from hookline.errors import ConfigError, HooklineError, exit_code_of

EXAMPLES = """\b
Examples:
  hookline run-as mmengine train.py --work-dir work     what follows the script is the script's own
  hookline run-as robo_orchard_lab train.py             the names of robo_orchard_core are led, too
\b
It exits as the script does: with what it gives to sys.exit(), or 1 after an error.
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command("run-as", epilog=EXAMPLES, context_settings=settings)(run)


def run(
    system: Annotated[
        str, typer.Argument(metavar="SYSTEM", help="mmengine, imix, pointrix, robo_orchard_lab or robo_orchard_core.")
    ],
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The file to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="What the script finds in sys.argv.")
    ] = None,
) -> None:
    """Run a script written for another system, unchanged.

    The import names of that system mean hookline's dialect of it. Nothing of the original has to be installed.
    """
    from hookline.dialects import script as scripts

    if not script.is_file():
        raise ConfigError(f"there is no script {script}")
    try:
        scripts.run(system, script, arguments or ())
    except HooklineError as error:
        line = scripts.line_in(script, error)
        if line is not None:
            error.add_note(f"in {script}, line {line}")
        raise
    except Exception as error:
        traceback.print_exception(error.with_traceback(scripts.own_traceback(script, error)))
        raise SystemExit(exit_code_of(error)) from None
