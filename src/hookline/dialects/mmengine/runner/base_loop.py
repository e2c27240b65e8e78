"""BaseLoop, the common base class of all loops."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner.runner import Runner

#: hookline's own loop replaces these methods. A subclass that overrides one would never be called.
NOT_TO_OVERRIDE = ("run", "run_epoch", "run_iter")


class BaseLoop:
    """The settings of a loop: its runner and its data. The loop itself is hookline's."""

    _runner: weakref.ref[Runner]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [name for name in NOT_TO_OVERRIDE if name in vars(cls)]
        if own and not cls.__module__.startswith(__name__.rpartition(".")[0]):
            raise ConfigError(
                f"{cls.__name__} overrides {own[0]}, which would never be called: the loop is hookline's. Put the code "
                "of a step into train_step, val_step and test_step of the model, and the code around a step into hooks"
            )

    @property
    def runner(self) -> Runner:
        """Return the runner of this loop."""
        runner = self._runner()
        assert runner is not None, "a loop does not outlive its runner"
        return runner

    def _attach(self, runner: Runner) -> None:
        self._runner = weakref.ref(runner)
