"""AutogradProfilerHook: one profiler trace per selected iteration."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hookline.common.checks import check_int
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.periods.elsewhere import check_path, resolve_path
from hookline.errors import ConfigError

log = logging.getLogger("hookline")


class AutogradProfilerHook(HookBase):
    """Profiles single iterations and writes one Chrome trace for each: `profiler-trace-iter<n>.json`.

    If a trace cannot be written, the hook logs a warning and the run continues.

    Args:
        enable_predicate: A function that takes the trainer and returns whether to profile the iteration that begins.
            It replaces `begin` and `end`.
        output_dir: The folder of the traces. A bare name is a folder in `work_dir`. The default is `profiler` there.
        use_cuda: Also profile CUDA, if it is available.
        begin: The number of finished iterations after which profiling starts.
        end: The number of finished iterations after which profiling stops.
    """

    def __init__(
        self,
        enable_predicate: Callable[[Any], bool] | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        use_cuda: bool = True,
        begin: int = 10,
        end: int = 20,
    ) -> None:
        if enable_predicate is not None and not callable(enable_predicate):
            raise ConfigError(f"AutogradProfilerHook: enable_predicate must be a function, not {enable_predicate!r}")
        if output_dir is not None:
            check_path("AutogradProfilerHook: output_dir", output_dir, of_file=False)
        check_int("AutogradProfilerHook: begin", begin, least=0)
        check_int("AutogradProfilerHook: end", end, least=begin + 1)
        self._predicate = enable_predicate or (lambda trainer: begin <= trainer.iter < end)
        self._output_dir = output_dir
        self._use_cuda = use_cuda

    def around_train_iter(self, runner: Any, batch_idx: int) -> Iterator[None]:
        """Profile one iteration with its hooks and its update. The engine sets its counters only inside the scope."""
        trainer = self.trainer
        trainer.epoch, trainer.iter, trainer.inner_iter = runner.epoch, runner.iter, batch_idx
        if not (runner.strategy.is_main and self._predicate(trainer)):
            yield
            return
        from hookline.hooks.profiling import Profile, refuse_another

        refuse_another(thoroughly=False)
        profile = Profile(self._activities(), {}, 0, {}, lambda profile: self._write(profile, trainer))
        try:
            with profile.label(trainer.iter + 1):
                yield
        finally:
            profile.end()

    def _activities(self) -> list[Any]:
        import torch
        from torch.profiler import ProfilerActivity

        return [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (self._use_cuda and torch.cuda.is_available())

    def _write(self, profile: Any, trainer: Any) -> None:
        folder = resolve_path(self._output_dir or "profiler", Path(trainer.work_dir))
        path = folder / f"profiler-trace-iter{trainer.iter}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            profile.export_chrome_trace(str(path))
        except OSError as error:
            log.warning("AutogradProfilerHook: cannot write %s: %s; the run continues", path, error)
