"""ProfilerHook with MMEngine's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import profiler


@with_original_signatures
class ProfilerHook(profiler.ProfilerHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Profiles the first epochs or iterations of training with torch.profiler.

    Args:
        by_epoch: Count epochs instead of iterations.
        profile_times: Profile the first `profile_times` epochs or iterations.
        activity_with_cpu: Profile CPU activity.
        activity_with_cuda: Profile CUDA activity.
        schedule: Arguments for torch.profiler.schedule, which selects the iterations to record.
        on_trace_ready: Handles a finished trace: a function, or a dict with `type` `log_trace` or `tb_trace`.
        record_shapes: Record the input shapes.
        profile_memory: Record memory allocations and releases.
        with_stack: Record the source line of each operation.
        with_flops: Estimate floating-point operations.
        json_trace_path: The file for the Chrome trace, relative to the run's folder.
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
