"""The Python work of a step with a hook that watches modules, in iterations that are not due."""

from __future__ import annotations

import sys

from hookline import Hook, Runner, on_module
from tests.performance.cases import NO_HOOKS, counted, counted_case, engine

#: The calls and the instructions that an iteration which is not due may have more than without the hook.
CALLS, INSTRUCTIONS = 2, 16
TOLERANCE = 1.0 if sys.version_info[:2] == (3, 11) else 1.3


class Rarely(Hook):
    """Watches all modules, but not in this run."""

    role = "observer"

    @on_module("*", "forward", every=10**6)
    def see(self, runner: Runner) -> None:
        """Look at a module."""
        raise AssertionError("this is not due")


def test_an_iteration_that_is_not_due_costs_next_to_nothing() -> None:
    plain, watched = counted_case("no hooks"), counted(engine(default_hooks=NO_HOOKS, custom_hooks=[Rarely()]))
    assert watched.calls_per_step - plain.calls_per_step <= CALLS * TOLERANCE
    assert watched.instructions_per_step - plain.instructions_per_step <= INSTRUCTIONS * TOLERANCE
