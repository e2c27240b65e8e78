"""The other side of a trial: the work of its process besides training, which a sweep sets in an environment variable.

A variable, and not a hook in the config: the config of a trial is the config of an ordinary run, and a storage may
have a password.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

TRIAL = "HOOKLINE_TRIAL"


@dataclass(frozen=True)
class JoinedTrial:
    """The trial that this process runs; falsy if it runs none."""

    parameters: dict[str, Any]

    def __bool__(self) -> bool:
        return bool(self.parameters)

    @property
    def changes(self) -> dict[str, Any]:
        """Return the parameters of the Runner that differ in a trial: its name, for writers."""
        return {"experiment_name": f"{self.parameters['study']}-{self.parameters['trial']}"} if self else {}

    def join(self, runner: Runner) -> None:
        """Report the validations of a run to the study, which may end it early."""
        if self:
            from hookline.hooks import PruningHook

            runner.register_hook(PruningHook(**self.parameters))

    def was_pruned(self, runner: Runner) -> bool:
        """Return whether the study has ended the run, so that its test would be a waste of time."""
        return bool(self) and runner.stopped.by == "PruningHook"


def current_trial() -> JoinedTrial:
    """Return the trial of this process. Processes that this one starts are not concerned."""
    return JoinedTrial(json.loads(os.environ.pop(TRIAL, "{}")))
