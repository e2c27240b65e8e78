"""A torch profiler that ends well: its trace is written whole or not at all, and as often as asked.

torch's own writes a trace once only, leaves half a file behind when the disk is full without a word, and brings the
process down when two of them are active.
"""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import profiler

from hookline.errors import HookError

#: What the label of an iteration begins with. torch's own tools know it: a table has one row for all of them.
LABEL = "ProfilerStep#"

# Those of this module that have begun and not ended; torch does not tell of one that waits.
_active: set[Profile] = set()

RECORDING = (profiler.ProfilerAction.RECORD, profiler.ProfilerAction.RECORD_AND_SAVE)


class Profile(profiler.profile):
    """A profiler that has begun; `end` ends it. Its trace can be written more than once, or says why it cannot be.

    Args:
        activities: What to look at.
        schedule: Which steps to record, as torch.profiler.schedule takes it; without one, all of them.
        steps: How many steps of the schedule are over already.
        options: More of what torch.profiler.profile takes.
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
        #: Where the current trace was written first.
        self.written: Path | None = None
        self._ready = ready
        when = _schedule(schedule, steps) if schedule else None
        super().__init__(activities=activities, schedule=when, on_trace_ready=self._is_ready, **options)
        self.record_steps = False  # torch would label steps by its own count, which begins at 0
        _active.add(self)
        with _quiet():
            self.start()

    def _is_ready(self, _: profiler.profile) -> None:
        self.written = None
        self._ready(self)

    def step(self) -> None:
        """The next step begins."""
        with _quiet():
            super().step()

    def end(self) -> None:
        """End it; a trace that is under way is complete with that."""
        _active.discard(self)
        with _quiet():
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch has no annotations here

    def label(self, number: int) -> AbstractContextManager[Any]:
        """What the iteration of this number is to be surrounded with."""
        return profiler.record_function(f"{LABEL}{number}")

    @property
    def records(self) -> bool:
        """Whether what happens now goes into a trace."""
        return self.current_action in RECORDING

    def export_chrome_trace(self, path: str, *arguments: Any, **options: Any) -> None:
        """Write the trace, compressed if the name ends with `.gz`; an OSError when that cannot be done."""
        target = Path(path)
        if self.written is None:
            part = target.with_name(f".{target.name}.part")
            try:
                super().export_chrome_trace(str(part), *arguments, **options)
                _refuse_half(part)
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
def _quiet() -> Iterator[None]:
    """Without torch's warnings about what is meant to be: no warm-up, and a table of each cycle for itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Profiler won't be using warmup")
        warnings.filterwarnings("ignore", ".*Profiler clears events at the end of each cycle")
        yield


def _refuse_half(path: Path) -> None:
    """Nothing is said when a trace could not be written to its end, but it ends with a brace."""
    if not path.exists():
        raise OSError(f"torch could not write {path.parent}: the disk may be full")
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 16))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"torch wrote only a part of it to {path.parent}: the disk may be full")


def _copy(source: Path, target: Path) -> None:
    with _open(source, "rb") as read, _open(target, "wb") as write:
        shutil.copyfileobj(read, write)


def _open(path: Path, mode: str) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, mode) if path.suffix == ".gz" else open(path, mode))


def _schedule(given: Mapping[str, int], steps: int) -> Callable[[int], profiler.ProfilerAction]:
    """The schedule of torch for a profiler that begins in the middle of it."""
    with _quiet():
        whole = profiler.schedule(**{"wait": 0, "warmup": 0, **given})
    return lambda step: whole(step + steps)


def refuse_another(thoroughly: bool = True) -> None:
    """Refuse to begin while a profiler of somebody else is active; two at once end the process without a message.

    torch tells only whether one records. One that is in the `wait` or `warmup` of its schedule is found, if that has to
    be thorough, among all objects of the process, which takes a moment.
    """
    if _active or torch._C._autograd._profiler_enabled() or (thoroughly and any(map(_waits, gc.get_objects()))):
        raise HookError(
            "ProfilerHook: another torch profiler is active in this process, and torch allows one at a time; end that "
            "one first, or leave this hook out"
        )


def _waits(thing: object) -> bool:
    return issubclass(type(thing), profiler.profile) and getattr(thing, "step_rec_fn", None) is not None
