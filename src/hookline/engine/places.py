"""The place of the loop, read from the stack of its thread. The loop itself has nothing to do for it."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING

from hookline.plan.callers import call_of_frame
from hookline.strategies.stays import Place

if TYPE_CHECKING:
    from hookline.engine.host import Host

#: Modules in whose functions a process waits for others. In autograd, DDP waits for the gradients of all.
EXCHANGES = ("torch.distributed.", "torch.nn.parallel.distributed", "torch.autograd.graph", "hookline.strategies.")
#: The sections of the loop, by module and function, and whether each iteration passes them. The innermost one counts.
SECTIONS = {
    ("hookline.engine.loops", "step"): ("the step", True),
    ("hookline.engine.loops", "evaluate_one"): ("an evaluation", False),
    ("hookline.engine.trial", "try_evaluations"): ("the trial before training", False),
    ("hookline.engine.loops", "one_pass"): ("the training loop", True),
    ("hookline.engine.optim", "update"): ("the update", True),
    ("hookline.engine.saving", "_write"): ("a save", False),
    ("hookline.engine.saving", "save"): ("a save", False),
    ("hookline.engine.saving", "load"): ("loading a checkpoint", False),
    ("hookline.data.batches", "_next"): ("reading a batch", True),
}


def locate(host: Host, frame: FrameType) -> Place:
    """Return where the loop of a host is. `frame` is the innermost frame of its thread."""
    waits = str(frame.f_globals.get("__name__", "")).startswith(EXCHANGES)
    found, inner = ("the run", False), frame
    position, turn = host.position, id(getattr(host, "data_batch", None))
    each: FrameType | None = inner
    while each is not None:
        call = call_of_frame(each)
        if call is not None:
            found = (f"hook {call.who} at {call.point.known_as or call.point.name}", call.is_frequent)
            break
        section = SECTIONS.get((str(each.f_globals.get("__name__", "")), each.f_code.co_name))
        if section is not None:
            found = section
            break
        each = each.f_back
    return Place(found[0], waits, found[1], position.iter, turn)
