"""ProfilerHook with MMEngine's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import profiler


@as_in_the_original
class ProfilerHook(profiler.ProfilerHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Profiles the first epochs or iterations of training with torch.profiler.

    Args:
        by_epoch: Count epochs, or iterations.
        profile_times: Profile the first so many.
        activity_with_cpu: See what the CPU does.
        activity_with_cuda: See what CUDA does.
        schedule: Which iterations of those to record, as torch.profiler.schedule takes it.
        on_trace_ready: What to do with a trace: a function, or a dict of `type` `log_trace` or `tb_trace`.
        record_shapes: Record the shapes of inputs.
        profile_memory: Record how much memory is allocated and freed.
        with_stack: Record the line of source of each operation.
        with_flops: Estimate floating-point operations.
        json_trace_path: A file for the Chrome trace, relative to the run's folder.
    """

    priority = "VERY_LOW"

    def __init__(
        self,
        *,
        by_epoch: bool = True,
        profile_times: int = 1,
        activity_with_cpu: bool = True,
        activity_with_cuda: bool = False,
        schedule: dict[str, int] | None = None,
        on_trace_ready: Callable[..., Any] | dict[str, Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
    ) -> None:
        super().__init__(
            by_epoch=by_epoch,
            profile_times=profile_times,
            activity_with_cpu=activity_with_cpu,
            activity_with_cuda=activity_with_cuda,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            json_trace_path=json_trace_path,
        )
