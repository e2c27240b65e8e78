"""The contents of the checkpoints of a Runner: its parts, and the facts about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from hookline.checks import optimizers
from hookline.data.batches import DataAtStart
from hookline.engine.numerics import check_losses
from hookline.resume import facts
from hookline.state import snapshot
from hookline.state.contents import Contents
from hookline.state.late_parts import HooksPart, HubPart, MetricsPart, RandomPart, WritersPart
from hookline.state.module_flags import GROUPS, MODULES, GroupsPart, ModulesPart
from hookline.state.parts import (
    LoaderPart,
    ModelPart,
    OptimizersPart,
    PositionPart,
    ScalersPart,
    SchedulersPart,
)

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.state.contents import Part


def parts_of(run: Run) -> dict[str, Part]:
    """Return the parts of a run by name, in the order in which they are loaded."""
    return {
        "state_dict": ModelPart(run),
        "optimizer": OptimizersPart(run),
        "param_schedulers": SchedulersPart(run),
        "scaler": ScalersPart(run),
        "position": PositionPart(run),
        "loader": LoaderPart(run),
        MODULES: ModulesPart(run),
        GROUPS: GroupsPart(run),
        "message_hub": HubPart(run),
        "writers": WritersPart(run),
        "metric_states": MetricsPart(run),
        "hooks": HooksPart(run),
        "rng": RandomPart(run),
    }


class RunContents(Contents):
    """The contents of the checkpoints of a run."""

    def __init__(self, run: Run) -> None:
        super().__init__(parts_of(run))
        self._run = run

    def facts(self) -> dict[str, Any]:
        """Return the `meta` of a checkpoint."""
        run, position, data = self._run, self._run.position, self._run.data
        if data is None and run.has_training:
            data = DataAtStart(run.train_loop.dataloader, run.train_loop.length)
        return {
            **run.more_facts(),
            **snapshot.environment(),
            "experiment_name": run.experiment_name,
            "seed": run.seed,
            "epoch": position.epoch,
            "iter": position.iter,
            "world_size": run.strategy.world_size,
            "device": run.device.type,
            "precision": run.precision,
            "accumulate": [optim.accumulate for optim in run.optims.values()],
            "batches": data.batches if data is not None else None,
            "batch_size": data.batch_size if data is not None else None,
            "hooks": [entry.name for entry in run.plan],
            "optims": {name: optim.kinds for name, optim in run.optims.items()},
            "asked": self._asked_by_now(),
        }

    def note_what_is_asked(self) -> None:
        """Remember the settings of this run, and what hooks may change later in the model and the optimizers.

        A second training of this runner continues where the first ended.
        """
        run, now = self._run, facts.asked(self._run)
        if not run.loading.started:
            for part in self.parts.values():
                if isinstance(part, (ModulesPart, GroupsPart)):
                    part.note_built()
        if run.loading.started and run.asked:
            changeable = ("max_epochs", "max_iters", "hooks", "parts")
            now = {**run.asked, **{key: now[key] for key in changeable}}
        run.asked = now

    def _asked_by_now(self) -> dict[str, Any]:
        """Return what this run was asked to do, with the hooks that joined it since."""
        plan, asked = self._run.plan, self._run.asked
        if not asked:
            return {}
        hooks = {entry.name: asked["hooks"].get(entry.name) for entry in plan}
        missing = {entry.name: facts.parameters_of(entry) for entry in plan if hooks[entry.name] is None}
        return {**asked, "hooks": {**hooks, **missing}}

    def check(self) -> None:
        """Refuse to save after a loss of NaN or Inf, or an optimizer without parameters. Warn about untrained ones."""
        check_losses(self._run.training, self._run.position.iter)
        optimizers.recheck(self._run)
        optimizers.report_untrained(self._run)

    def tensor_holders(self) -> Iterable[Any]:
        """Return the model and the optimizers."""
        return self._run.model, *(optim.optimizer for optim in self._run.optims.values())

    def weight_names(self) -> list[str]:
        """Return the names of the model's parameters."""
        return [name for name, _ in self._run.model.named_parameters()]

    def trained_names(self) -> Collection[str]:
        """Return the names of the parameters that require gradients and that an optimizer has."""
        held = {id(parameter) for optim in self._run.optims.values() for parameter in optim.parameters()}
        named = self._run.model.named_parameters(remove_duplicate=False)
        return {name for name, parameter in named if parameter.requires_grad and id(parameter) in held}
