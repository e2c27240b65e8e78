"""Show the `Example:` and `YAML:` sections of docstrings as code: an extension of Griffe, which reads them."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

LANGUAGES = {"Example": "python", "YAML": "yaml"}
SECTION = re.compile(rf"^({'|'.join(LANGUAGES)}):\n((?:[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)


class CodeSections(griffe.Extension):
    """Rewrite docstrings while they are collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Turn the code sections of one docstring into fenced blocks."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)


def with_fences(text: str) -> str:
    r"""Return a docstring with its code sections as fenced blocks.

    >>> print(with_fences("Say it.\n\nExample:\n    say()\n\nArgs:\n    it: A word."))
    Say it.
    <BLANKLINE>
    **Example**
    <BLANKLINE>
    ```python
    say()
    ```
    <BLANKLINE>
    Args:
        it: A word.
    """
    return SECTION.sub(_fenced, text)


def _fenced(section: re.Match[str]) -> str:
    code = textwrap.dedent(section[2]).strip("\n")
    return f"**{section[1]}**\n\n```{LANGUAGES[section[1]]}\n{code}\n```\n\n"
