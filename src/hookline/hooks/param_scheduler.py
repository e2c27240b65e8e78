"""ParamSchedulerHook: steps the schedulers of every optim."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.optim.optim import Optim
    from hookline.optim.scheduled import Scheduled
    from hookline.runner.runner import Runner

POINTS_OF = {
    "iter": "after_train_iter",
    "step": "after_optimizer_step",
    "epoch": "after_train_epoch",
    "val": "after_val_epoch",
}


class ParamSchedulerHook(Hook):
    """Steps the schedulers after epochs, iterations, optimizer steps or validations.

    Each scheduler is given together with the time at which it steps: `Optim(optimizer, schedulers=[(scheduler,
    "iter")])`. A scheduler at `val` gets the metric that it was paired with, or else the first one. A scheduler at
    `step` does not advance if a scaler skipped the optimizer's step. `runner.val()` alone steps no scheduler.

    Cost: nothing without schedulers. Otherwise, the step of torch's scheduler.

    Example:
        import torch

        from hookline import Optim
        from hookline.testing import toy_model, toy_runner

        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
        toy_runner(model=model, optim=Optim(optimizer, schedulers=[(warm_up, "iter")])).train()

    YAML:
        optim:
          optimizer: {type: SGD, lr: 0.1}
          schedulers: [{type: LinearLR, start_factor: 0.1, total_iters: 4, when: iter}]
        default_hooks:
          param_scheduler: {priority: LOW}
    """

    priority = "LOW"
    steps_schedulers = True

    def __init__(self) -> None:
        self._at: defaultdict[str | None, list[tuple[Optim, Scheduled]]] = defaultdict(list)
        #: The schedulers at `iter`, and whether hooks may add parameters in an iteration.
        self._at_iter: list[Scheduled] = []
        self._may_join = False

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: those at which no scheduler steps."""
        used = {when for optim in runner.optims.values() for scheduled in optim.schedulers for when in scheduled.times}
        return [point for when, point in POINTS_OF.items() if when not in used]

    def before_train(self, runner: Runner) -> None:
        """Sort the schedulers by when they step. Refuse one that would never step."""
        self._at = defaultdict(list)
        for optim in runner.optims.values():
            for scheduled in optim.schedulers:
                if scheduled.when == "val" and not runner.may_validate:
                    raise ConfigError(
                        f"{type(scheduled.scheduler).__name__} steps at 'val', but this run has no validation; add "
                        "`val` to the Runner or to the config"
                    )
                for when in scheduled.times:
                    self._at[when].append((optim, scheduled))
        self._at_iter = [scheduled for _, scheduled in self._at["iter"]]
        self._may_join = any(optim.plan.may_leave_gradients for optim, _ in self._at["iter"])

    def after_train_iter(self) -> None:
        """Step the schedulers at `iter`."""
        if self._may_join:  # before this hook, at the same point
            for optim, _ in self._at["iter"]:
                optim.take_joined()
        for scheduled in self._at_iter:
            scheduled.step()

    def after_optimizer_step(self) -> None:
        """Step the schedulers at `step` of the optim that has just stepped."""
        for optim, scheduled in self._at["step"]:
            if optim.stepping:
                if optim.plan.may_leave_gradients:
                    optim.take_joined()
                scheduled.step()

    def after_train_epoch(self) -> None:
        """Step the schedulers at `epoch`."""
        for optim, scheduled in self._at["epoch"]:
            optim.take_joined()
            scheduled.step()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Step the schedulers at `val`."""
        if runner.running == "train":
            for optim, scheduled in self._at["val"]:
                optim.take_joined()
                scheduled.step(metrics)
