"""Hostile configs, overrides, checkpoints and pointers: none of them may make the process do more than read it.

The number in a case's id is its row in the list of faults: 16 pickles, 17 strings in a clean checkpoint, 18 configs,
19 names that lead out of the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import hostile_checkpoints, hostile_configs

if TYPE_CHECKING:
    from tests.faults.cases import Case


def cases() -> list[Case]:
    """All of them."""
    return [*hostile_configs.cases(), *hostile_checkpoints.cases()]
