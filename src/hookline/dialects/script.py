"""Run a script as the main module of the process, with the names of another system redirected to its dialect.

A process that the script starts with multiprocessing (a loader's workers, where they are not forked) first runs the
main module again. Python finds that module by the name in its spec, which is this file. So this file redirects the
names in the new process as well, and then runs the script, which defines its classes and functions there.
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
from types import CodeType, ModuleType

from hookline.dialects.imports import alias
from hookline.errors import ConfigError

#: The environment variable that passes the system and the script to child processes.
VARIABLE = "HOOKLINE_RUN_AS"
THIS = "hookline.dialects.script"


#: The modules with the `Config` class of each system whose configs may be written in Python.
CONFIGS = {"mmengine": "mmengine.config", "imix": "imix.utils.config"}


def run(system: str, script: Path, arguments: Sequence[str] = (), allow_python_config: bool = False) -> None:
    """Run a script as `python script arguments...` would, with the names of another system redirected to its dialect.

    Python configs are code, so they run only if `allow_python_config` is set.
    """
    redirect_imports(system, allow_python_config)
    code = compile_script(script)
    os.environ[VARIABLE] = json.dumps([system, str(script.absolute()), allow_python_config])
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    main = ModuleType("__main__")
    main.__file__, main.__package__, main.__spec__ = str(script.absolute()), "", ModuleSpec(THIS, None)
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(code, vars(main))


def redirect_imports(system: str, allow_python_config: bool) -> None:
    """Redirect the names of a system to its dialect, and allow its Python configs to run if requested."""
    alias(system)
    if allow_python_config:
        if system not in CONFIGS:
            raise ConfigError(f"--allow-python-config is for {' and '.join(CONFIGS)}; {system} has no Python configs")
        importlib.import_module(f"hookline.dialects.{CONFIGS[system]}").Config.allow_python_config = True


def how_to_allow() -> str:
    """Return the call or, for a script run by `run-as`, the command that allows Python configs to run."""
    if VARIABLE not in os.environ:
        return "Config.fromfile(path, allow_python_config=True)"
    system, script, _ = json.loads(os.environ[VARIABLE])
    return f"hookline run-as --allow-python-config {system} {Path(script).name} ..."


def compile_script(script: Path) -> CodeType:
    """Compile a script, read in the encoding that it declares."""
    return compile(script.read_bytes(), str(script.absolute()), "exec", dont_inherit=True)


def line_in(script: Path, error: BaseException) -> int | None:
    """Return the innermost script line that an error passed through; None for an error from elsewhere."""
    name = str(script.absolute())
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    return lines[-1] if lines else None


if __name__ == "__mp_main__":
    _system, _script, _allow = json.loads(os.environ[VARIABLE])
    redirect_imports(_system, _allow)
    __file__, __package__ = _script, ""
    exec(compile_script(Path(_script)), globals())
