"""Resuming by contract: what differs between a checkpoint and the run that resumes it, and the report of it.

    found = report.compare_with(host, checkpoint, path)     # before anything is loaded
    apply.refuse_undecided(runner, found, checkpoint)
    ...                                                     # the checkpoint is loaded
    apply.apply(runner, found, before)                      # where the config wins over the loaded state

`hookline.resume.compare` finds the differences.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common import rng
from hookline.common.escape import escaped
from hookline.common.files import storage_errors, write_text
from hookline.errors import ConfigError
from hookline.optim import retiming
from hookline.resume import apply
from hookline.resume.compare import Difference, compare
from hookline.resume.facts import initial_rates
from hookline.state import snapshot
from hookline.state.module_flags import MODULES, ModulesPart
from hookline.state.parts import ModelPart

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.optim.optims import Optims
    from hookline.optim.scheduled import Scheduled
    from hookline.resume.start import Start
    from hookline.run.keep import Choices, Keep
    from hookline.state.host import Host, Verb

#: The file in the folder of a run with what differed at its last resume.
RECORD = "resume.json"


@dataclass
class Resumption:
    """A resume: the checkpoint, where it is, and what differs."""

    path: Path
    epoch: int
    iter: int
    differences: list[Difference]
    #: The choices of the user that change nothing, with the reason.
    unused: list[str]
    #: The facts of the checkpoint, and this run's facts before anything was loaded.
    then: Mapping[str, Any] = field(repr=False)
    now: Mapping[str, Any] = field(repr=False)
    #: The hint how to make a choice: `--keep lr=config`.
    by_command: bool = False

    def hint(self, choice: str) -> str:
        """Return what the user has to write to make a choice."""
        return f"--keep {choice}" if self.by_command else f'keep="{choice}"'

    @property
    def lines(self) -> list[str]:
        """Return one line per difference, and per choice without an effect."""
        return [each.line(self.hint) for each in self.differences] + self.unused

    def __str__(self) -> str:
        """Return the whole report as text."""
        where = f"a resume continues from {escaped(self.path)}: epoch {self.epoch}, iteration {self.iter}"
        return "\n  ".join([where, *(self.lines or ["nothing differs"])])

    def as_data(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            "checkpoint": str(self.path),
            "epoch": self.epoch,
            "iter": self.iter,
            "differences": [each.as_data() for each in self.differences],
            "unused": self.unused,
        }

    def has_reported(self, key: str, name: str) -> bool:
        """Return whether a hook or a part that only one side has is in the report."""
        return any(each.key == key and name in (each.checkpoint, each.config) for each in self.differences)

    def winner(self, key: str) -> str | None:
        """Return who wins at a key; None if nothing differs there."""
        return next((each.winner for each in self.differences if each.key == key), None)


# -- comparing


def compare_with(
    host: Host,
    checkpoint: Mapping[str, Any],
    path: Path,
    choices: Choices,
    older: Callable[[], dict[str, Any]] = dict,
    is_over: Callable[[int, int], bool] = lambda epoch, done: False,
) -> Resumption:
    """Compare a checkpoint with a run, before anything is loaded.

    `older` returns facts that an earlier hookline did not save as such. `is_over` returns whether there is nothing left
    to train at an epoch and an iteration.
    """
    meta, position = checkpoint["meta"], checkpoint.get("position")
    position = position if isinstance(position, Mapping) else {}
    then = {**meta, "states": checkpoint.get("hooks"), "modules": checkpoint.get(MODULES)}
    if "asked" not in meta:
        then |= older()
    now, parts = host.contents.facts(), host.contents.parts
    if isinstance(part := parts.get(MODULES), ModulesPart):
        now["built"] = part.built
    weights = parts.get("state_dict")
    dtypes = weights.converted if isinstance(weights, ModelPart) else ()
    if not choices.seed_is_chosen:
        then["seed"] = now.get("seed")
    epoch, done = position.get("epoch", 0), position.get("iter", 0)
    ends = is_over(epoch, done)
    differences = compare(then, now, choices.keep, mid_epoch=bool(position.get("batch")), ends=ends, dtypes=dtypes)
    return Resumption(
        path,
        epoch,
        done,
        differences,
        list(_unused(choices.keep, differences)),
        then,
        now,
        by_command=bool(host.hints.command),
    )


def preview(runner: Run, start: Start, prepare: Callable[[Verb], None], decided: bool) -> Resumption | None:
    """Compare this run with the checkpoint that it would resume, without loading or writing anything."""
    if not start.contract.choices.resume:
        raise ConfigError("preview_resume needs a resume: Runner(..., resume=True)")
    with rng.preserved():
        prepare("train")
    source = start.find_source("train")
    if source is None:
        return None
    snapshot.check(runner, source.checkpoint, str(source.path), start.contract.prepare)
    found = start.contract.compare(source.checkpoint, source.path)
    if decided:
        apply.refuse_other_skips(found, source.checkpoint["position"])
        apply.refuse_undecided(runner, found, source.checkpoint)
    return found


def _unused(keep: Keep, differences: list[Difference]) -> Iterator[str]:
    differing = {each.key for each in differences if each.choices}
    if keep.everywhere is not None and not differing:
        yield f"keep {keep.everywhere} has no effect: nothing differs for which there is a choice"
    for key, side in keep.by_key.items():
        if key not in differing:
            yield f"keep {key}={side} has no effect: {key} does not differ"


def older_facts(optims: Optims, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the checkpoint of an earlier hookline tells about its run: rates, and lengths of schedules."""
    rates, schedules = {}, {}
    for name, optim in optims.items():
        saved = optims.share_of(name, checkpoint.get("optimizer"))
        if isinstance(saved, Mapping) and "param_groups" in saved:
            rates[name] = initial_rates(saved["param_groups"])
        states = optims.share_of(name, checkpoint.get("param_schedulers"))
        if isinstance(states, list):
            schedules[name] = [
                _older_schedule(own, state) for own, state in zip(optim.schedulers, states, strict=False)
            ]
    return {"asked": {"lr": rates, "schedules": schedules}}


def _older_schedule(scheduled: Scheduled, state: Any) -> dict[str, Any]:
    lengths = {name: retiming.saved_parameter(state, name) for name in scheduled.auto}
    return {"auto": {name: value for name, value in lengths.items() if isinstance(value, int)}}


# -- the record


def record(host: Host, found: Resumption) -> None:
    """Write what differed to `resume.json` in the folder of the run. Without differences, there is no such file."""
    path = host.work_dir / RECORD
    with storage_errors(path):
        if found.lines:
            write_text(path, json.dumps(found.as_data(), indent=2) + "\n")
        else:
            path.unlink(missing_ok=True)
