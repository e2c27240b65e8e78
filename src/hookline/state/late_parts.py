"""The parts of a run that are loaded late, where it continues: scopes and `before_` points may change them before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from hookline.checkpoint.shards import has_shards
from hookline.common import rng
from hookline.common.checks import is_finite
from hookline.common.rng import mix
from hookline.errors import blame
from hookline.plan.entry import is_custom
from hookline.state import hook_states
from hookline.state.contents import HostPart
from hookline.state.parts import RunnerPart


class HubPart(RunnerPart):
    """Histories and facts. All processes load the main process's, but each has its own values of the last steps."""

    needed = True
    late = True
    per_rank = True

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the hub; in other processes than the main one, only what was not recorded yet."""
        hub = self._runner.hub
        return hub.state_dict() if self._runner.strategy.is_main else hub.newest_state()

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the state of the hub."""
        self._runner.hub.load_state_dict(checkpoint["message_hub"])
        if not self._runner.strategy.is_main:
            self._runner.hub.load_newest_state(state)

    def malformed(self, state: Any) -> list[str]:
        """Expect histories of numbers."""
        if not isinstance(state, dict):
            return [""]
        odd = [f"['{name}']" for name in ("scalars", "info") if not isinstance(state.get(name), dict)]
        scalars = state.get("scalars")
        for name, saved in scalars.items() if isinstance(scalars, dict) else ():
            if not _is_history(saved):
                odd.append(f"['scalars']['{name}']")
        return odd


def _is_history(saved: Any) -> bool:
    """Return whether a saved history has numbers, and says how many of them are new."""
    fresh = saved.get("fresh") if isinstance(saved, dict) else None
    if type(fresh) is not int or fresh < 0:
        return False
    values, weights = saved.get("values"), saved.get("weights", {})
    if isinstance(values, Tensor):
        fits = values.ndim == 1 and values.is_floating_point()
    else:
        fits = isinstance(values, list) and all(isinstance(value, (int, float)) for value in values)
    if not (fits and isinstance(weights, dict)):
        return False
    count = len(saved["values"])
    return all(type(at) is int and 0 <= at < count and _is_weight(it) for at, it in weights.items())


def _is_weight(value: Any) -> bool:
    return is_finite(value) and value >= 0


class WritersPart(RunnerPart):
    """The position of each writer in its records."""

    late = True
    loads_without_state = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the writers."""
        return self._runner.writers.state_dict()

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Let each writer continue at its saved position. A writer without a state starts from scratch."""
        self._runner.writers.load_state_dict(state or {}, self._runner.position.iter)


class MetricsPart(RunnerPart):
    """The states of metrics that outlive an evaluation, by stage and name."""

    late = True
    loads_without_state = True
    runs_user_code = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of these metrics."""
        return {name: metric.state_dict() for name, metric in self._metrics()}

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore these metrics, and report those without a state."""
        saved, fresh = state or {}, []
        for name, metric in self._metrics():
            if name not in saved:
                fresh.append(name)
                continue
            try:
                metric.load_state_dict(saved[name])
            except Exception as error:
                blame(error, f"in the metric {name}, while restoring its state from a checkpoint")
                raise
        if fresh:
            self._runner.terminal.say(
                f"not in the checkpoint, so starting from scratch: {', '.join(f'the metric {name}' for name in fresh)}"
            )

    def malformed(self, state: Any) -> list[str]:
        """Expect a mapping."""
        return [] if isinstance(state, dict) else [""]

    def _metrics(self) -> Iterator[tuple[str, Any]]:
        for stage, loops in (("val", self._runner.val_loops), ("test", self._runner.test_loops)):
            for loop, metrics in loops.items():
                for name, metric in metrics.metrics.memories().items():
                    yield "/".join(each for each in (stage, loop, name) if each), metric


class HooksPart(HostPart):
    """The states of the hooks, by name."""

    needed = True
    late = True
    runs_user_code = True
    per_rank = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all hooks that have one; in other processes than the main one, of those that need it."""
        entries, strategy = list(self._hooks()), self._host.strategy
        per_rank = [entry for entry in entries if getattr(entry.hook, "state_per_rank", False)]
        if not strategy.checkpoints.are_sharded:
            return hook_states.collect(entries if strategy.is_main else per_rank)
        states = hook_states.collect(entries)  # each process has a part of sharded tensors
        hook_states.refuse_shards_per_rank(per_rank, states)
        if strategy.is_main:
            return states
        names = {entry.name for entry in per_rank}
        return {name: state for name, state in states.items() if name in names or has_shards(state)}

    def _hooks(self) -> Iterable[hook_states.Named]:
        return self._host.plan  # type: ignore[no-any-return]  # given to the constructor

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state of every hook, and report states without a hook and hooks without a state."""
        saved = checkpoint["meta"].get("hooks", ())
        states, was_reported = {**checkpoint["hooks"], **(state or {})}, self._host.loading.was_reported
        hook_states.restore(
            *(self._hooks(), states, saved, self._host.terminal.say),
            is_reported=lambda name: was_reported("hooks", name),
        )

    def malformed(self, state: Any) -> list[str]:
        """Expect a mapping for every hook of hookline. Another hook may have any state that it loads again."""
        if not isinstance(state, dict):
            return [""]
        names = [entry.name for entry in self._host.plan if not is_custom(entry.hook)]
        return [f"[{name!r}]" for name in names if not isinstance(state.get(name, {}), dict)]


class RandomPart(HostPart):
    """The random generators. They are loaded last, because the other parts may draw random numbers."""

    needed = True
    late = True
    per_rank = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all generators."""
        return rng.state()

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the generators. A process that was not there when the state was saved seeds them, if it knows how."""
        if state is not None:
            rng.restore(state)
        elif (seed := checkpoint["meta"].get("seed")) is not None:
            rng.seed_everything(mix(seed, self._host.strategy.rank, self._host.position.iter))

    def malformed(self, state: Any) -> list[str]:
        """Expect the states of known generators."""
        return [f"['{name}']" for name in rng.malformed(state)] if isinstance(state, dict) else [""]
