"""What surrounds every run, whether it trains, validates or tests: the folder, the log, the points of the run."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

from hookline.checkpoint import store
from hookline.common import rng
from hookline.engine import hook_states, signals
from hookline.engine.preflight import check_watched_metrics
from hookline.errors import DataError, HooklineError, blame
from hookline.rundir import archive, log_copies, ownership
from hookline.screen.terminal import Terminal, TerminalHandler

if TYPE_CHECKING:
    from hookline.engine.optim import When
    from hookline.engine.runner import Runner
    from hookline.engine.saving import Source

log = logging.getLogger("hookline")


@contextmanager
def session(runner: Runner, verb: Literal["train", "val", "test"]) -> Iterator[None]:
    """One run from its first point to its last, left in order whatever happens."""
    if runner.running is not None:
        raise HooklineError(
            f"runner.{verb}() was called inside runner.{runner.running}(); ask for what you need with "
            "runner.request_val() or runner.stop()"
        )
    with ExitStack() as leaving:
        runner.running = verb
        leaving.callback(setattr, runner, "running", None)
        leaving.callback(copy_logs, runner)
        leaving.callback(runner.terminal.close_log)
        leaving.push(partial(log_failure, runner.terminal))
        leaving.enter_context(own_log(runner.terminal))
        if verb == "train":
            runner.forget_requests()
            leaving.enter_context(signals.caught(runner))
        runner.terminal.prepare()
        prepare(runner)
        runner.plan.leave_out_idle()
        source = open_folder(runner, verb, leaving)
        leaving.push(runner.saving.leave)
        leaving.callback(runner.saving.stand_back)
        leaving.push(partial(close_writers, runner))
        resuming = source is not None and source.kind == "resume"
        runner.writers.begin(runner.work_dir, runner.experiment_name, resuming)
        with points_of_a_run(runner):
            runner.saving.load(source)
            if verb == "train":
                if runner.config is not None:
                    runner.writers.write_config("config", runner.config, runner.iter)
                check_watched_metrics(runner)
                hook_states.refuse_odd_states(runner.plan)
            yield


def log_failure(
    terminal: Terminal, kind: type[BaseException] | None, error: BaseException | None, trace: object
) -> None:
    """Why a run ended stands in run.log, too; on the screen, whoever catches the error shows it."""
    if isinstance(error, HooklineError):
        terminal.note("\n  ".join([f"ended: {error}", *getattr(error, "__notes__", [])]))
    elif isinstance(error, Exception):
        terminal.note("ended:\n" + "".join(traceback.format_exception(error)).rstrip())


def close_writers(runner: Runner, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    """The writers are told how the run has ended."""
    if error is None:
        runner.writers.close("finished")
    else:
        runner.writers.close("failed" if isinstance(error, Exception) else "killed")


@contextmanager
def own_log(terminal: Terminal) -> Iterator[None]:
    """Hookline's own warnings are lines of this run while it lasts."""
    handler, propagate = TerminalHandler(terminal), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


def open_folder(runner: Runner, verb: str, leaving: ExitStack) -> Source | None:
    """Claim the folders and read what the run starts from; the files of an earlier run make way for a fresh one."""
    folder, terminal, saving = runner.work_dir, runner.terminal, runner.saving
    folders = saving.folders if verb == "train" else [folder]
    for each in folders:
        ownership.claim(each)
        leaving.enter_context(ownership.locked(each))
    targets = [copies.target(folder) for copies in log_copies.copies_of(runner)]
    if verb != "train":
        source = saving.find_source(verb)
        fetch_logs(runner)
        runner.in_folder = True
        terminal.open_log(folder / "run.log")
        return source
    for each in folders:
        store.sweep(each)
    source = saving.find_source(verb)
    going_on = source is not None and source.kind == "resume" and source.is_inside(folders)
    moved = []
    if going_on or saving.started:
        fetch_logs(runner)
    elif runner.resume is True:
        archive.drop_records(folder, runner.writers.files())
    else:
        for each in [*folders, *(target for target in targets if target.exists())]:
            if old := archive.set_aside(each, runner.writers.files()):
                moved.append(f"{each} held an earlier run; its files are in {old} now")
                leaving.push(partial(archive.put_back, old, each, runner))
    runner.in_folder = True
    terminal.open_log(folder / "run.log")
    for line in moved:
        terminal.say(line)
    (folder / "plan.txt").write_text(runner.plan.explain() + "\n", encoding="utf-8")
    if runner.config is not None:
        from hookline.common.yaml_file import dump

        (folder / "config.yaml").write_text(dump(runner.config), encoding="utf-8")
    return source


def fetch_logs(runner: Runner) -> None:
    """Logs that are kept elsewhere are needed here before anything is added to them."""
    for copies in log_copies.copies_of(runner):
        copies.fetch(runner.work_dir)


def copy_logs(runner: Runner) -> None:
    """Everything is closed: the logs go where hooks want copies of them."""
    if runner.in_folder:
        runner.in_folder = False
        for copies in log_copies.copies_of(runner):
            copies.copy(runner.work_dir)


def prepare(runner: Runner) -> None:
    """Seed everything, and put the model and the loaders in the state that a run needs."""
    if not runner.saving.started:
        rng.seed_everything(runner.seed)
    runner.model.to(runner.device)
    if runner.has_training:
        loop = runner.train_loop
        for optim in runner.optims:
            unit: When = "epoch" if loop.by_epoch else "iter"
            several = len(runner.optims) > 1
            optim.attach(runner.plan, runner.precision, runner.device, unit, runner.batches_left, several)
        runner.call_step = partial(loop.step, optim=runner.optim) if loop.updates_itself else loop.step


@contextmanager
def points_of_a_run(runner: Runner) -> Iterator[None]:
    """The scope `run` with its points; a failure is shown to hooks at `on_exception`, and then goes on its way."""
    plan = runner.plan
    with plan.around("run"):
        try:
            plan.before_run()
            yield
            plan.after_run()
        except BaseException as error:
            if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
                # torch raises it wherever the training stands when a worker dies
                blame(error, "a worker process of a loader died", exit_code=DataError.exit_code)
            try:
                plan.on_exception(error)
            except Exception as another:
                blame(error, f"a hook failed at on_exception: {type(another).__name__}: {another}")
            raise
