"""A session: everything around a run, whether it trains, validates or tests. Folder, log, signals, records, points."""

from __future__ import annotations

import logging
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from hookline.checkpoint import store
from hookline.common import forks, launched, worker_errors
from hookline.common.files import read_bytes, real_path, replacing, storage_errors
from hookline.errors import (
    DO_NOT_REQUEUE,
    ConfigError,
    DistributedError,
    HooklineError,
    StorageError,
    blame,
    described,
    exit_code_of,
    set_exit_code,
)
from hookline.lifecycle import capsules, control_file, events, ledger_file, places
from hookline.lifecycle.stages import Stages, telling_hooks
from hookline.run import signals
from hookline.rundir import archive, capsule, control, failures, log_copies, moves, names, ownership
from hookline.rundir.journal import Journal, JournalHandler
from hookline.screen.terminal import Terminal, TerminalHandler

if TYPE_CHECKING:
    from pathlib import Path

    from hookline.resume.start import Source, SourceKind, Start
    from hookline.state.host import Host, Verb

log = logging.getLogger("hookline")

#: Exit codes of failures that a step is not to blame for.
NOT_COUNTED = {ConfigError.exit_code, StorageError.exit_code}


def refuse_inside_a_run(host: Host, verb: Verb) -> None:
    """Refuse to start a run inside another one, before anything of the outer run is touched."""
    if host.running is not None:
        raise HooklineError(
            f"runner.{verb}() was called inside runner.{host.running}(); inside a run, use runner.request_val() or "
            "runner.stop() instead"
        )


@contextmanager
def running(host: Host, verb: Verb, start: Start) -> Iterator[None]:
    """Mark the host as running. For training, also clear earlier requests and turn signals into requests."""
    refuse_inside_a_run(host, verb)
    host.running = verb
    forks.own(host)
    try:
        if verb == "train":
            host.requests.clear()
            host.windows.reset()
            start.contract.begin_again()
        catches = verb == "train" and host.catches_signals
        with signals.signals_as_requests(host.requests, host.terminal.notify) if catches else nullcontext():
            yield
    finally:
        host.running = None
        forks.release(host)


@contextmanager
def session(host: Host, verb: Verb, start: Start, stages: Stages) -> Iterator[None]:
    """Run once, from the first point to the last. Whatever happens, everything is closed in order."""
    refuse_inside_a_run(host, verb)
    began = time.time()
    with ExitStack() as leaving:
        leaving.enter_context(explained(host))
        copying = leaving.enter_context(log_copies.copying(host.work_dir, host.plan))
        leaving.callback(host.terminal.close_log)
        leaving.push(partial(say_how_to_continue, host))
        closed = leaving.enter_context(telling_hooks(host, stages))
        leaving.push(partial(log_failure, host.terminal))
        journal = leaving.enter_context(events.journaling(host, verb))
        leaving.enter_context(own_log(host.terminal, journal))
        leaving.enter_context(running(host, verb, start))
        host.terminal.prepare()
        leaving.enter_context(stages.begun(verb))
        leaving.enter_context(host.strategy.watched(partial(places.locate, host)))
        host.plan.skip_idle_points()
        host.loading.refused = False
        with storage_errors(host.work_dir, "used", inside=True):
            source, attempt = find_start(host, verb, start, stages, leaving, copying)
        if verb == "train" and host.catches_signals and (hint := signals.describe_ignored()):
            host.terminal.say(hint)
        leaving.push(partial(events.end, host))
        counting = leaving.enter_context(counting_failures(host))
        if verb == "train" and host.strategy.is_main:
            leaving.enter_context(control_file.listening(host, began))
        leaving.push(host.saving.finish_at_exit)
        leaving.callback(start.move_back)
        leaving.push(partial(close_records, host))
        if verb == "train":
            leaving.enter_context(ledger_file.keeping(host))
        leaving.push(partial(end_if_copy, host))  # so that a forked process does none of the above
        resumes = source is not None and source.kind == "resume"
        host.records.begin(host.work_dir, host.experiment_name, resumes)
        closed.has_begun = True
        with stages.points():
            start.load(source)
            if verb == "train":
                host.journal.open(host.work_dir)
                stages.before_training()
                host.plan.ledger.begin_steps()
                counting.attempt = attempt
                launched.mark_started()
            yield
        host.saving.check_folders()
        if verb == "train" and host.strategy.is_main:
            failures.forget(host.work_dir, passed=host.position.iter)
            capsule.forget(host.work_dir, passed=host.position.iter)


@contextmanager
def session_without_folder(host: Host, verb: Verb, start: Start, stages: Stages) -> Iterator[None]:
    """Run once, for a host that has no folder to write to: signals and processes, but no files."""
    with ExitStack() as leaving:
        leaving.enter_context(running(host, verb, start))
        leaving.enter_context(stages.begun(verb))
        leaving.push(partial(end_if_copy, host))
        with stages.points():
            start.load(None)
            yield


@contextmanager
def explained(host: Host) -> Iterator[None]:
    """Report a failure to the other processes, or raise theirs, if this one is only its consequence."""
    try:
        yield
    except Exception as error:
        found = host.strategy.explain(error)
        text = "\n  ".join([described(found), *getattr(found, "__notes__", [])])
        launched.record(text, getattr(found, "relayed", False))
        if found is error:
            raise
        raise found from error


class Counting:
    """The attempt to train whose failure would be counted."""

    #: The name of the attempt, the same in all processes; empty before training begins.
    attempt = ""


@contextmanager
def counting_failures(host: Host) -> Iterator[Counting]:
    """Count a failure of training at this step, and leave its capsule.

    The third one in a row has the exit code "do not requeue".
    """
    counting = Counting()
    try:
        yield counting
    except Exception as error:
        found = worker_errors.explain(error)  # torch may also raise it while the run ends
        if counting.attempt and isinstance(found, Exception):
            count_failure(host, counting.attempt, found)
            capsules.leave(host, found)
        if found is error:
            raise
        raise found from error


def count_failure(host: Host, attempt: str, error: Exception) -> None:
    """Count a failure, unless it is the first step, or not the step is to blame."""
    step = host.position.iter + 1
    if step == 1 or exit_code_of(error) in NOT_COUNTED or not host.work_dir.is_dir():
        return
    near = isinstance(error, DistributedError)
    count = failures.note(host.work_dir, step, attempt, type(error).__name__, near)
    if count >= failures.LIMIT:
        blame(
            error,
            f"step {step} has failed {count} times in a row, so starting the run again would not help: the exit code "
            f"is {DO_NOT_REQUEUE} (do not requeue)\n  to start counting from zero, delete "
            f"{host.work_dir / failures.NAME}",
        )
        set_exit_code(error, DO_NOT_REQUEUE)


def find_start(
    host: Host, verb: Verb, start: Start, stages: Stages, leaving: ExitStack, copying: log_copies.Copying
) -> tuple[Source | None, str]:
    """Open the folder, which only the main process does, and read the checkpoint that the run starts from.

    Also return the name of this attempt, which is the same in all processes.
    """
    own: list[Source | None] = []

    def open_it() -> tuple[Path, SourceKind] | None:
        own.append(source := open_folder(host, verb, start, stages, leaving, copying))
        return None if source is None else (source.path, source.kind)

    attempt, found = host.strategy.on_main(lambda: (uuid.uuid4().hex, open_it()))
    return (own[0] if own else start.read_source(found)), attempt


def end_if_copy(host: Host, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    """End a process that a hook forked, where it would leave the run. This is an exit callback."""
    if error is not None:
        forks.end_if_copy(host, error)
    host.requests.refuse_copy()


def say_how_to_continue(
    host: Host, kind: type[BaseException] | None, error: BaseException | None, trace: object
) -> None:
    """After a signal, end with the command that continues the run. It is the last line that is shown."""
    if error is not None and signals.was_reported(error) and host.saving.last_path is not None:
        host.terminal.say(f"Continue with: {host.hints.continuing}")


def log_failure(
    terminal: Terminal, kind: type[BaseException] | None, error: BaseException | None, trace: object
) -> None:
    """Write to run.log why a run ended. The code that catches the error shows it on the screen."""
    if isinstance(error, HooklineError):
        terminal.note("\n  ".join([f"ended: {error}", *getattr(error, "__notes__", [])]))
    elif isinstance(error, Exception):
        terminal.note("ended:\n" + "".join(traceback.format_exception(error)).rstrip())


def close_records(host: Host, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    """Close the records, with the outcome of the run. A failure of the run itself is not replaced.

    If the run has failed, the last records have the numbers of this process alone.
    """
    try:
        host.strategy.settle(alone=True)
        host.records.close("finished" if error is None else "failed" if isinstance(error, Exception) else "killed")
    except StorageError as another:
        if error is None:
            raise
        log.warning("%s", another)


@contextmanager
def own_log(terminal: Terminal, journal: Journal) -> Iterator[None]:
    """Show hookline's own warnings as lines of this run, and note them in its journal, as long as it lasts."""
    handlers, propagate = (TerminalHandler(terminal), JournalHandler(journal)), log.propagate
    for handler in handlers:
        log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
        log.propagate = propagate


def open_folder(
    host: Host, verb: Verb, start: Start, stages: Stages, leaving: ExitStack, copying: log_copies.Copying
) -> Source | None:
    """Claim the folders, and read the checkpoint that the run starts from. A fresh run archives an earlier one."""
    folder, terminal = host.work_dir, host.terminal
    folders = host.folders if verb == "train" or moves.are_unfinished(host.folders) else [folder]
    records = list(host.records.files())
    for each in folders:
        ownership.claim(each)
        leaving.enter_context(ownership.locked(each))
    targets = [each.target(folder) for each in log_copies.wanted_by(host.plan)]
    places = {real_path(each): each for each in [*targets, *folders]}.values()
    moved = moves.finish(places, start.origin_of)  # before anything else looks for files
    for each in folders:
        archive.refuse_foreign(each, records, host.checkpoint_names)
    if verb != "train":
        source = start.find_source(verb)
        copying.begin(fetch=True)
    else:
        control.remove(folder)
        for each in folders:
            store.sweep(each)
        source = start.find_source(verb)
        resumes = source is not None and source.kind == "resume" and source.is_inside(folders)
        continues = resumes or host.loading.started
        if not continues and start.contract.choices.resume is True:
            archive.drop_records(folder, records)
        elif not continues:
            failures.forget(folder)
            files = {each: start.earlier_files(each, records) for each in places if each.exists()}
            archives = moves.move_all(files, start.origin_of)
            moved += [f"moved the files of an earlier run from {each} to {old}" for each, old in archives.items()]
            leaving.push(partial(archive.restore_archived, archives, host, start.origin_of))
        copying.begin(fetch=continues)
        if continues:
            leaving.push(partial(put_back, host, {path: read_bytes(path) for path in descriptions(folder)}))
    terminal.open_log(folder / "run.log")
    for line in moved:
        terminal.say(line)
    if verb == "train":
        stages.describe()
        events.begin(host, source, continues)
    return source


def descriptions(folder: Path) -> list[Path]:
    """Return the files in a folder that a training replaces before its checkpoint is loaded."""
    return [path for name in (names.PLAN, names.CONFIG, ledger_file.NAME) if (path := folder / name).is_file()]


def put_back(
    host: Host,
    files: dict[Path, bytes],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
) -> None:
    """Put back the files that describe the run in the folder if a resume was refused."""
    if error is None or not host.loading.refused:
        return
    try:
        for path in descriptions(host.work_dir):
            if path not in files:
                path.unlink()
        for path, content in files.items():
            with replacing(path) as file:
                file.write(content)
    except (OSError, StorageError) as another:
        blame(error, f"the files that describe the run in {host.work_dir} have changed: {another}")
