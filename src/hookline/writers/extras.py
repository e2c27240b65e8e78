"""Libraries that only some writers need. One that is missing is said when the writer is made."""

from __future__ import annotations

from importlib.util import find_spec

from hookline.errors import ConfigError


def need(who: str, extra: str, *modules: str) -> None:
    """Refuse a writer whose libraries are not there, with what installs them; nothing is imported.

    >>> need("MyWriter", "mine", "json", "no_such_module")
    Traceback (most recent call last):
    hookline.errors.ConfigError: MyWriter needs no_such_module, which is not installed: pip install 'hookline[mine]'
    """
    for module in modules:
        if find_spec(module) is None:
            raise ConfigError(f"{who} needs {module}, which is not installed: pip install 'hookline[{extra}]'")
