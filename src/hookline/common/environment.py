"""Texts that come from environment variables. They may be secrets, so files and messages hold their references.

A config may contain `${oc.env:TOKEN}`. The object that it is for gets the value, and everything that is written gets
the reference: config.yaml, checkpoints, reports and the records of writers (`FromEnvironment`, `written`). Errors of
other libraries can repeat a value in the middle of a text, so `hookline.common.escape` replaces it there (`hidden`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hookline.common.escape import hidden


class FromEnvironment(str):
    """A text that contains the value of an environment variable, with the text of the config that it stands for."""

    __slots__ = ("reference",)
    reference: str

    def __new__(cls, value: str, reference: str) -> FromEnvironment:
        """Create the text `value`, which the config writes as `reference`."""
        made = super().__new__(cls, value)
        made.reference = reference
        return made

    def __repr__(self) -> str:
        return repr(self.reference)

    def __reduce__(self) -> tuple[Any, ...]:
        return FromEnvironment, (str(self), self.reference)


def written(value: Any) -> Any:
    r"""Return data as a config writes it: with references in place of their values, and `\${` for any other `${`."""
    return _changed(value, lambda text: _reference(text) or text.replace("${", "\\${"))


def shown(value: Any) -> Any:
    r"""Return data that was `written` for people and programs to read: with `${` in place of `\${`."""
    return _changed(value, lambda text: text.replace("\\${", "${"))


def recorded(value: Any) -> Any:
    """Return data with references in place of their values, which `written` still knows as references.

    The config of a run is kept like this: no code that writes it somewhere can leak a value.
    """
    return _changed(value, lambda text: text if (found := _reference(text)) is None else FromEnvironment(found, found))


def revealed(value: Any) -> Any:
    """Return data with plain texts in place of those that know their reference, for the code that uses them."""
    return _changed(value, str)


def hidden_in(value: Any) -> Any:
    """Return data with all of its texts `hidden`, however short they are if they know their reference."""
    return _changed(value, lambda text: _reference(text) or hidden(text))


def _reference(text: str) -> str | None:
    return text.reference if isinstance(text, FromEnvironment) else None


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return data with all of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(inner, change) for key, inner in value.items()}
    return type(value)(_changed(inner, change) for inner in value) if type(value) in (list, tuple) else value
