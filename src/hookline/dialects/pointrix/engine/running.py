"""What surrounds a run of a trainer: the folder, the log, signals, the writer, failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import store
from hookline.dialects.pointrix.logger import Writer
from hookline.dialects.pointrix.utils.config import config_to_primitive, dump_config
from hookline.engine import signals
from hookline.engine.session import log_failure, own_log
from hookline.errors import HooklineError, blame
from hookline.rundir import archive, ownership

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
    from hookline.engine.saving import Source
    from hookline.plan.plan import Plan


@contextmanager
def failures_told(plan: Plan) -> Iterator[None]:
    """A failure is told to hooks at `exception`, and then goes on its way."""
    try:
        yield
    except BaseException as error:
        try:
            plan.exception()
        except Exception as another:
            blame(error, f"a hook failed at exception: {type(another).__name__}: {another}")
        raise


@contextmanager
def session(trainer: BaseTrainer) -> Iterator[None]:
    """One run of the loop, left in order whatever happens."""
    if trainer.running:
        raise HooklineError("train_loop() was called inside train_loop()")
    terminal = trainer.terminal
    with ExitStack() as leaving:
        trainer.running = True
        leaving.callback(setattr, trainer, "running", False)
        leaving.callback(terminal.close_log)
        leaving.push(partial(log_failure, terminal))
        leaving.enter_context(own_log(terminal))
        trainer.saving.forget()
        leaving.enter_context(signals.caught(trainer))
        leaving.enter_context(failures_told(trainer.plan))
        source = open_folder(trainer, leaving)
        leaving.callback(close_writer, trainer)
        begin_writer(trainer, resuming=source is not None)
        trainer.saving.load(source)
        yield
        trainer.call_hook("after_run")


def open_folder(trainer: BaseTrainer, leaving: ExitStack) -> Source | None:
    """Claim the folder and read what the run goes on from; the files of an earlier run make way for a fresh one."""
    folder, terminal = Path(trainer.exp_dir), trainer.terminal
    ownership.claim(folder)
    leaving.enter_context(ownership.locked(folder))
    store.sweep(folder)
    source = trainer.saving.find()
    records = list(trainer.writer.files()) if hasattr(trainer.writer, "files") else []
    moved = None
    if source is None and trainer.cfg.resume is True:
        archive.drop_records(folder, records)
    elif source is None or not source.is_inside([folder]):
        moved = archive.set_aside(folder, records)
    terminal.open_log(folder / "run.log")
    if moved is not None:
        terminal.say(f"{folder} held an earlier run; its files are in {moved} now")
        leaving.push(partial(archive.put_back, moved, folder, trainer))
    (folder / "plan.txt").write_text(trainer.plan.explain() + "\n", encoding="utf-8")
    dump_config(folder / "config.yaml", trainer.cfg)
    return source


@contextmanager
def records(trainer: BaseTrainer) -> Iterator[None]:
    """The records of an evaluation go to those of the run; inside of a run they are open already."""
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
    """Open the records of the run; a writer of the user's own may do so in `begin`, and need not."""
    writer: Any = trainer.writer
    if hasattr(writer, "hold"):
        writer.begin(Path(trainer.exp_dir), trainer.name, resuming)
        if not writer.knows_config:
            writer.write_config("config", config_to_primitive(trainer.cfg), 0)
    elif isinstance(writer, Writer):
        writer.begin(Path(trainer.exp_dir), trainer.name)


def close_writer(trainer: BaseTrainer) -> None:
    """End the records."""
    if hasattr(trainer.writer, "finish"):
        trainer.writer.finish()
