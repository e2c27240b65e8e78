"""Find out where the loop is by inspecting its stack, at no cost to the loop."""

from __future__ import annotations

from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING

from hookline.common import launched
from hookline.errors import HooklineError
from hookline.plan.callers import call_of_frame
from hookline.run import signals
from hookline.strategies.stays import Place

if TYPE_CHECKING:
    from hookline.state.host import Host

#: Modules in whose functions a process waits for others. In autograd, DDP waits for the gradients of all.
EXCHANGES = ("torch.distributed.", "torch.nn.parallel.distributed", "torch.autograd.graph", "hookline.strategies.")
#: The sections of the loop, by module and function, and whether each iteration passes them. The innermost one counts.
SECTIONS = {
    ("hookline.engine.loops", "step"): ("the step", True),
    ("hookline.engine.loops", "evaluate_one"): ("an evaluation", False),
    ("hookline.checks.trial", "try_evaluations"): ("the trial before training", False),
    ("hookline.engine.loops", "one_pass"): ("the training loop", True),
    ("hookline.optim.optim", "update"): ("the update", True),
    ("hookline.state.saving", "_write"): ("a save", False),
    ("hookline.state.saving", "save"): ("a save", False),
    ("hookline.resume.start", "load"): ("loading a checkpoint", False),
    ("hookline.data.batches", "_next"): ("reading a batch", True),
    ("hookline.data.batches", "_count"): ("reading a batch", True),
    ("hookline.integrations.inverted", "_iterate"): ("the step", True),
}


def locate(host: Host, frame: FrameType) -> Place:
    """Return where the loop of a host is. `frame` is the innermost frame of its thread."""
    waits = str(frame.f_globals.get("__name__", "")).startswith(EXCHANGES)
    position, turn = host.position, id(host.current.batch)
    each: FrameType | None = frame
    while each is not None and _section_of(each) is None:
        each = each.f_back
    name, is_frequent = (each is not None and _section_of(each)) or ("the run", False)
    return Place(name, waits, is_frequent, position.iter, turn)


def _section_of(frame: FrameType) -> tuple[str, bool] | None:
    """Return the hook that a frame calls, or the section of the loop that it is; None for any other frame."""
    call = call_of_frame(frame)
    if call is not None:
        return f"hook {call.who} at {call.point.known_as or call.point.name}", call.is_frequent
    return SECTIONS.get((str(frame.f_globals.get("__name__", "")), frame.f_code.co_name))


def section_of_error(error: BaseException) -> tuple[str, bool] | None:
    """Return where the loop was when an error was raised, and whether each iteration passes there; None if unknown."""
    frames = reversed([frame for frame, _ in walk_tb(error.__traceback__)])
    return next((found for frame in frames if (found := _section_of(frame))), None)


def explain_exit(host: Host, error: BaseException) -> BaseException:
    """Return the error that a run ends with. `sys.exit(0)` in user code becomes a failure: it would look like success.

    Another exit code stays, and run.log, or a launcher, says where it came from.
    """
    if not isinstance(error, SystemExit) or signals.is_ending(error):
        return error
    where, _ = section_of_error(error) or ("the run", False)
    given = "" if error.code is None else repr(error.code)
    after = f"{host.hints.unit} {host.position.iter}"
    text = f"sys.exit({given}) was called after {after} ({where}), so the run is not finished"
    if error.code is None or (isinstance(error.code, int) and not error.code & 0xFF):
        return HooklineError(f"{text}; to end a training early, call runner.stop(reason)")
    host.terminal.note(f"ended: {text}")
    launched.record(text)
    return error
