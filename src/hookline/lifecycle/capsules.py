"""The capsule that a failed training leaves in its folder (see `hookline.rundir.capsule`). It costs nothing before."""

from __future__ import annotations

import struct
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import seal
from hookline.common.files import real_path
from hookline.engine.numerics import KEPT
from hookline.engine.run import Run
from hookline.errors import NumericsError, StorageError, blame, described, exit_code_of
from hookline.lifecycle import events, places, rerun
from hookline.plan.callers import call_of_frame
from hookline.rundir import capsule, code, journal

if TYPE_CHECKING:
    from hookline.state.host import Host

#: The most samples of a batch, events and notes that a capsule has.
MOST_SAMPLES, MOST_EVENTS, MOST_NOTES = 4096, 20, 10


def leave(host: Host, error: Exception) -> None:
    """Leave the capsule of a training that has failed in this process. Whatever goes wrong here is only noted.

    A full disk or a folder that is gone is no failure of a step, and another engine's training cannot be repeated.
    """
    if isinstance(error, StorageError) or not isinstance(host, Run) or host.loading.refused:
        return
    try:
        content = describe(host, error)
        capsule.write(host.work_dir, content)
        if isinstance(error, NumericsError) and content["origin"]["kind"] and rerun.active is None:
            blame(error, f"to find the step, the module and the samples: hookline replay {host.work_dir} --triage")
    except Exception as another:
        host.terminal.note(f"the capsule of this failure could not be written: {described(another)}")


def describe(host: Run, error: Exception) -> dict[str, Any]:
    """Return what a capsule says about the failure of a training."""
    where, in_step = places.section_of_error(error) or ("the run", False)
    number = host.position.iter
    step = number + 1 if in_step or not number else number
    if isinstance(error, NumericsError) and error.step is not None:
        step = error.step
    origin = events.origin(host)
    strategy, losses = host.strategy, host.training.losses
    bits = [struct.unpack("<Q", struct.pack("<d", loss))[0] for loss in [*losses.before, *losses.taken][-KEPT:]]
    return {
        "rank": strategy.rank,
        "processes": strategy.world_size,
        "step": step,
        "position": {"epoch": host.position.epoch, "iter": number, "batch": host.position.batch},
        "error": {
            "type": type(error).__name__,
            "text": described(error),
            "code": exit_code_of(error),
            "relayed": bool(getattr(error, "relayed", False)),
            "where": where,
            "hook": _hook_in(error),
        },
        "notes": [str(note) for note in getattr(error, "__notes__", [])[:MOST_NOTES]],
        "checkpoint": _checkpoint(host),
        "origin": origin,
        "seed": host.seed,
        "samples": host.asked.get("samples"),
        "environment": {**events.environment(host), "strategy": strategy.name},
        "losses": {"first": losses.since - len(bits) + 1, "bits": bits},
        "batch": _batch(host, step) if in_step or isinstance(error, NumericsError) else None,
        "code": code.code_of(origin),
        "events": journal.read(host.work_dir)[-MOST_EVENTS:],
    }


def _hook_in(error: Exception) -> str:
    """Return the name of the hook that an error came from; empty if it came from elsewhere."""
    calls = [call_of_frame(frame) for frame, _ in walk_tb(error.__traceback__)]
    return next((call.who for call in reversed(calls) if call is not None), "")


def _checkpoint(host: Run) -> dict[str, Any] | None:
    """Return the newest checkpoint that a run can resume from; None if the run had no such checkpoint yet."""
    path = host.saving.last_path
    if path is None or host.saving.saved_at < 0 or (note := seal.read_note(path)) is None:
        return None
    inside = real_path(path).parent == real_path(host.work_dir)
    shown = path.name if inside else str(real_path(Path(path)))
    return {"path": shown, "sha256": seal.read_hash(path), "step": note.step}


def _batch(host: Run, step: int) -> dict[str, Any] | None:
    """Return which samples the batch of a step has in this process; None if its loader does not say."""
    batches, position = host.training.batches, host.position
    if batches is None:
        return None
    number = position.batch + step - position.iter - 1
    if batches.epoch < position.epoch:  # it was noticed after the end of its pass
        number += batches.length or 0
    if number < 0 or (kinds := batches.identify(number)) is None:
        return None
    kind, ids = kinds
    return {"epoch": batches.epoch, "number": number, "kind": kind, "ids": ids[:MOST_SAMPLES], "size": len(ids)}
