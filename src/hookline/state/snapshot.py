"""Snapshots: the states of all parts of a host in one dict, and how to load them again.

A snapshot contains tensors and plain data only: a checkpoint is read with `weights_only=True`, and no string in it ever
selects code.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookline.checkpoint import frozen
from hookline.checkpoint.compatibility import misfits, separate_elements, shape_of, with_versions
from hookline.checkpoint.shards import has_shards
from hookline.common.escape import escaped
from hookline.common.plain import check_plain, is_simple
from hookline.common.torch_private import converts_entries
from hookline.common.version import VERSION
from hookline.errors import HookError, HooklineError, StorageError
from hookline.plan.entry import is_custom
from hookline.strategies import Single, Strategy

if TYPE_CHECKING:
    from torch import nn

    from hookline.state.contents import Part
    from hookline.state.host import Host

#: The types of the facts in `meta` that a resume uses.
FACTS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("format", "threads", "world_size"), int),
    **dict.fromkeys(("torch", "numpy", "device", "precision"), str),
    **dict.fromkeys(("hooks", "accumulate"), list),
    **dict.fromkeys(("optims", "asked"), dict),
    **dict.fromkeys(("batches", "batch_size", "seed"), (int, type(None))),
}

#: Incremented when older code can no longer read a new checkpoint.
FORMAT = 1


def take(
    host: Host, optimizer: bool = True, schedulers: bool = True, alone: bool = False, partial: bool = False
) -> dict[str, Any]:
    """Return the state of the whole run. Hooks may change entries at `before_save_checkpoint`.

    If only one process calls this (`alone`), the states that every process has for itself come from this one. If
    `partial`, leave out entries that training has not changed.
    """
    if not alone:
        host.strategy.settle()
    wanted = {"": True, "optimizer": optimizer, "schedulers": schedulers}
    states = {name: part.state_dict() for name, part in host.contents.parts.items() if wanted[part.option]}
    states = {
        name: state
        for name, state in states.items()
        if state is not None or not host.contents.parts[name].loads_without_state
    }
    host.evaluation.rewind(states)
    checkpoint: dict[str, Any] = {"meta": host.contents.facts(), **states}
    own = {name: states[name] for name in states if host.contents.parts[name].per_rank}
    if host.strategy.checkpoints.are_sharded:
        own = {name: _without_shards(state) for name, state in own.items()}
    others = [] if alone else host.strategy.gather_on_main(own)[1:]
    if others:
        checkpoint["ranks"] = others
    if partial and host.strategy.checkpoints.written_here:
        if host.saving.built is None:
            raise HookError(
                "request_save(params='trainable') needs a hook that saves so from the beginning: CheckpointHook with "
                "params: trainable"
            )
        checkpoint = frozen.strip(checkpoint, host.saving.built, host.contents.trained_names())
    host.plan.call("before_save_checkpoint", {"checkpoint": checkpoint})
    separated = host.strategy.checkpoints.separate(checkpoint)
    _check_plain(separated)
    if host.strategy.is_main:
        _refuse_unusable(host, checkpoint, states)
    return separated


def _without_shards(state: Any) -> Any:
    """Return the state of a part without entries that have sharded tensors. Each process writes its own of these."""
    return {key: each for key, each in state.items() if not has_shards(each)} if isinstance(state, dict) else state


def _check_plain(checkpoint: dict[str, Any]) -> None:
    """Refuse what a file cannot store, by its place in the checkpoint, or in the state of its hook."""
    hooks = checkpoint.get("hooks")
    if is_simple(checkpoint):
        return
    for name, state in hooks.items() if isinstance(hooks, dict) else ():
        check_plain(state, f"the state of {name}")
    check_plain(checkpoint, "checkpoint")


def _refuse_unusable(host: Host, checkpoint: Mapping[Any, Any], states: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that no run could resume from, before it is written. A hook may have changed it."""
    problems = [f"it must have text as keys, not {key!r}" for key in checkpoint if not isinstance(key, str)]
    needed = ["meta", *(name for name in states if host.contents.parts[name].needed)]
    if missing := [name for name in needed if name not in checkpoint]:
        problems.append(f"it has no {', '.join(missing)}")
    elif not isinstance(checkpoint["meta"], dict):
        problems.append(not_saved(["meta"]))
    elif not _custom_hooks(host, "after_load_checkpoint"):  # these may change it back
        problems += _misfits_now(host, checkpoint)
    if problems:
        hooks = _custom_hooks(host, "before_save_checkpoint")
        by = f", because of what {' or '.join(hooks)} did at before_save_checkpoint" if hooks else ""
        raise HookError(f"no run could resume from this checkpoint{by}; nothing was saved:\n  " + "\n  ".join(problems))


def _custom_hooks(host: Host, point: str) -> list[str]:
    """Return the names of the hooks at a point that are not hookline's own."""
    return [call.who for call in host.plan.calls_at(point) if is_custom(call.method)]


def _misfits_now(host: Host, checkpoint: Mapping[str, Any]) -> list[str]:
    """Return what a resume would refuse in a checkpoint of the current state."""
    if odd := _malformed(host, checkpoint):
        return [not_saved(odd)]
    if "state_dict" not in host.contents.parts or frozen.is_partial(checkpoint):
        return []
    # Only a hook can have changed the names and shapes.
    changed = _custom_hooks(host, "before_save_checkpoint")
    return host.contents.parts["state_dict"].misfits(checkpoint["state_dict"], checkpoint) if changed else []


def environment() -> dict[str, Any]:
    """Return facts about this process: versions, threads, the time."""
    return {
        "hookline": VERSION,
        "format": FORMAT,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def with_meta(checkpoint: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with more facts in its `meta`. They cannot replace the facts that every checkpoint has."""
    return {**checkpoint, "meta": {**more, **checkpoint["meta"]}} if more else checkpoint


def check(
    host: Host, checkpoint: dict[str, Any], path: str, prepare: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Refuse a checkpoint in which a part is missing or does not fit, before anything is loaded.

    `prepare` may change the model or the checkpoint before the two are compared.
    """
    needed = ["meta", *(name for name, part in host.contents.parts.items() if part.needed)]
    missing = [key for key in needed if key not in checkpoint]
    if missing:
        raise StorageError(f"{path} has no {', '.join(missing)}, so a run cannot resume from it; {host.hints.weights}")
    if odd := _malformed(host, checkpoint):
        raise StorageError(f"{path} cannot be used: {not_saved(odd)}")
    if prepare is not None:
        prepare(checkpoint)
    saved_by = checkpoint["meta"].get("format", 1)
    if saved_by > FORMAT:
        raise StorageError(
            f"{path} has format {saved_by}, but this hookline reads only up to format {FORMAT}; use a newer hookline"
        )
    now = {name: part for name, part in host.contents.parts.items() if not part.late}
    problems = []
    for name, part in now.items():
        with _understood(name, path):
            problems += part.misfits(checkpoint.get(name), checkpoint)
    if problems:
        raise StorageError(f"{path} does not fit this run; nothing was loaded:\n  " + "\n  ".join(problems))


def load(host: Host, checkpoint: dict[str, Any], path: str) -> None:
    """Load the parts that are not late, of a checkpoint that was checked."""
    _load_parts(host, {name: part for name, part in host.contents.parts.items() if not part.late}, checkpoint, path)


def load_late(host: Host, checkpoint: Mapping[str, Any], path: str) -> None:
    """Load the parts that are late, where the run continues."""
    _load_parts(host, {name: part for name, part in host.contents.parts.items() if part.late}, checkpoint, path)


def _load_parts(host: Host, parts: Mapping[str, Part], checkpoint: Mapping[str, Any], path: str) -> None:
    """Load these parts, and report those that the checkpoint does not have."""
    fresh = []
    for name, part in parts.items():
        if name in checkpoint or part.loads_without_state:
            with nullcontext() if part.runs_user_code else _understood(name, path):
                part.load_state_dict(_own(host, name, checkpoint), checkpoint)
        else:
            fresh.append(name)
    fresh = [name for name in fresh if not host.loading.was_reported("parts", name)]
    if fresh:
        host.terminal.say(f"not in the checkpoint, so starting from scratch: {', '.join(map(escaped, fresh))}")


def _own(host: Host, name: str, checkpoint: Mapping[str, Any]) -> Any:
    """Return the saved state of a part. If each process has its own, return None to one that was not there."""
    rank = host.strategy.rank
    if not host.contents.parts[name].per_rank or rank == 0:
        return checkpoint.get(name)
    others = checkpoint.get("ranks", [])
    return others[rank - 1].get(name) if rank <= len(others) else None


@contextmanager
def _understood(name: str, path: str) -> Iterator[None]:
    """Turn an error while a part of a checkpoint is read into one that names the part."""
    try:
        yield
    except HooklineError:
        raise
    except Exception as error:  # depends on what is in the file, and on classes of optimizers and schedulers
        raise StorageError(
            f"{path} cannot be used: its {name} cannot be restored: {type(error).__name__}: {error}"
        ) from error


def not_saved(odd: list[str]) -> str:
    """Return the message about entries of another type than a run saves."""
    return f"{', '.join(odd)} is not of the type that a run saves"


def _malformed(host: Host, checkpoint: Mapping[str, Any]) -> list[str]:
    """Return the parts of other types than `take` returns."""
    meta = checkpoint["meta"]
    odd = [] if isinstance(meta, dict) else ["meta"]
    if not odd:
        odd += [f"meta['{key}']" for key, kind in FACTS.items() if key in meta and not isinstance(meta[key], kind)]
    if not odd and not all(isinstance(each, int) and each > 0 for each in meta.get("accumulate", ())):
        odd.append("meta['accumulate']")
    for name, part in host.contents.parts.items():
        if name in checkpoint:
            odd += [f"{name}{where}" for where in part.malformed(checkpoint[name])]
    return odd + _malformed_ranks(host, checkpoint.get("ranks", []))


def _malformed_ranks(host: Host, ranks: Any) -> list[str]:
    """Return the states of the other processes that are not of the type that they save."""
    if not isinstance(ranks, list):
        return ["ranks"]
    odd = [f"ranks[{number}]" for number, states in enumerate(ranks) if not isinstance(states, dict)]
    per_rank = {name: part for name, part in host.contents.parts.items() if part.per_rank}
    for number, states in enumerate(ranks if not odd else ()):
        for name, part in per_rank.items():
            if name in states:
                odd += [f"ranks[{number}]['{name}']{where}" for where in part.malformed(states[name])]
    return odd


def load_fitting(model: nn.Module, state: Mapping[str, Any], path: str, strategy: Strategy | None = None) -> list[str]:
    """Load the entries of a model's state that fit, and return the misfits. Refuse a state of which nothing fits.

    A module may convert entries of an older version of itself, so it also gets names that the model does not have.
    """
    strategy, own = strategy or Single(), model.state_dict()
    same_shape = {name for name in own if name in state and shape_of(own[name]) == shape_of(state[name])}
    converts = not strategy.checkpoints.are_sharded and any(map(converts_entries, model.modules()))
    if own and not same_shape and not converts:
        raise StorageError(f"nothing in {path} fits the model:\n  " + "\n  ".join(misfits(model, state)))
    given = {n: value for n, value in state.items() if n in same_shape or (converts and n not in own)}
    separate_elements(model)
    strategy.checkpoints.load_model(model, with_versions(given, state), strict=False)
    return misfits(model, state)
