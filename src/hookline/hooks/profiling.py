"""A torch profiler whose trace can be written more than once, and is never left incomplete.

torch's own profiler writes a trace only once, silently leaves half a file if the disk is full, and crashes the process
if two of them are active.
"""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from torch import profiler

from hookline.common.files import regular, replacing
from hookline.common.torch_private import is_profiling
from hookline.errors import HookError

#: The prefix of an iteration's label. torch's own tools know it: a table has one row for all of them.
LABEL = "ProfilerStep#"

# The profilers of this module that are active. torch does not report one that waits.
_active: set[Profile] = set()

RECORDING = (profiler.ProfilerAction.RECORD, profiler.ProfilerAction.RECORD_AND_SAVE)


class Profile(profiler.profile):
    """A profiler that starts when it is created. `end` stops it.

    Its trace can be written more than once. An OSError explains why it cannot be written.

    Args:
        activities: The activities to profile.
        schedule: The steps to record, as for torch.profiler.schedule. If empty, all of them.
        steps: The number of steps of the schedule that are already over.
        options: Further options of torch.profiler.profile.
        ready: Called with the profiler when a trace is complete.
    """

    def __init__(
        self,
        activities: Iterable[profiler.ProfilerActivity],
        schedule: Mapping[str, int],
        steps: int,
        options: Mapping[str, Any],
        ready: Callable[[Profile], None],
    ) -> None:
        #: The first file that the current trace was written to.
        self.written: Path | None = None
        self._ready = ready
        when = _schedule(schedule, steps) if schedule else None
        super().__init__(activities=activities, schedule=when, on_trace_ready=self._is_ready, **options)
        self.record_steps = False  # torch would label steps by its own count, which starts at 0
        _active.add(self)
        with _no_torch_warnings():
            self.start()

    def _is_ready(self, _: profiler.profile) -> None:
        self.written = None
        self._ready(self)

    def step(self) -> None:
        """Begin the next step."""
        with _no_torch_warnings():
            super().step()

    def end(self) -> None:
        """Stop the profiler. This completes the current trace."""
        _active.discard(self)
        with _no_torch_warnings():
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch has no annotations here

    def label(self, number: int) -> AbstractContextManager[Any]:
        """Return the context manager that labels the iteration with this number."""
        return profiler.record_function(f"{LABEL}{number}")

    @property
    def records(self) -> bool:
        """Return whether the current step is part of a trace."""
        return self.current_action in RECORDING

    def export_chrome_trace(self, path: str, *arguments: Any, **options: Any) -> None:
        """Write the trace, compressed if the name ends with `.gz`. Raise an OSError if that fails."""
        target = Path(path)
        if self.written is None:
            part = target.with_name(f".{target.name}.part")
            part.unlink(missing_ok=True)  # torch would follow a link
            try:
                super().export_chrome_trace(str(part), *arguments, **options)
                _refuse_incomplete(part)
                if target.suffix == ".gz":
                    _copy(part, target)
                else:
                    os.replace(part, target)
            finally:
                for left_over in (part, part.with_name(f"{part.name}.tmp")):
                    left_over.unlink(missing_ok=True)
            self.written = target
        elif target != self.written:
            _copy(self.written, target)


@contextmanager
def _no_torch_warnings() -> Iterator[None]:
    """Hide torch's warnings about intended settings: no warmup, and a separate table for each cycle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Profiler won't be using warmup")
        warnings.filterwarnings("ignore", ".*Profiler clears events at the end of each cycle")
        yield


def _refuse_incomplete(path: Path) -> None:
    """Refuse an incomplete trace. torch reports no error, but a complete trace ends with a brace."""
    if not path.exists():
        raise OSError(f"torch could not write to {path.parent}: the disk may be full")
    with open(path, "rb", opener=regular) as file:
        file.seek(max(0, path.stat().st_size - 16))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"torch wrote only a part of the trace to {path.parent}: the disk may be full")


def _copy(source: Path, target: Path) -> None:
    with (
        open(source, "rb", opener=regular) as compressed,
        replacing(target) as file,
        _unzipped(compressed, source, "rb") as read,
        _unzipped(file, target, "wb") as write,
    ):
        shutil.copyfileobj(read, write)


def _unzipped(file: IO[bytes], path: Path, mode: str) -> AbstractContextManager[Any]:
    """Return a context with the open file; if its name ends with .gz, it is read or written with compression."""
    return gzip.open(file, mode) if path.suffix == ".gz" else nullcontext(file)


def _schedule(schedule: Mapping[str, int], steps: int) -> Callable[[int], profiler.ProfilerAction]:
    """Return torch's schedule for a profiler that starts in the middle of it."""
    with _no_torch_warnings():
        whole = profiler.schedule(**{"wait": 0, "warmup": 0, **schedule})
    return lambda step: whole(step + steps)


def refuse_another(thoroughly: bool = True) -> None:
    """Refuse to start while another profiler is active, because two at once crash the process without a message.

    torch only knows whether a profiler records. One that is in the `wait` or `warmup` phase of its schedule is found by
    searching all objects of the process. This takes a moment, and is only done if `thoroughly` is set.
    """
    if _active or is_profiling() or (thoroughly and any(map(_is_active, gc.get_objects()))):
        raise HookError(
            "ProfilerHook: another torch profiler is active in this process, and torch allows one at a time; stop "
            "the other one first, or remove this hook"
        )


def _is_active(thing: object) -> bool:
    return issubclass(type(thing), profiler.profile) and getattr(thing, "step_rec_fn", None) is not None
