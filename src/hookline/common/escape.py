r"""Escapes control characters that a screen or a log would obey instead of show.

Names and values come from configs, checkpoints and user code. They may hold codes that clear a screen, forge a line, or
reverse the order of letters. Every place that shows text uses one of these functions:

    escaped(name)            one line: for a name, or any value, where it is put into a text
    escaped_message(text)    for errors and warnings: a line break stays only if the next line is indented
    escaped_lines(text)      for whole screens, logs and tracebacks: line breaks and tabs stay

An escape is written as in Python: `\x1b`, `\n`, `\u202e`. Letters and symbols of any language stay as they are.
The values of environment variables that a config refers to are replaced by their references.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from typing import Any

# Control codes (C0, DEL, C1), characters without width, codes for the direction of text, line and paragraph separators,
# unpaired surrogates, and tags.
_CODES = (
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_IN_A_LINE = re.compile(_CODES)
_IN_A_MESSAGE = re.compile(rf"(?!\t|\n(?:  |\t)){_CODES}")
_IN_LINES = re.compile(rf"(?![\t\n]){_CODES}")


#: Shorter values are not searched for in texts: every `cpu` of a log would be replaced.
SHORTEST = 6

_references: dict[str, str] = {}


def escaped(value: Any) -> str:
    r"""Return a value as text in one line.

    >>> print(escaped("loss\x1b[2J\n\u202egröße"))
    loss\x1b[2J\n\u202egröße
    """
    return _replaced(_IN_A_LINE, str(value))


def escaped_message(value: Any) -> str:
    r"""Return the text of an error or a warning.

    The further lines of a message are indented. A line break before any other line is part of a name or a value.

    >>> print(escaped_message("the key 'a\nb' is unknown; available:\n  c"))
    the key 'a\nb' is unknown; available:
      c
    """
    return _replaced(_IN_A_MESSAGE, str(value))


def escaped_lines(value: Any) -> str:
    r"""Return a text of several lines.

    >>> print(escaped_lines("a\x9bb\nc"))
    a\x9bb
    c
    """
    return _replaced(_IN_LINES, str(value))


def _replaced(codes: re.Pattern[str], text: str) -> str:
    text = hidden(text)
    return text if text.isprintable() else codes.sub(_escape, text)  # no code is printable, and the test is fast


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def hide_in_texts(value: str, reference: str) -> None:
    """Let `hidden` replace a value from now on, unless it is short, or the name of a file that messages must show."""
    if len(value) >= SHORTEST and not os.path.lexists(value):
        _references[value] = reference
        _references[repr(value)[1:-1]] = reference


def hidden(text: str) -> str:
    """Return a text with references in place of the values of environment variables that configs use."""
    for value, reference in _references.items():
        if value in text:
            text = text.replace(value, reference)
    return text


def _escape_record(record: logging.LogRecord) -> bool:
    with suppress(TypeError, ValueError):  # a format that does not fit its arguments, which handlers report
        record.msg, record.args = escaped_message(record.getMessage()), None
    return True


def escaping(logger: logging.Logger) -> logging.Logger:
    """Let a logger escape its messages, because a handler of the user or of Python may show them."""
    logger.addFilter(_escape_record)
    return logger


escaping(logging.getLogger("hookline"))  # here, where every part of hookline gets it
