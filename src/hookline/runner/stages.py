"""The stages of a session of a Runner: seed, model, loops, checks before training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.checks import optimizers
from hookline.checks.before_training import check_before_first_pass, check_before_training
from hookline.common import rng
from hookline.common.environment import written
from hookline.common.files import write_text
from hookline.lifecycle.stages import Stages
from hookline.run.position import Span
from hookline.rundir import loss_bits, names, origin

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.runner.contents import RunContents
    from hookline.state.host import Verb


class RunStages(Stages):
    """The stages of a session of a run."""

    def __init__(self, run: Run, contents: RunContents) -> None:
        super().__init__(run)
        self._run, self._contents = run, contents
        #: The states of the random generators when the last session ended.
        self._generators: dict[str, Any] | None = None

    @contextmanager
    def begun(self, verb: Verb) -> Iterator[None]:
        """Get the run ready. At the end, restore the random generators of the caller.

        A later session uses the run's generators.
        """
        given = rng.state()
        if self._run.loading.started and self._generators is not None:
            rng.restore(self._generators)
        try:
            self.prepare(verb)
            yield
        finally:
            self._generators = rng.state()
            rng.restore(given)

    def prepare(self, verb: Verb) -> None:
        """Seed everything, and get the model, the optims and the drivers of the loops ready."""
        run = self._run
        if verb == "train":
            run.span = Span()
        run.strategy.start(run.requests, run.device)
        if not run.loading.started:
            rng.seed_everything(run.seed_of_process)
        run.share_data()
        run.compute.wrapped = run.strategy.prepare(
            run.wrapped, [optim.optimizer for optim in run.optims.values()], run.device
        )
        run.begin_evaluations()
        if not run.has_training:
            return
        run.begin_training()
        if verb == "train":
            run.optims.start_schedules(run.train_loop)
            self._contents.note_what_is_asked()

    def describe(self) -> None:
        """Write plan.txt and, if there is a config, config.yaml."""
        super().describe()
        run = self._run
        if run.config is not None:
            from hookline.common.yaml_file import dump

            write_text(run.work_dir / names.CONFIG, origin.describe(run.config_file) + dump(written(run.config)))

    @contextmanager
    def points(self) -> Iterator[None]:
        """Call the points of a run, and take the time of the work between them."""
        try:
            with super().points():
                yield
        finally:
            if self._run.running == "train":
                self._run.training.losses.end(self._run.position.iter)
                if self._run.span is not None:
                    self._run.span.end()

    def before_training(self) -> None:
        """Record the config, and run the checks that are possible before the first step."""
        run, training = self._run, self._run.training
        if run.span is not None:
            run.span.start_at(run.position)
        training.losses.since = run.position.iter
        if run.strategy.is_main:
            training.losses.file = loss_bits.open_at(run.work_dir, run.position.iter)
        training.before_first_pass = partial(check_before_first_pass, run)
        training.recheck = partial(optimizers.recheck, run)
        if run.config is not None:
            run.writers.write_config("config", run.config, run.position.iter)
        check_before_training(run)
