"""Escaping: no code that a screen or a log obeys passes, and ordinary text of any language stays as it is."""

from __future__ import annotations

import logging
import unicodedata

import pytest

from hookline.common.escape import escaped, escaped_lines, escaped_message
from hookline.errors import ConfigError, DataError, HooklineError, blame, did_you_mean

HOSTILE = "a\x1b[31m\x07\x00\x7f\x9b2J\x85\r\nb\u200b\u202e\u2028\u2029\u2066\ufeff\ud800"
SHOWN = "a\\x1b[31m\\x07\\x00\\x7f\\x9b2J\\x85\\r\\nb\\u200b\\u202e\\u2028\\u2029\\u2066\\ufeff\\ud800"


def test_a_name_is_shown_in_one_line_with_every_code_escaped() -> None:
    assert escaped(HOSTILE) == SHOWN
    assert escaped("tab\tand\nline") == "tab\\tand\\nline"


def test_every_control_code_format_code_separator_and_surrogate_below_u3000_is_escaped() -> None:
    # The exceptions are visible signs of Arabic and Syriac.
    visible = {*map(chr, range(0x600, 0x606)), "\u06dd", "\u070f", "\u0890", "\u0891", "\u08e2"}
    raw = {
        character
        for character in map(chr, range(0x3000))
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and escaped(character) == character
    }
    assert raw == visible
    assert all(escaped(chr(code)) == f"\\u{code:x}" for code in range(0xD800, 0xE000))


@pytest.mark.parametrize("text", ["größe 実験 🧪 é", "lr[bold] C:\\new", "Привет, שלום, مرحبا", "a\xa0b"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert escaped(text) == escaped_message(text) == escaped_lines(text) == text


def test_escaping_twice_changes_nothing() -> None:
    assert escaped(escaped(HOSTILE)) == SHOWN


def test_an_error_keeps_its_layout_and_escapes_the_line_breaks_of_names() -> None:
    error = ConfigError(f"unknown key '{HOSTILE}'; did you mean:\n  one\n\ttwo")
    assert str(error) == f"unknown key '{SHOWN}'; did you mean:\n  one\n\ttwo"
    assert error.args == (str(error),)
    assert HooklineError().args == ()


def test_a_note_and_a_suggestion_are_escaped() -> None:
    error = ValueError("as it was raised\x1b")
    blame(error, f"in hook {HOSTILE}", exit_code=DataError.exit_code)
    assert (str(error), error.__notes__) == ("as it was raised\x1b", [f"in hook {SHOWN}"])
    assert did_you_mean("x", [HOSTILE, "b"]) == f"available: {SHOWN}, b"
    assert did_you_mean("x", [f"run-{n}" for n in range(60)]).endswith(", run-48, run-49 and 10 more")
    assert did_you_mean("ab\x1b[", ["ab\x1b"]) == "did you mean 'ab\\x1b'?"


def test_a_warning_is_escaped_for_every_handler(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("hookline")
    log.warning("%s failed, %d times:\n  %s", HOSTILE, 2, "why")
    assert caplog.messages == [f"{SHOWN} failed, 2 times:\n  why"]


def test_a_warning_that_does_not_fit_its_format_is_left_to_the_handlers() -> None:
    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.msg, record.args))

    seen: list[object] = []
    log, handler = logging.getLogger("hookline"), Seen()
    log.addHandler(handler)
    log.propagate = False
    try:
        log.warning("%d", "x")
    finally:
        log.propagate = True
        log.removeHandler(handler)
    assert seen == [("%d", ("x",))]
