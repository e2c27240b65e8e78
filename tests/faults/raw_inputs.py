"""Inputs that a command may use or refuse, as long as it does either properly: see `raw`.

The figure RAW also includes all hostile and all bad inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import raw_texts, silent_folders, silent_values

if TYPE_CHECKING:
    from tests.faults.cases import Case


def cases() -> list[Case]:
    """Return the cases that are in no other table."""
    return [*raw_texts.cases(), *silent_folders.possible_cases(), *silent_values.possible_cases()]
