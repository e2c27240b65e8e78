"""View: what a Runner shows. Each attribute belongs to one of the objects behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.forwarding import forwarded

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.optim.optims import Optims
    from hookline.plan.plan import Plan
    from hookline.record.hub import MessageHub
    from hookline.run.position import Position
    from hookline.run.requests import Stop
    from hookline.runner.host import RunnerHost
    from hookline.screen.terminal import Terminal
    from hookline.state.host import Verb
    from hookline.state.saving import Saving
    from hookline.strategies import Strategy
    from hookline.writers.router import Writers


class View:
    """The parts, the progress and the current iteration of a run."""

    _host: RunnerHost

    # -- the parts of the run

    model: nn.Module = forwarded(
        "_host.model", "Return the user's module, without wrappers. It cannot be replaced in a run.", settable=True
    )
    wrapped: nn.Module = forwarded("_host.compute.wrapped", "Return the model as the step calls it.")
    optim: Any = forwarded(
        "_host.optim", "Return the optim, or all of them by name. It cannot be replaced in a run.", settable=True
    )
    optims: Optims = forwarded("_host.optims", "Return all optims by name. A single one has the name ''.")
    train_loop: TrainLoop = forwarded("_host.train_loop", "Return the training loop. It is an error if there is none.")
    val_loop: Any = forwarded("_host.val_loop", "Return the validation loop; a dict of several, or None.")
    val_loops: dict[str, EvalLoop] = forwarded("_host.val_loops", "Return the validation loops by name.")
    test_loop: Any = forwarded("_host.test_loop", "Return the test loop; a dict of several, or None.")
    test_loops: dict[str, EvalLoop] = forwarded("_host.test_loops", "Return the test loops by name.")
    hub: MessageHub = forwarded("_host.hub", "Return the numbers of the run: its message hub.", settable=True)
    message_hub: MessageHub = forwarded("_host.hub", "Return the message hub, as `hub` does.", settable=True)
    writers: Writers = forwarded("_host.writers", "Return the destinations of records.")
    terminal: Terminal = forwarded("_host.terminal", "Return the screen and run.log.")
    strategy: Strategy = forwarded("_host.strategy", "Return what spreads the run over processes.")
    plan: Plan = forwarded("_host.plan", "Return the hooks, checked, ordered and compiled.")
    saving: Saving = forwarded("_host.saving", "Return what writes checkpoints.")
    config: Mapping[str, Any] | None = forwarded(
        "_host.config", "Return the config that is recorded. `${oc.env:NAME}` stays a reference.", settable=True
    )
    work_dir: Path = forwarded("_host.work_dir", "Return the folder of the run.", settable=True)
    experiment_name: str = forwarded("_host.experiment_name", "Return the name of the run.", settable=True)
    seed: int = forwarded("_host.seed", "Return the seed of all random generators.", settable=True)
    device: torch.device = forwarded("_host.compute.device", "Return the device of the run.")
    precision: str = forwarded("_host.compute.precision", "Return the precision: `fp32`, `bf16` or `fp16`.")
    rank: int = forwarded("_host.strategy.rank", "Return the number of this process; 0 is the main one.")
    world_size: int = forwarded("_host.strategy.world_size", "Return the number of processes that train together.")

    # -- the progress of the run

    running: Verb | None = forwarded("_host.running", "Return the verb that is running; None outside a run.")
    position: Position = forwarded("_host.position", "Return the counters of what is finished.")
    epoch: int = forwarded("_host.position.epoch", "Return the number of finished epochs.")
    iter: int = forwarded("_host.position.iter", "Return the number of finished iterations.")
    validations: int = forwarded("_host.position.validations", "Return the number of finished validations.")
    updates: int = forwarded("_host.optims.updates", "Return the number of finished optimizer steps.")
    current_updates: int = forwarded(
        "_host.optims.current_updates", "Return the finished steps of the optim that is stepping now."
    )
    has_training: bool = forwarded("_host.has_training", "Return whether there is a training loop.")
    may_validate: bool = forwarded("_host.may_validate", "Return whether there may be validations.")
    max_epochs: int | None = forwarded("_host.max_epochs", "Return the total number of epochs; None by iterations.")
    max_iters: int | None = forwarded("_host.max_iters", "Return how many iterations there will be, if that is known.")
    max_passes: int | None = forwarded(
        "_host.max_passes", "Return how many passes over the data there will be, if that is known."
    )
    resumed_at: int = forwarded(
        "_host.loading.resumed_at", "Return the iteration that this run was resumed at; -1 if it was not."
    )

    # -- the current iteration

    data_batch: Any = forwarded(
        "_host.current.batch", "Return the current batch. A `before_..._iter` may replace it.", settable=True
    )
    batch_weight: float | None = forwarded(
        "_host.current.weight.relative",
        "Return how much a batch counts relative to a usual one; None for a usual one.",
    )
    ends_epoch: bool = forwarded(
        "_host.current.ends_epoch", "Return whether the current batch is the last one of its pass."
    )
    ends_window: bool = forwarded(
        "_host.current.ends_window", "Return whether an accumulation window has to end with the current batch."
    )
    accumulating: bool = forwarded(
        "_host.optims.accumulating", "Return whether an accumulation window is open, so that requests wait for its end."
    )
    eval_loop: EvalLoop | None = forwarded("_host.evaluation.running", "Return the evaluation loop that is running.")
    skipped: str = forwarded("_host.requests.skip", "Return why the current step is skipped; empty if it is not.")
    stopped: Stop = forwarded(
        "_host.requests.stopped", "Return why training was stopped early, and by which hook; false if it was not."
    )
    exit_code: int = forwarded("_host.requests.exit_code", "Return the exit code of the command line if nothing fails.")
    seconds_waited: float = forwarded(
        "_host.seconds_waited", "Return how long training has waited for saves, and for evaluations of hooks."
    )
