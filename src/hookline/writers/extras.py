"""Optional libraries that only some writers need. A missing one is reported when the writer is created."""

from __future__ import annotations

from importlib.util import find_spec

from hookline.errors import ConfigError


def require_libraries(who: str, extra: str, *modules: str) -> None:
    """Refuse a writer whose libraries are not installed, and name the command that installs them. Import nothing.

    >>> require_libraries("MyWriter", "mine", "json", "no_such_module")
    Traceback (most recent call last):
    hookline.errors.ConfigError: MyWriter needs no_such_module, which is not installed: pip install 'hookline[mine]'
    """
    for module in modules:
        if find_spec(module) is None:
            raise ConfigError(f"{who} needs {module}, which is not installed: pip install 'hookline[{extra}]'")
