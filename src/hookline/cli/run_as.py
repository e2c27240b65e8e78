"""`hookline run-as`: a script written for another system, unchanged."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from hookline.errors import ConfigError

EXAMPLES = """\b
Examples:
  hookline run-as mmengine train.py --work-dir work     what follows the script is the script's own
  hookline run-as pointrix launch.py
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command("run-as", epilog=EXAMPLES, context_settings=settings)(run)


def run(
    context: typer.Context,
    system: Annotated[
        str, typer.Argument(metavar="SYSTEM", help="mmengine, imix, pointrix, robo_orchard_lab or robo_orchard_core.")
    ],
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The file to run.")],
) -> None:
    """Run a script written for another system, with that system's import names led to hookline's dialect of it."""
    from hookline.dialects import alias

    alias(system)
    if not script.is_file():
        raise ConfigError(f"there is no script {script}")
    sys.argv = [str(script), *context.args]
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")
