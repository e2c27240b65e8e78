"""Handling of records and failures around a run or an evaluation of a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.dialects.pointrix.logger import Writer
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.errors import blame
from hookline.rundir import ownership

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
    from hookline.plan.plan import Plan


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


@contextmanager
def records(trainer: BaseTrainer) -> Iterator[None]:
    """Open the records of the run for an evaluation. Inside a run they are already open."""
    if trainer.running:
        yield
        return
    ownership.claim(Path(trainer.exp_dir))
    begin_writer(trainer, resuming=False)
    try:
        yield
    finally:
        close_writer(trainer)


def begin_writer(trainer: BaseTrainer, resuming: bool) -> None:
    """Open the records of the run. A custom writer may do this in `begin`, but does not have to."""
    writer: Any = trainer.writer
    if hasattr(writer, "hold"):
        writer.begin(Path(trainer.exp_dir), trainer.name, resuming)
        if not writer.knows_config:
            writer.write_config("config", config_to_primitive(trainer.cfg), 0)
    elif isinstance(writer, Writer):
        writer.begin(Path(trainer.exp_dir), trainer.name)


def close_writer(trainer: BaseTrainer) -> None:
    """Close the records."""
    if hasattr(trainer.writer, "finish"):
        trainer.writer.finish()
