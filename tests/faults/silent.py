"""Bad inputs, each of which must end the command with an exit code that is not 0, and say what is wrong.

Where the list of faults has a row for a case, its number stands in the case's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import silent_configs, silent_hooks, silent_runs

if TYPE_CHECKING:
    from tests.faults.cases import Case


def cases() -> list[Case]:
    """All of them."""
    return [*silent_configs.cases(), *silent_hooks.cases(), *silent_runs.cases()]
