"""`hookline run-as`: run a script written for another system, unchanged."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations
from hookline.errors import ConfigError, HooklineError

#: The systems that have a dialect. The dialects themselves may be left out of an installation.
SYSTEMS = ("mmengine", "imix", "pointrix", "robo_orchard_lab", "robo_orchard_core")

EXAMPLES = """\b
Examples:
  hookline run-as mmengine train.py --work-dir work     words after SCRIPT are passed to the script
  hookline run-as robo_orchard_lab train.py             includes the modules of robo_orchard_core
  hookline run-as --allow-python-config mmengine train.py config.py
\b
The exit code comes from the script: the value passed to sys.exit(), or 1 after an error.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    settings = {"allow_interspersed_args": False}
    app.command("run-as", epilog=EXAMPLES, context_settings=settings)(run)


def run(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help=f"One of {', '.join(SYSTEMS)}.")],
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
    traceback: Traceback = False,
) -> None:
    """Run a script written for another system, unchanged.

    Imports of that system load hookline's dialect of it instead. The original does not have to be installed.
    """
    if importlib.util.find_spec("hookline.dialects") is None:
        raise ConfigError(
            f"this installation of hookline has no dialects, so it cannot run scripts of {system}; install the whole "
            "package: pip install --force-reinstall --no-deps hookline"
        )
    from hookline.dialects import imports
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
    except ImportError as error:
        home, _, module = (error.name or "").partition("hookline.dialects.")
        if module and not home:
            page = imports.page_of(module.partition(".")[0])
            error.add_note(f"hookline's dialect has no such name in '{module}'; see {page}")
        raise
