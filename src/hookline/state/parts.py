"""The stateful parts of a Runner: the contents of a checkpoint besides `meta`, with one class each.

    state_dict        the model
    optimizer         the optimizer, or several by name
    param_schedulers  the schedulers of the optim, or of several by name
    scaler            the gradient scaler, or several by name; only with fp16
    position          the counters of the loop, and the requests that survive a kill
    modules           which parameters are frozen, and which modules are in evaluation mode
    groups            the names of the parameters in each group, if a hook has changed the groups
    message_hub       histories and facts
    writers           the position of each writer in its records
    metric_states     metrics with a memory, by name
    hooks             every hook's state under its name
    rng               the random generators of torch (every device), numpy and Python

The late ones are in `hookline.state.late_parts`. A new part is one class, and one entry in `hookline.runner.contents`.
A user adds one with `runner.add_part(name, object)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from hookline.checkpoint import compatibility
from hookline.common.checks import is_count, is_finite
from hookline.common.escape import escaped
from hookline.common.plain import unlike, without_numpy
from hookline.data.batches import is_malformed
from hookline.errors import ConfigError
from hookline.optim import groups, retiming
from hookline.optim.hyperparameters import out_of_limits
from hookline.run.position import Position
from hookline.run.requests import Requests
from hookline.state.contents import HostPart
from hookline.state.module_flags import GROUPS, GroupsPart

if TYPE_CHECKING:
    from torch import nn

    from hookline.checkpoint.compatibility import Converted
    from hookline.data.batches import Batches
    from hookline.optim.lengths import Length
    from hookline.optim.optim import Optim
    from hookline.optim.optims import Optims
    from hookline.record.hub import MessageHub
    from hookline.screen.terminal import Terminal
    from hookline.state.contents import Contents
    from hookline.state.loading import Loading
    from hookline.strategies import Strategy
    from hookline.writers.router import Writers

#: The numbers in the state of a scheduler without which it would start again.
COUNTERS = ("last_epoch", "last_step", "_global_step")


class Trained(Protocol):
    """The owner of the parts below: a Runner."""

    strategy: Strategy
    terminal: Terminal
    loading: Loading
    position: Position
    contents: Contents
    hub: MessageHub
    writers: Writers
    optims: Optims
    val_loops: dict[str, Any]
    test_loops: dict[str, Any]

    @property
    def model(self) -> nn.Module:
        """Return the user's module."""

    @property
    def train_loop(self) -> Length:
        """Return the training loop."""

    @property
    def batches(self) -> Batches | None:
        """Return the pass over the training data that is running."""


class RunnerPart(HostPart):
    """A part that needs the runner."""

    @property
    def _runner(self) -> Trained:
        return self._host  # type: ignore[no-any-return]  # given to the constructor

    @property
    def _groups(self) -> GroupsPart:
        return self._host.contents.parts[GROUPS]  # type: ignore[no-any-return]  # one of the parts below


def check_model_state(model: nn.Module) -> None:
    """Refuse a model of the user whose state cannot be saved and loaded, before the first step."""
    state, who = model.state_dict(), f"state_dict() of {escaped(type(model).__name__)}"
    if not isinstance(state, dict):
        raise ConfigError(f"{who} must return a dict with a tensor for every name, not {type(state).__name__}")
    for name, value in state.items():
        if isinstance(value, dict) and not str(name).endswith("_extra_state"):
            raise ConfigError(
                f"{who} must return a dict with a tensor for every name, but '{escaped(name)}' is a dict; return other "
                "values from get_extra_state()"
            )


class ModelPart(RunnerPart):
    """The weights and buffers of the model."""

    needed = True
    #: The weights of the checkpoint that `misfits` has compared last, as far as the model has other dtypes.
    converted: list[Converted] = []  # noqa: RUF012  # replaced, never changed

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the user's module."""
        return self._runner.model.state_dict()

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the weights."""
        compatibility.separate_elements(self._runner.model)
        self._runner.strategy.checkpoints.load_model(self._runner.model, state)

    def malformed(self, state: Any) -> list[str]:
        """Expect a mapping."""
        return [] if isinstance(state, dict) else [""]

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Compare names and shapes, and refuse weights whose numbers would change."""
        model = self._runner.model
        self.converted = compatibility.converted(model.state_dict(), state)
        narrower = [each for each in self.converted if each.is_lossy]
        return compatibility.misfits(model, state) + [
            f"{each}: the model has {each.own}, the checkpoint {each.saved}, so the numbers would change; build the "
            f"model with {each.saved}, or {self._host.hints.weights}"
            for each in narrower
        ]


class OptimizersPart(RunnerPart):
    """The states of the torch optimizers."""

    needed = True
    option = "optimizer"

    def state_dict(self) -> Any:
        """Return the state of each optimizer."""
        runner = self._runner
        return runner.optims.collect(lambda optim: without_numpy(optim.optimizer.state_dict()))

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the states, with the options of the checkpoint. `resume.apply` then uses the config's options."""
        runner = self._runner
        for name, optim in runner.optims.items():
            saved = runner.optims.share_of(name, state)
            with self._groups.as_saved(name, optim, checkpoint):
                runner.strategy.checkpoints.load_optimizer(optim.optimizer, saved)

    def malformed(self, state: Any) -> list[str]:
        """Expect groups with options of the kinds that the optimizers of this run have, and in their limits."""
        odd = []
        for name, optim in self._runner.optims.items():
            saved, where = self._runner.optims.share_of(name, state), f"['{name}']" if name else ""
            groups = saved.get("param_groups") if isinstance(saved, Mapping) else None
            if isinstance(groups, list):
                own = [_options(group) for group in without_numpy(optim.optimizer.state_dict()["param_groups"])]
                found = [_options(group) if isinstance(group, dict) else group for group in groups]
                odd += [f"{where}['param_groups']{path}" for path in unlike(found, own) or out_of_limits(found)]
        return odd

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Compare classes, groups and shapes, and whether there is a scaler."""
        optims = self._runner.optims
        return [problem for name, optim in optims.items() for problem in self._misfits(name, optim, state, checkpoint)]

    def _misfits(self, name: str, optim: Optim, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        optims, who = self._runner.optims, f"optim '{name}'" if name else "the optimizer"
        saved = optims.share_of(name, state)
        if not isinstance(saved, Mapping) or "param_groups" not in saved:
            return [f"{who}: the checkpoint has no state for it"]
        then, now = checkpoint["meta"].get("optims", {}).get(name), optim.kinds
        found = []
        if then != now:
            had = ", ".join(map(str, then or ["none"]))
            found.append(f"{who}: this run has {', '.join(now)}, the checkpoint {had}")
        groups = self._groups.find(who, name, optim, checkpoint)
        found += [groups] if isinstance(groups, str) else compatibility.optimizer_misfits(who, groups, saved)
        scaler = optims.share_of(name, checkpoint.get("scaler"))
        if (optim.scaler is None) != (scaler is None):
            here, there = ("no", "one") if optim.scaler is None else ("a", "none")
            found.append(
                f"{who}: this run has {here} gradient scaler, the checkpoint has {there}; the precision has changed"
            )
        return found


class SchedulersPart(RunnerPart):
    """The states of the schedulers."""

    needed = True
    option = "schedulers"

    def state_dict(self) -> Any:
        """Return the states of each optim's schedulers, in order."""
        return self._runner.optims.collect(
            lambda optim: [without_numpy(each.scheduler.state_dict()) for each in optim.schedulers]
        )

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the states."""
        for name, optim in self._runner.optims.items():
            saved = self._runner.optims.share_of(name, state)
            for scheduled, own in zip(optim.schedulers, saved, strict=True):
                groups.load(scheduled.scheduler, own)

    def malformed(self, state: Any) -> list[str]:
        """Expect values of the kinds that the schedulers of this run have, and their counters."""
        odd, optims = unlike(state, self.state_dict()), self._runner.optims
        for name, optim in optims.items() if not odd else ():
            saved, where = optims.share_of(name, state), f"['{name}']" if name else ""
            for number, (scheduled, own) in enumerate(zip(optim.schedulers, saved or (), strict=False)):
                expected = scheduled.scheduler.state_dict()
                if retiming.malformed(own):
                    odd.append(f"{where}[{number}]['retiming']")
                odd += [
                    f"{where}[{number}]['{key}'] (missing)" for key in COUNTERS if key in expected and key not in own
                ]
        return odd


class ScalersPart(RunnerPart):
    """The states of the gradient scalers; None for an optim without one."""

    option = "optimizer"

    def state_dict(self) -> Any:
        """Return the state of each scaler."""
        return self._runner.optims.collect(lambda optim: optim.scaler.state_dict() if optim.scaler else None)

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the states."""
        for name, optim in self._runner.optims.items():
            if optim.scaler is not None:
                optim.scaler.load_state_dict(self._runner.optims.share_of(name, state))

    def malformed(self, state: Any) -> list[str]:
        """Expect numbers, as a scaler has them."""
        optims, odd = self._runner.optims, []
        for name, optim in optims.items():
            saved = optims.share_of(name, state)
            if optim.scaler is None or saved is None:
                continue
            own, where = optim.scaler.state_dict(), f"['{name}']" if name else ""
            if not isinstance(saved, dict):
                odd.append(where)
                continue
            odd += [f"{where}['{key}']" for key in own if key in saved and not _fits_scaler(saved[key], own[key])]
        return odd


class CountersPart(HostPart):
    """The counters of a host and its requests."""

    needed = True

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, and the requests that survive a kill."""
        state: dict[str, Any] = self._host.position.state_dict() | self._host.requests.state_dict()
        return state

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the counters and the requests."""
        self._host.position.load_state_dict(state)
        self._host.requests.load_state_dict(state)

    def malformed(self, state: Any) -> list[str]:
        """Expect numbers and texts of the right types."""
        return malformed_position(state)


class PositionPart(RunnerPart, CountersPart):
    """The position of the run, to the batch and the micro-batch, and its requests."""

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, the requests that survive a kill, and open windows."""
        runner, state = self._runner, super().state_dict()
        state["updates"] = runner.optims.collect(lambda optim: optim.updates)
        if any(optim.micro for optim in runner.optims.values()):  # see `Optims.accumulating`
            state["windows"] = runner.optims.collect(lambda optim: optim.open_window())
        if data := runner.loading.data | runner.loading.replaced_data():  # also before it was resumed
            state["data"] = data
        if runner.position.batch:
            state["data_of_pass"] = runner.loading.data_of_pass
        return state

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Move the run to the saved position."""
        runner = self._runner
        super().load_state_dict(state, checkpoint)
        runner.loading.data, runner.loading.data_of_saved_pass = state.get("data", {}), state.get("data_of_pass")
        for name, optim in runner.optims.items():
            optim.updates = runner.optims.share_of(name, state.get("updates")) or 0
            if window := runner.optims.share_of(name, state.get("windows")):
                with self._groups.as_saved(name, optim, checkpoint):
                    optim.reopen_window(window)

    def malformed(self, state: Any) -> list[str]:
        """Expect numbers and texts of the right types."""
        odd, optims = super().malformed(state), self._runner.optims
        odd = odd or [f"['{name}']" for name in ("data", "data_of_pass") if is_malformed(state.get(name, {}))]
        if odd or not optims:
            return odd
        if "updates" not in state:
            return ["['updates'] (missing)"]
        saved = state["updates"]
        if optims.are_named:
            return [] if isinstance(saved, dict) and all(map(is_count, saved.values())) else ["['updates']"]
        return [] if is_count(saved) else ["['updates']"]

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Check that the loader still has the batch that the run continues with, after the same samples."""
        length, batch = self._runner.train_loop.length, state.get("batch", 0)
        other = self._other_shares(state, checkpoint["meta"])
        if other or length is None or batch <= length or state.get("data"):
            return other
        return [f"the data: the checkpoint is at batch {batch} of its epoch, but the loader now has only {length}"]

    def _other_shares(self, state: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
        """Refuse another number of processes inside an epoch, unless all of them together take the same batches."""
        now = self._runner.contents.facts()
        if then.get("world_size", 1) == now["world_size"] or not (state.get("batch") or "windows" in state):
            return []
        by = compatibility.processes(then["world_size"])
        saved = f"the data: the checkpoint was saved by {by} in the middle of an epoch"
        if state.get("data"):
            return [f"{saved}, after its data was replaced, so that many have to resume it"]
        if "windows" in state:
            return [f"{saved} and of an accumulation window, so that many have to resume it"]
        if then.get("batch_size") is None or now["batch_size"] is None:
            return [
                f"{saved}, and only a plain DataLoader or a ResumableLoader can be divided differently there; start as "
                "many processes, or resume from a checkpoint at the end of an epoch"
            ]
        if then["batch_size"] == now["batch_size"]:
            return []
        each = then["batch_size"] / now["world_size"]
        return [
            f"{saved}, with batches of {then['batch_size']} samples in all processes together; here they have "
            f"{now['batch_size']}, so samples would be left out or repeated; "
            + (f"set batch_size to {each:.0f}, or " if each.is_integer() else "")
            + "resume from a checkpoint at the end of an epoch"
        ]


class LoaderPart(RunnerPart):
    """The state of a loader that has one: what it has read in this process."""

    per_rank = True
    loads_without_state = True

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the loader; None before its first pass."""
        return self._runner.batches.loader_state() if self._runner.batches is not None else None

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Keep the state for the first pass of the resumed run. It is of no use to another number of processes."""
        if checkpoint["meta"].get("world_size", 1) == self._runner.strategy.world_size:
            self._runner.loading.resume_loader(state)

    def malformed(self, state: Any) -> list[str]:
        """Expect a mapping."""
        return [] if state is None or isinstance(state, dict) else [""]


def malformed_position(state: Any) -> list[str]:
    """Return the entries of a saved position that are missing or have the wrong type."""
    if not isinstance(state, dict):
        return [""]
    known = Position().state_dict() | Requests().state_dict()
    odd = [name for name, value in state.items() if name in known and type(value) is not type(known[name])]
    counts = ("epoch", "iter", "batch", "validations")
    odd += [name for name in counts if name not in odd and not is_count(state.get(name, 0))]
    usual = state.get("usual_weight", 0.0)
    odd += ["usual_weight"] * ("usual_weight" not in odd and not (is_finite(usual) and usual >= 0))
    missing = [f"['{name}'] (missing)" for name in ("epoch", "iter", "batch") if name not in state]
    return [*(f"['{name}']" for name in odd), *missing]


def _fits_scaler(saved: Any, own: float) -> bool:
    """Return whether a saved number can be one of a gradient scaler, whose counters have 32 bits."""
    if type(own) is int:
        return type(saved) is int and 0 <= saved < 1 << 31
    return is_finite(saved) and saved >= 0 and (type(saved) is float or saved < 1 << 63)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a parameter group."""
    return {name: value for name, value in group.items() if name != "params"}
