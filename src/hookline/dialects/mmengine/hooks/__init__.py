"""The built-in hooks with MMEngine's names, parameters and defaults, implemented by hookline's own hooks."""

from hookline.dialects.mmengine.hooks.checkpoint_hook import CheckpointHook
from hookline.dialects.mmengine.hooks.early_stopping_hook import EarlyStoppingHook
from hookline.dialects.mmengine.hooks.ema_hook import EMAHook
from hookline.dialects.mmengine.hooks.empty_cache_hook import EmptyCacheHook
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.iter_timer_hook import IterTimerHook
from hookline.dialects.mmengine.hooks.logger_hook import LoggerHook
from hookline.dialects.mmengine.hooks.naive_visualization_hook import NaiveVisualizationHook
from hookline.dialects.mmengine.hooks.param_scheduler_hook import ParamSchedulerHook
from hookline.dialects.mmengine.hooks.profiler_hook import ProfilerHook
from hookline.dialects.mmengine.hooks.runtime_info_hook import RuntimeInfoHook
from hookline.dialects.mmengine.hooks.sampler_seed_hook import DistSamplerSeedHook
from hookline.dialects.mmengine.hooks.sync_buffer_hook import SyncBuffersHook
from hookline.dialects.mmengine.hooks.test_time_aug_hook import PrepareTTAHook
from hookline.dialects.mmengine.not_included import not_included

__all__ = [
    "CheckpointHook",
    "DistSamplerSeedHook",
    "EMAHook",
    "EarlyStoppingHook",
    "EmptyCacheHook",
    "Hook",
    "IterTimerHook",
    "LoggerHook",
    "NaiveVisualizationHook",
    "ParamSchedulerHook",
    "PrepareTTAHook",
    "ProfilerHook",
    "RuntimeInfoHook",
    "SyncBuffersHook",
]
not_included(globals(), "NPUProfilerHook")
