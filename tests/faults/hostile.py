"""Hostile configs, overrides, checkpoints and pointers. The process may read them, but nothing in them may run.

The number in a case's id is the number of the fault: 16 pickles, 17 strings in a clean checkpoint, 18 configs, 19 names
that lead out of the folder. Bombs are small files that take much time or memory, and folders are prepared by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import hostile_bombs, hostile_checkpoints, hostile_configs, hostile_folders

if TYPE_CHECKING:
    from tests.faults.cases import Case


def cases() -> list[Case]:
    """Return all cases."""
    modules = (hostile_configs, hostile_checkpoints, hostile_bombs, hostile_folders)
    return [case for module in modules for case in module.cases()]
