"""Options of a run that make its steps faster: compiling, the memory format, the number of threads, early transfers.

The math of a step stays the same. With another number of threads, another memory format or compiled code, sums are
computed in another order, so the last bits of the results may differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn

from hookline.common import rng
from hookline.common.checks import check_int
from hookline.common.durations import clock
from hookline.common.modes import in_mode
from hookline.common.torch_private import compiled_from
from hookline.common.untouched import buffers_restored, gradients_restored, modules_untouched, untouched
from hookline.data.batches import Batches
from hookline.engine.steps import as_outputs
from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from hookline.engine.run import Run

log = logging.getLogger("hookline")

Threads = int | Literal["auto"] | None

#: The parameters of torch.compile that `compile` takes.
COMPILE_OPTIONS = ("mode", "backend", "fullgraph", "dynamic", "options")
#: More threads are chosen only if a step takes less than this share of its time with fewer.
WORTH_IT = 0.95
#: A step is measured this many times with each number of threads, after one that does not count.
TIMES = 5
#: The seconds after which no further step is measured with the same number of threads.
ENOUGH = 0.5


class Acceleration:
    """The options of one run.

    Args:
        compile: Compile the model with torch.compile: True, or a mapping with its parameters.
        channels_last: Keep the weights of convolutions in the memory format `channels_last`.
        threads: How many threads torch computes with on the CPU: a number, or `auto` for a measured choice. None
            leaves torch's own choice.
        prefetch: Move the next batch to the device while the current one is computed.
    """

    def __init__(
        self,
        compile: bool | Mapping[str, Any] = False,
        channels_last: bool = False,
        threads: Threads = None,
        prefetch: bool = True,
    ) -> None:
        if not isinstance(compile, (bool, Mapping)):
            raise ConfigError(f"compile must be true, false, or parameters of torch.compile, not {compile!r}")
        for key in compile if isinstance(compile, Mapping) else ():
            if key not in COMPILE_OPTIONS:
                raise ConfigError(f"compile: unknown parameter '{key}'; {did_you_mean(str(key), COMPILE_OPTIONS)}")
        for name, flag in (("channels_last", channels_last), ("prefetch", prefetch)):
            if not isinstance(flag, bool):
                raise ConfigError(f"{name} must be true or false, not {flag!r}")
        if threads is not None and threads != "auto":
            if isinstance(threads, str):
                raise ConfigError(f"threads must be a number or 'auto', not {threads!r}")
            check_int("threads", threads, least=1)
        self.compile = compile
        self.channels_last = channels_last
        self.threads = threads
        self.prefetch = prefetch
        #: The number of threads that a checkpoint was written with, if the run continues from one.
        self._threads_before: int | None = None
        #: True while the run computes.
        self._active = False

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model as the step calls it, compiled if that is wanted."""
        if self.channels_last:
            if not any(parameter.dim() == 4 for parameter in model.parameters()):
                raise ConfigError(
                    f"channels_last has no effect on {type(model).__name__}: it has no weight with four dimensions, as "
                    "a Conv2d has; remove it"
                )
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks this form
        if self.compile is False:
            return model
        if compiled_from(model) is not None:
            raise ConfigError("compile: the model is already compiled; remove compile, or pass the module itself")
        options = dict(self.compile) if isinstance(self.compile, Mapping) else {}
        try:
            compiled: Any = torch.compile(model, **options)
        except Exception as error:  # an unknown backend or mode
            raise ConfigError(f"compile: torch.compile refuses {options}: {error}") from error
        return cast("nn.Module", compiled)

    # -- threads

    @contextmanager
    def threads_set(self) -> Iterator[None]:
        """Compute with the chosen number of threads, and restore the process's number afterwards."""
        before, self._active = torch.get_num_threads(), True
        if isinstance(self.threads, int):
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            self._active = False
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)

    def continue_from(self, meta: Mapping[str, Any]) -> None:
        """Use the number of threads of a checkpoint that is resumed, so that the run computes the same bits."""
        found = meta.get("threads")
        if self.threads == "auto" and self._active and isinstance(found, int) and found > 0:
            self._threads_before = found
            torch.set_num_threads(found)

    def choose_threads(self, runner: Run) -> None:
        """With `auto`, measure a step with several numbers of threads, and use the fastest. Report the choice."""
        if self.threads != "auto":
            return
        now = torch.get_num_threads()
        reason = self._why_not_measured(runner, now)
        if not reason:
            try:
                measured = measure(runner, now)
            except Exception as error:
                torch.set_num_threads(now)
                reason = f"a step before training failed: {type(error).__name__}: {error}"
        if reason:
            runner.terminal.say(f"threads: {now} ({reason})")
            return
        fastest = min(measured.values())
        chosen = min(number for number, seconds in measured.items() if seconds * WORTH_IT <= fastest)
        torch.set_num_threads(chosen)
        times = ", ".join(f"{1e3 * seconds:.3g} ms with {number}" for number, seconds in measured.items())
        runner.terminal.say(f"threads: {chosen} (measured: a step takes {times})")

    def _why_not_measured(self, runner: Run, now: int) -> str:
        if self._threads_before is not None:
            return "as in the checkpoint"
        if not runner.compute.on_cpu:
            return f"not measured, because the run computes on {runner.device}"
        if not runner.strategy.acts_alone:
            return "not measured, because several processes train together"
        if now == 1:
            return "torch has no more"
        if runner.train_loop.updates_itself:
            return "not measured, because the step updates the weights itself"
        if isinstance(runner.train_loop.dataloader, Iterator):
            return "not measured, because the loader yields every batch only once"
        return ""


def measure(runner: Run, most: int) -> dict[int, float]:
    """Return the seconds of a forward and backward pass by number of threads. The run is as before afterwards."""
    loop = runner.train_loop
    with ExitStack() as restoring:
        restoring.enter_context(rng.preserved())
        restoring.enter_context(modules_untouched(runner.model))
        restoring.enter_context(buffers_restored(runner.model))
        restoring.enter_context(gradients_restored(runner.model))
        restoring.enter_context(in_mode(runner.model, training=True))
        limit = None if loop.skip else 1  # without a known length, a second batch would be read
        with untouched(loop.dataloader):
            batch, _ = next(iter(Batches(loop.dataloader, limit, seed=runner.seed, once=True, skip=loop.skip)))

        def step() -> None:
            with runner.autocast():
                loss = as_outputs(loop.step(runner.wrapped, batch))["loss"]
            loss.backward()
            runner.model.zero_grad()

        found = {}
        for number in dict.fromkeys([*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]):
            torch.set_num_threads(number)
            found[number] = least_seconds(step)
    return found


def least_seconds(step: Callable[[], None]) -> float:
    """Return the least time of several calls, after one that does not count."""
    step()
    began = clock()
    least = float("inf")
    for _ in range(TIMES):
        start = clock()
        step()
        ended = clock()
        least = min(least, ended - start)
        if ended - began > ENOUGH:
            break
    return least
