"""Handling of records and failures around a run or an evaluation of a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import write_text
from hookline.dialects.pointrix.logger import Writer
from hookline.dialects.pointrix.utils.config import config_text, config_to_primitive
from hookline.errors import blame
from hookline.hooks.report import write_report
from hookline.lifecycle.stages import Stages
from hookline.rundir import ownership
from hookline.writers.base import Outcome, Records

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
    from hookline.plan.plan import Plan
    from hookline.state.host import Verb


@contextmanager
def hooks_see_failures(plan: Plan) -> Iterator[None]:
    """Call the hooks at `exception` when the body fails, and raise the error again."""
    try:
        yield
    except BaseException as error:
        try:
            plan.exception()
        except Exception as another:
            blame(error, f"a hook failed at exception: {type(another).__name__}: {another}")
        raise


class TrainerRecords(Records):
    """The records of a trainer, which its writer gets. A custom writer may take part in this, but does not have to."""

    def __init__(self, trainer: BaseTrainer) -> None:
        self._trainer = trainer

    def files(self) -> list[str]:
        """Return the files of the writer."""
        writer = self._trainer.writer
        return list(writer.files()) if hasattr(writer, "files") else []

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Open the writer."""
        writer: Any = self._trainer.writer
        if hasattr(writer, "hold"):
            writer.begin(work_dir, experiment_name, resuming)
            if not writer.knows_config:
                writer.write_config("config", config_to_primitive(self._trainer.cfg), 0)
            return
        if isinstance(writer, Writer):
            writer.begin(work_dir, experiment_name)
        if writer is not None:
            writer.write_config("config", config_to_primitive(self._trainer.cfg), 0)

    def close(self, outcome: Outcome = "finished") -> None:
        """Close the writer."""
        if hasattr(self._trainer.writer, "finish"):
            self._trainer.writer.finish()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the records for an evaluation. Inside a run they are already open."""
        trainer = self._trainer
        if trainer.running:
            yield
            return
        ownership.claim(trainer.work_dir)
        self.begin(trainer.work_dir, trainer.name)
        try:
            yield
        finally:
            self.close()


class TrainerStages(Stages):
    """What a trainer adds to a session: its config, its points and its report."""

    def __init__(self, trainer: BaseTrainer) -> None:
        super().__init__(trainer)
        self._trainer = trainer

    def begun(self, verb: Verb) -> AbstractContextManager[None]:
        """Show failures to hooks at `exception`."""
        return hooks_see_failures(self._trainer.plan)

    def describe(self) -> None:
        """Write plan.txt and config.yaml."""
        super().describe()
        write_text(self._trainer.work_dir / "config.yaml", config_text(self._trainer.cfg))

    @contextmanager
    def points(self) -> Iterator[None]:
        """Call `after_run` at the end; `before_run` was called when the trainer was built."""
        yield
        self._trainer.call_hook("after_run")

    def when_closed(self) -> None:
        """Write report.html."""
        if self._trainer.cfg.report:
            write_report(self._trainer.work_dir, self._trainer.terminal)
