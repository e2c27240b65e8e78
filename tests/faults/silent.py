"""Bad inputs. Each of them must end the command with a nonzero exit code and a message about the problem.

If a case belongs to a numbered fault, the number is in the case's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import silent_configs, silent_folders, silent_hooks, silent_runs, silent_values

if TYPE_CHECKING:
    from tests.faults.cases import Case


def cases() -> list[Case]:
    """Return all cases."""
    modules = (silent_configs, silent_hooks, silent_runs, silent_folders, silent_values)
    return [case for module in modules for case in module.cases()]
