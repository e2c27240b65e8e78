"""RuntimeInfoHook: what the run knows, into the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.engine.numerics import check_loss_is_finite
from hookline.plan.hook import Hook
from hookline.record.hub import recordable

if TYPE_CHECKING:
    from hookline.engine.optim import Optim
    from hookline.engine.runner import Runner
    from hookline.record.hub import History


class RuntimeInfoHook(Hook):
    """Puts epoch, iter, learning rates, outputs and metrics into the hub.

    So others need not know the runner. Scalars: `train/lr` (of further groups `train/lr_1`, or `train/lr_<name>` where
    a group has a name), every single number that the step gives as `train/<name>`, the norm of the gradients before an
    optim clips them as `train/grad_norm`, every metric as `val/<name>` or `test/<name>`. Facts: `experiment_name`,
    `seed`, `epoch`, `iter`, `max_epochs`, `max_iters`, and metrics that are no single number.

    Cost: one entry in the hub a number; tensors are not read.

    Example:
        from hookline.testing import toy_runner

        runner = toy_runner()
        runner.train()
        print(runner.hub.get_scalar("train/loss").last(3), runner.hub.get_info("max_iters"))

    YAML:
        default_hooks:
          runtime_info: {priority: VERY_HIGH}
    """

    priority = "VERY_HIGH"

    def __init__(self) -> None:
        self._groups: list[tuple[History, dict[str, Any]]] = []
        self._outputs: dict[str, History] = {}
        self._clipping: list[tuple[History, Optim]] = []

    def before_run(self, runner: Runner) -> None:
        """The facts that do not change."""
        runner.hub.update_info("experiment_name", runner.experiment_name, resumed=False)
        runner.hub.update_info("seed", runner.seed, resumed=False)

    def before_train(self, runner: Runner) -> None:
        """How long training will be, and where to record what each step gives."""
        runner.hub.update_info("max_epochs", runner.max_epochs, resumed=False)
        runner.hub.update_info("max_iters", runner.max_iters, resumed=False)
        self._groups, self._outputs, self._clipping = [], {}, []
        for prefix, optim in runner.optims.prefixed.items():
            for label, group in self._rates_of(optim):
                self._groups.append((runner.hub.history(prefix + label), group))
            if optim.clip is not None:
                self._clipping.append((runner.hub.history(f"{prefix}grad_norm"), optim))

    def _rates_of(self, optim: Optim) -> list[tuple[str, dict[str, Any]]]:
        """The groups whose learning rates are recorded, by what these are called."""
        return optim.named_groups()

    def before_train_iter(self, runner: Runner) -> None:
        """Finished epochs and iterations, and the learning rates that the step is made with."""
        info, at = runner.hub.info, runner.position
        info["epoch"], info["iter"] = at.epoch, at.iter
        for history, group in self._groups:
            history.values.append(group["lr"])
            history.fresh += 1

    def after_train_iter(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Every single number that the step gave; of a batch that was left out of training, none."""
        for history, optim in self._clipping:
            history.fresh += len(optim.norms)
            history.values.extend(optim.norms)
            optim.norms.clear()
        if runner.requests.skip:
            return
        for name, value in outputs.items():
            if value.__class__ is not float and name != "loss":  # the loss is one tensor, and the loop's own
                value = number_of(value)
                if value is None:
                    continue
            recorded = self._outputs.get(name)
            if recorded is None:
                recorded = self._outputs[name] = runner.hub.history(f"train/{name}")
            recorded.values.append(value)
            recorded.fresh += 1

    def after_train(self, runner: Runner) -> None:
        """A loss that is not a number ends the run also where nobody has logged or saved it."""
        check_loss_is_finite(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """The metrics of a validation."""
        self._record(runner, "val", metrics)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """The metrics of a test."""
        self._record(runner, "test", metrics)

    def _record(self, runner: Runner, stage: str, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            number = number_of(value)
            if number is not None:
                runner.hub.update_scalar(f"{stage}/{name}", number)
            else:
                runner.hub.update_info(f"{stage}/{name}", value, resumed=False)


def number_of(value: Any) -> Any:
    """A single number as the hub keeps it; None for anything else, a yes or no included."""
    return None if isinstance(value, bool) else recordable(value)
