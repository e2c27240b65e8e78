"""Triage: repeat steps of a run, and find where NaN or Inf began: the step, the pass, the module and the samples.

    search     looks at losses, gradients, parameters and buffers of every step, and follows all operations of one step
    triage     searches; if it began before the step that was followed, searches again and follows that step
    verdict    chooses the process in which it began

A bad number is only a beginning if it has a consequence: a skipped batch, or a step that a gradient scaler has skipped,
is none, except in the step in which the run failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.common.files import real_path, write_text
from hookline.common.numbers import is_finite
from hookline.replay.rerun import ReplayOver
from hookline.replay.running import in_a_process
from hookline.replay.tensors import is_bad, named_tensors, values_of
from hookline.replay.tracing import Tracer
from hookline.replay.verdict import Verdict, choose
from hookline.rundir import capsule
from hookline.runner.hook import Hook
from hookline.state.finite import find_non_finite

if TYPE_CHECKING:
    from hookline.replay.preparation import Task
    from hookline.runner.runner import Runner

#: The most names of tensors that a finding has.
MOST_NAMES = 5


class Search(Hook):
    """Looks for the first step with NaN or Inf, and writes a finding.

    Args:
        runner: The runner that repeats the steps.
        folder: The folder of the finding.
        failed_at: The step in which the run failed; 0 if it did not fail.
        traced: The step whose operations are followed; 0 for none.
        early: Also follow what comes between this step and the step before.
    """

    priority = "HIGHEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(self, runner: Runner, folder: Path, failed_at: int, traced: int, early: bool) -> None:
        self.folder, self.failed_at, self.traced, self.early = folder, failed_at, traced, early
        self._tracer = Tracer(runner)
        self._is_found = self._is_tracing = False
        #: The steps that a gradient scaler has skipped.
        self._overflows: list[int] = []
        self._begin_step()

    def _begin_step(self) -> None:
        self._losses: list[Tensor] = []
        self._gradients: dict[str, Tensor] = {}
        self._outputs: Mapping[str, Any] = {}

    def before_train(self, runner: Runner) -> None:
        """Follow what comes before the first step."""
        if self.early and runner.iter + 1 == self.traced:
            self._trace()

    def _trace(self) -> None:
        if not self._is_tracing:
            self._is_tracing = True
            self._tracer.start()

    def around_train_iter(self, runner: Runner, data_batch: Any) -> Iterator[None]:
        """Look at a step."""
        step = runner.iter + 1
        self._begin_step()
        if odd := _odd_weights(runner):
            self._note(runner, "between", odd, data_batch)
        if step == self.traced:
            self._tracer.take_batch(data_batch, len(_samples(runner, data_batch)[1]))
            self._trace()
        try:
            yield
        except Exception:
            self._conclude(runner, step, data_batch, failed=True)
            raise
        self._conclude(runner, step, data_batch)
        if runner.strategy.any(self._is_found):
            raise ReplayOver
        if self.early and step + 1 == self.traced:
            self._trace()

    def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Note the loss."""
        self._losses.append(outputs["loss"])
        self._outputs = outputs

    def around_optimizer_step(self, runner: Runner) -> Iterator[None]:
        """Note the gradients that a step has used."""
        yield
        self._note_gradients(runner)

    def after_train_iter(self, runner: Runner, outputs: Any) -> None:
        """Note the loss that hooks have left, and the terms of the loss."""
        self._outputs = outputs
        if len(self._losses) <= 1 and isinstance(loss := outputs.get("loss"), Tensor):
            self._losses = [loss]

    def before_save_checkpoint(self, runner: Runner) -> None:
        """Look at what came after the step: a save refuses weights of NaN, so the run ends here."""
        if odd := _odd_weights(runner):
            self._note(runner, "between", odd, None)

    def _note_gradients(self, runner: Runner) -> None:
        gradients = {name: each.grad for name, each in runner.model.named_parameters() if each.grad is not None}
        odd = find_non_finite({name: values_of(each) for name, each in gradients.items()}, gradients)
        self._gradients |= {name: gradients[name] for name in odd}

    def _conclude(self, runner: Runner, step: int, batch: Any, failed: bool = False) -> None:
        """Note where the step has gone wrong, if it has."""
        self._note_gradients(runner)
        scaled = any(optim.scaler is not None for optim in runner.optims.values())
        counts = step == self.failed_at or not (scaled or runner.skipped)
        bad = [loss for loss in self._losses if is_bad(loss)]
        if bad and counts:
            self._note(runner, "loss", {"loss": bad[0]}, batch)
        elif self._gradients and counts and not scaled:
            self._note(runner, "gradient", self._gradients, batch)
        elif odd := _odd_weights(runner):
            self._note(runner, "weight", odd, batch)
        elif failed and self._is_tracing and self._tracer.first_origin() is not None:
            self._note(runner, "error", {}, batch)
        if self._gradients and scaled:
            self._overflows.append(step)
        if step >= self.traced:
            self._stop_tracing()

    def _stop_tracing(self) -> None:
        if self._is_tracing:
            self._is_tracing = False
            self._tracer.stop()

    def _note(self, runner: Runner, symptom: str, tensors: Mapping[str, Tensor], batch: Any) -> None:
        """Write the finding of this process, unless there is one."""
        if self._is_found:
            return
        is_traced = self._is_tracing and runner.iter + 1 == self.traced
        self._is_found = True
        tracer, position = self._tracer, runner.position
        origin = None
        if is_traced:
            origin = tracer.origin_of(list(tensors.values()))
            if origin is None or (origin.kind == "outside" and runner.world_size > 1):
                # The step failed before it had a loss, or processes have exchanged the numbers unseen.
                origin = tracer.first_origin() or origin
        self._stop_tracing()
        kind, samples = _samples(runner, batch)
        finding = {
            "step": runner.iter + 1,
            "epoch": position.epoch + 1,
            "batch": position.batch + 1,
            "rank": runner.rank,
            "symptom": symptom,
            "names": list(tensors)[:MOST_NAMES],
            "count": len(tensors),
            "loss": _number(next(iter(self._losses), None)),
            "terms": {str(name): _number(each) for name, each in self._outputs.items() if _number(each) is not None},
            "origin": None if origin is None else origin.as_data(),
            "samples": kind,
            "ids": samples,
            "overflows": self._overflows,
            "traced": is_traced,
            "without_compiler": is_traced and tracer.without_compiler,
        }
        path = self.folder / f"finding-rank{runner.rank}.json"
        path.write_text(json.dumps(finding), encoding="utf-8")


def _odd_weights(runner: Runner) -> dict[str, Tensor]:
    """Return the parameters that have NaN or Inf, and the buffers that have NaN: an Inf may be a mask."""
    parameters, buffers = dict(runner.model.named_parameters()), dict(runner.model.named_buffers())
    return {name: (parameters | buffers)[name] for name in find_non_finite(parameters | buffers, parameters)}


def _samples(runner: Runner, batch: Any) -> tuple[str, list[int]]:
    """Return the samples of the current batch in this process, or else the numbers of its rows."""
    batches = runner._host.training.batches
    known = None if batches is None else batches.identify(runner.position.batch)
    if known is not None and known[0] == "samples":
        return known
    sizes = [len(tensor) for _, tensor in named_tensors(batch) if tensor.ndim]
    return "rows", list(range(sizes[0] if sizes else 0))


def _number(value: Any) -> float | str | None:
    """Return a single number as a float, or as a text if it is NaN or Inf; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        value = float(value.detach())
    if type(value) not in (int, float):
        return None
    return float(value) if is_finite(value) else str(value)


def write(verdict: Verdict) -> None:
    """Write what was found about a failure into the folder of the run, unless the run has passed it meanwhile."""
    failure = verdict.task.capsule
    if failure is None or not failure.path.exists():
        return
    with suppress(OSError):
        write_text(verdict.task.folder / capsule.TRIAGE, json.dumps(verdict.as_data(), indent=1) + "\n")


#: Repeats the steps of a task in a scratch folder, with hooks that look at them.
Repeat = Callable[..., None]


def triage(task: Task, repeat: Repeat) -> Verdict:
    """Find where NaN or Inf began in the steps of a task."""
    failed_at = 0 if task.capsule is None else task.capsule.step
    search = partial(_search, task, repeat, failed_at)
    found = search(failed_at)
    if found is not None and found["symptom"] == "error" and task.capsule is not None:
        of_a_hook = task.capsule.data["error"]["hook"] and found["loss"] is not None
        found = None if of_a_hook else found  # after a finite loss, a hook may fail for any reason
    if found is None and failed_at:  # compiled code may do what the same code does not do without its compiler
        found = search(0)
    elif found is not None and not found["traced"]:
        found = search(found["step"], found["symptom"] == "between") or found
    return Verdict(task, found)


def _search(task: Task, repeat: Repeat, failed_at: int, traced: int, early: bool = False) -> dict[str, Any] | None:
    """Repeat the steps in new processes, and return the finding of the process in which it began."""
    with TemporaryDirectory(prefix="hookline-triage-") as folder:
        scratch = real_path(Path(folder))
        (scratch / "run").mkdir()
        watcher = partial(Search, folder=scratch, failed_at=failed_at, traced=traced, early=early)
        in_a_process(partial(repeat, task, scratch / "run", watchers=(watcher,)))
        return choose([json.loads(path.read_text(encoding="utf-8")) for path in sorted(scratch.glob("finding-*.json"))])
