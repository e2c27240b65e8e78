"""Contract: what a host does with a checkpoint, before, while and after it is loaded.

    contract.check(checkpoint, path)     # refuses a checkpoint that does not fit, or that needs a decision
    ...                                  # the parts are loaded
    contract.apply()                     # the user's choices that differ from the loaded state
    contract.report(checkpoint)          # where the run continues, and what differs

`Contract` loads a checkpoint as it is. `RunContract` is the one of a Runner.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import compatibility
from hookline.checkpoint.export import averages_in
from hookline.common.escape import escaped
from hookline.errors import StorageError
from hookline.resume import apply, facts, report
from hookline.resume.compare import Difference
from hookline.run.position import Position
from hookline.state import snapshot

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.resume.report import Resumption
    from hookline.run.keep import Choices
    from hookline.state.host import Host

log = logging.getLogger("hookline")


class Contract:
    """Finds, compares and loads the checkpoint of a host."""

    def __init__(self, host: Host, choices: Choices) -> None:
        self._host = host
        #: What the user chose for the start of the run.
        self.choices = choices
        #: What differed when the run was resumed; None if it was not.
        self.resumption: Resumption | None = None

    def begin_again(self) -> None:
        """Forget what an earlier training of this host has left, when the next one begins."""

    def check(self, checkpoint: dict[str, Any], path: Path) -> None:
        """Refuse a checkpoint that does not fit this run, before anything is loaded."""
        snapshot.check(self._host, checkpoint, str(path), self.prepare)
        if odd := facts.malformed(checkpoint["meta"].get("asked", {})):
            names = [f"meta['asked']{where}" for where in odd]
            raise StorageError(f"{path} cannot be used: {snapshot.not_saved(names)}")
        self.resumption = self.compare(checkpoint, path)
        self._host.loading.was_reported = self.resumption.has_reported

    def prepare(self, checkpoint: dict[str, Any]) -> None:
        """Change the model or the checkpoint, before the two are compared."""

    def compare(self, checkpoint: Mapping[str, Any], path: Path) -> Resumption:
        """Return what differs between the checkpoint and this run."""
        return report.compare_with(self._host, checkpoint, path, self.choices)

    def apply(self) -> None:
        """Apply the user's choices that differ from the loaded state."""

    def report(self, checkpoint: Mapping[str, Any]) -> None:
        """Report where the run continues and what differs."""
        self.tell_position(checkpoint)
        assert self.resumption is not None, "it was compared before"
        for line in self.resumption.lines:
            self._host.terminal.say(f"  {line}")
        if self._host.strategy.is_main:
            report.record(self._host, self.resumption)

    def tell_position(self, checkpoint: Mapping[str, Any]) -> None:
        """Say where the run continues."""

    # -- weights alone

    def base_weights(self) -> Path | None:
        """Return the file with the weights that the model of this run begins with; None if it is built with them."""
        return None

    def read_weights(self, path: Path) -> dict[str, Any]:
        """Read the file of `load_from`. A subclass may support other formats, but none that can run code."""
        return self._host.strategy.checkpoints.read(path, sealed=False)

    def load_weights(self, checkpoint: dict[str, Any], path: str) -> None:
        """Load only the weights of a checkpoint."""
        raise NotImplementedError


class RunContract(Contract):
    """The contract of a Runner: the user's choices win where `keep` says so."""

    def __init__(self, runner: Run, choices: Choices) -> None:
        super().__init__(runner, choices)
        self._runner = runner
        #: The `load_from` of the config: the config itself may have a reference in its place.
        self._load_from = choices.load_from
        self._originals: apply.Originals | None = None
        #: The hooks that have another name in the checkpoint, with the name that they have here.
        self._moved: dict[str, str] = {}

    def prepare(self, checkpoint: dict[str, Any]) -> None:
        """Find the hooks of the checkpoint, and compute with as many threads, if this was left to hookline."""
        meta = checkpoint.get("meta")
        self._runner.acceleration.continue_from(meta if isinstance(meta, Mapping) else {})
        self._moved = facts.follow_parameters(checkpoint, self._runner.asked.get("hooks", {}))

    def check(self, checkpoint: dict[str, Any], path: Path) -> None:
        """Also refuse to resume if the user has to decide how a schedule continues."""
        super().check(checkpoint, path)
        assert self.resumption is not None, "it was compared just now"
        apply.refuse_other_skips(self.resumption, checkpoint["position"])
        apply.refuse_undecided(self._runner, self.resumption, checkpoint)
        self._originals = apply.Originals.of(self._runner)

    def compare(self, checkpoint: Mapping[str, Any], path: Path) -> Resumption:
        """Compare also with the length of training, and with a checkpoint of an earlier hookline."""
        runner = self._runner
        found = report.compare_with(
            runner,
            checkpoint,
            path,
            self.choices,
            older=lambda: report.older_facts(runner.optims, checkpoint),
            is_over=lambda epoch, done: runner.train_loop.is_over(Position(epoch, done)),
        )
        why = "the order of the hooks has changed, and each state follows the parameters of its hook"
        found.differences += [
            Difference("hooks", f"hook {escaped(new)}", {"name": old}, {"name": new}, "config", why)
            for old, new in self._moved.items()
        ]
        return found

    def apply(self) -> None:
        """Use the values of the config where they win."""
        assert self._originals is not None, "the differences were decided before"
        assert self.resumption is not None, "they were compared before"
        apply.apply(self._runner, self.resumption, self._originals, self.choices.keep)
        self._originals = None

    def tell_position(self, checkpoint: Mapping[str, Any]) -> None:
        """Report the position, and take the seed of the checkpoint if the user did not choose one."""
        runner, position = self._runner, self._runner.position
        where = f"epoch {position.epoch}, iteration {position.iter}"
        runner.terminal.say(f"resumed from {escaped(runner.saving.last_path)}: {where}")
        if not self.choices.seed_is_chosen:
            runner.seed = runner.training.seed = runner.evaluation.seed = checkpoint["meta"].get("seed", runner.seed)

    def base_weights(self) -> Path | None:
        """Return the file of `load_from`: the config's, if another checkpoint is loaded on top of it."""
        resume, given = self.choices.resume, self.choices.load_from
        has_one = (self._runner.config or {}).get("load_from") is not None
        chosen = given if resume else self._load_from if has_one else None
        return Path(chosen) if chosen is not None and (resume or str(chosen) != str(given)) else None

    def load_weights(self, checkpoint: dict[str, Any], path: str) -> None:
        """Load the weights of a checkpoint that fit the model. For an evaluation, the whole model must fit."""
        runner = self._runner
        if runner.running != "train":
            compatibility.refuse_lacking(runner.model, checkpoint["state_dict"], path)
        for each in compatibility.converted(runner.model.state_dict(), checkpoint["state_dict"]):
            if each.is_lossy:
                log.warning(
                    "%s: %s of the model has %s, the file %s, so the numbers were changed",
                    *(escaped(path), each, each.own, each.saved),
                )
        left_out = snapshot.load_fitting(runner.model, checkpoint["state_dict"], path, runner.strategy)
        text = f"weights from {escaped(path)}" + (", except:" if left_out else "")
        runner.terminal.say("\n  ".join([text, *left_out]))
        unused = [name for name in averages_in(checkpoint) if name not in {entry.name for entry in runner.plan}]
        if unused:
            names = ", ".join(map(escaped, unused))
            runner.terminal.say(f"the averaged weights in it ({names}) are not used without that hook")
