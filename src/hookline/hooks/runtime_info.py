"""RuntimeInfoHook: records the state and the results of the run in the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.record.history import PLAIN, Weighted, recordable
from hookline.run.position import Position
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.optim.optim import Optim
    from hookline.record.history import History
    from hookline.runner.runner import Runner


class RuntimeInfoHook(Hook):
    """Puts epoch, iter, learning rates, outputs and metrics into the hub.

    These are the scalars:

    - `train/lr`, and `train/lr_1` for further parameter groups, or `train/lr_<name>` for a group with a name
    - `train/<name>`, for every single number that the step returns; in means, a batch counts by its weight, as it does
      in the gradient
    - `train/grad_norm`, the norm of the gradients before an optim clips them
    - `val/<name>` and `test/<name>`, for every metric

    These are the facts: `experiment_name`, `seed`, `epoch`, `iter`, `max_epochs`, `max_iters`, and metrics that are not
    single numbers.

    Cost: one entry in the hub per number. Tensors on a GPU are not read, except for a batch with an unusual weight.

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
        self._info: dict[str, Any] = {}
        self._position = Position()
        #: True if reading the loss waits for nothing. A number is cheaper to keep and to average than a tensor.
        self._read_loss = False

    def before_run(self, runner: Runner) -> None:
        """Record the facts that do not change."""
        runner.hub.update_info("experiment_name", runner.experiment_name, resumed=False)
        runner.hub.update_info("seed", runner.seed, resumed=False)

    def before_train(self, runner: Runner) -> None:
        """Record the length of training, and prepare the scalars of each step."""
        runner.hub.update_info("max_epochs", runner.max_epochs, resumed=False)
        runner.hub.update_info("max_iters", runner.max_iters, resumed=False)
        self._groups, self._outputs, self._clipping = [], {}, []
        self._info, self._position = runner.hub.info, runner.position
        self._read_loss = runner.device.type == "cpu"
        for prefix, optim in runner.optims.prefixed.items():
            for label, group in self._rates_of(optim):
                self._groups.append((runner.hub.history(prefix + label), group))
            if optim.clip is not None:
                self._clipping.append((runner.hub.history(f"{prefix}grad_norm"), optim))

    def _rates_of(self, optim: Optim) -> list[tuple[str, dict[str, Any]]]:
        """Return the parameter groups whose learning rates are recorded, with the names of the scalars."""
        return optim.named_groups()

    def before_train_iter(self, runner: Runner) -> None:
        """Record the finished epochs and iterations, and the learning rates of this step."""
        info, position = self._info, self._position
        info["epoch"], info["iter"] = position.epoch, position.iter
        for history, group in self._groups:
            history.values.append(group["lr"])
            history.fresh += 1

    def after_train_iter(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Record every single number that the step returned, unless the batch was skipped."""
        if self._clipping:
            self._record_norms()
        if runner.skipped:
            return
        weight, read_loss, known = runner.batch_weight, self._read_loss, self._outputs
        for name, value in outputs.items():
            if name == "loss":  # the loop has checked it and owns it
                if read_loss and value.__class__ not in PLAIN:
                    value = value.item()
            elif value.__class__ is not float:
                value = number_of(value)
                if value is None:
                    continue
            recorded = known.get(name)
            if recorded is None:
                recorded = known[name] = runner.hub.history(f"train/{name}")
            if weight is not None:
                value = Weighted(value, weight)
            recorded.values.append(value)
            recorded.fresh += 1

    def _record_norms(self) -> None:
        for history, optim in self._clipping:
            history.fresh += len(optim.norms)
            history.values.extend(optim.norms)
            optim.norms.clear()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Record the metrics of a validation."""
        self._record(runner, "val", metrics)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Record the metrics of a test."""
        self._record(runner, "test", metrics)

    def _record(self, runner: Runner, stage: str, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            number = number_of(value)
            if number is not None:
                runner.hub.update_scalar(f"{stage}/{name}", number)
            else:
                runner.hub.update_info(f"{stage}/{name}", value, resumed=False)


def number_of(value: Any) -> Any:
    """Return a single number in the form that the hub keeps, or None for anything else, including a bool."""
    return None if isinstance(value, bool) else recordable(value)
