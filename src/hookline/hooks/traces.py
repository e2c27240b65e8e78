"""The output of ProfilerHook's traces: a table, a Chrome trace, a trace for TensorBoard, or a user's function."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_choice, check_int
from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from hookline.hooks.profiling import Profile
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")

# The settings of `on_trace_ready`, by type.
SETTINGS = {"log_trace": ("sort_by", "row_limit"), "tb_trace": ("dir_name",)}
_UNITS = ("cpu_{}", "self_cpu_{}", "cuda_{}", "self_cuda_{}")
SORTED_BY = (
    "count",
    "cpu_time",
    "cuda_time",
    *(by.format(what) for what in ("time_total", "memory_usage") for by in _UNITS),
)
# The default file of a trace.
DEFAULT_PATH = "profile.json"


class Traces:
    """The outputs of a trace. Without any option, these are a table and `profile.json`.

    Args:
        on_trace_ready: As for ProfilerHook.
        json_trace_path: As for ProfilerHook.
    """

    def __init__(self, on_trace_ready: Any, json_trace_path: str | None) -> None:
        if on_trace_ready is None and json_trace_path is None:
            on_trace_ready, json_trace_path = "log_trace", DEFAULT_PATH
        self.on_trace_ready = _check_handler(on_trace_ready)
        self.json_trace_path = json_trace_path

    def output(self, runner: Runner, what: str, profile: Profile) -> None:
        """Output a trace. If it cannot be written, warn."""
        for write in (self._call_handler, self._write_json):
            try:
                write(runner, what, profile)
            except OSError as error:
                log.warning("ProfilerHook: the trace of %s cannot be written: %s; the run continues", what, error)

    def _call_handler(self, runner: Runner, what: str, profile: Profile) -> None:
        handler = self.on_trace_ready
        if handler is None:
            return
        if callable(handler):
            handler(profile)
        elif handler["type"] == "log_trace":
            sort_by, row_limit = handler.get("sort_by", "self_cpu_time_total"), handler.get("row_limit", 20)
            table = profile.key_averages().table(sort_by=sort_by, row_limit=row_limit)
            runner.terminal.say(f"ProfilerHook: {what}, sorted by {sort_by}\n{table}")
        else:
            from torch.profiler import tensorboard_trace_handler

            folder = runner.work_dir / handler.get("dir_name", "tensorboard")
            folder.mkdir(parents=True, exist_ok=True)
            tensorboard_trace_handler(str(folder))(profile)
            runner.terminal.say(f"ProfilerHook: {what}: the trace for TensorBoard is in {folder}")

    def _write_json(self, runner: Runner, what: str, profile: Profile) -> None:
        if self.json_trace_path is None:
            return
        rank = f"_rank{runner.rank}" if runner.world_size > 1 else ""
        path = _free_path(runner.work_dir / self.json_trace_path, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.export_chrome_trace(str(path))
        runner.terminal.say(f"ProfilerHook: {what}: the trace is in {path}")


def _free_path(path: Path, rank: str) -> Path:
    """Return the path, with the next free number after its name if the file already exists."""
    ending = next((ending for ending in (".json.gz", ".json") if path.name.endswith(ending)), path.suffix)
    stem = path.name.removesuffix(ending) + rank
    names = (f"{stem}{'' if number == 1 else f'_{number}'}{ending}" for number in count(1))
    return next(free for name in names if not os.path.lexists(free := path.with_name(name)))


def _check_handler(handler: Any) -> Callable[..., Any] | dict[str, Any] | None:
    if handler is None or (callable(handler) and not isinstance(handler, (str, Mapping))):
        return handler
    settings = {"type": handler} if isinstance(handler, str) else dict(handler) if isinstance(handler, Mapping) else {}
    if not settings:
        raise ConfigError(
            "ProfilerHook: on_trace_ready must be log_trace, tb_trace, a mapping with one of them as its type, or a "
            f"function that takes the profiler, not {handler!r}"
        )
    kind = settings.get("type")
    check_choice("ProfilerHook: on_trace_ready: type", kind, SETTINGS)
    for name in settings:
        if name != "type" and name not in SETTINGS[str(kind)]:
            hint = did_you_mean(str(name), SETTINGS[str(kind)])
            raise ConfigError(f"ProfilerHook: on_trace_ready: unknown setting '{name}' of {kind}; {hint}")
    if "row_limit" in settings:
        check_int("ProfilerHook: on_trace_ready: row_limit", settings["row_limit"], least=1)
    if "sort_by" in settings:
        check_choice("ProfilerHook: on_trace_ready: sort_by", settings["sort_by"], SORTED_BY)
    if not isinstance(settings.get("dir_name", ""), str):
        raise ConfigError(f"ProfilerHook: on_trace_ready: dir_name must be a folder, not {settings['dir_name']!r}")
    return settings
