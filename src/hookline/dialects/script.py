"""A script as the main module of the process, with the names of another system led to its dialect.

A process that the script starts with multiprocessing (the workers of a loader, where they are not forked) runs the
main module again before it does anything. Python finds it by the name in its spec, which is that of this file: so the
names are led to the dialect there, too, and then the script is run, which defines its classes and functions once more.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType, TracebackType

from hookline.dialects.imports import alias
from hookline.errors import ConfigError

#: The environment variable that tells processes which system and which script it is.
VARIABLE = "HOOKLINE_RUN_AS"
THIS = "hookline.dialects.script"


#: The classes that read configs of a system, which may be in Python.
CONFIGS = {"mmengine": "mmengine.config", "imix": "imix.utils.config"}


def run(system: str, script: Path, arguments: Sequence[str] = (), allow_python_config: bool = False) -> None:
    """Run a script as `python script arguments...` would, where the names of another system mean its dialect.

    Configs in Python are code; they are run where that is allowed.
    """
    lead(system, allow_python_config)
    code = code_of(script)
    os.environ[VARIABLE] = json.dumps([system, str(script.absolute()), allow_python_config])
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    main = ModuleType("__main__")
    main.__file__, main.__package__, main.__spec__ = str(script.absolute()), "", ModuleSpec(THIS, None)
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(code, vars(main))


def lead(system: str, allow_python_config: bool) -> None:
    """Lead the names of a system to its dialect, and say whether configs in Python are run."""
    alias(system)
    if allow_python_config:
        if system not in CONFIGS:
            raise ConfigError(f"--allow-python-config is for {' and '.join(CONFIGS)}; {system} has no such configs")
        importlib.import_module(f"hookline.dialects.{CONFIGS[system]}").Config.allow_python_config = True


def how_to_allow() -> str:
    """How to say that configs in Python may run, for whoever was refused: in the call, or, of a script, in front."""
    if VARIABLE not in os.environ:
        return "Config.fromfile(path, allow_python_config=True)"
    system, script, _ = json.loads(os.environ[VARIABLE])
    return f"hookline run-as --allow-python-config {system} {Path(script).name} ..."


def code_of(script: Path) -> CodeType:
    """A script, compiled; in its own encoding."""
    return compile(script.read_bytes(), str(script.absolute()), "exec", dont_inherit=True)


def own_traceback(script: Path, error: BaseException) -> TracebackType | None:
    """The traceback of an error from the script on, as Python shows it; None where the script has not run yet."""
    trace, name = error.__traceback__, str(script.absolute())
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    return trace


def line_in(script: Path, error: BaseException) -> int | None:
    """The line of the script that an error came through, the innermost one; None for an error from elsewhere."""
    name = str(script.absolute())
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    return lines[-1] if lines else None


if __name__ == "__mp_main__":
    _system, _script, _allow = json.loads(os.environ[VARIABLE])
    lead(_system, _allow)
    __file__, __package__ = _script, ""
    exec(code_of(Path(_script)), globals())
