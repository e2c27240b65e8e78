"""Progress bars for long tasks, drawn by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import Pool
from typing import Any, Self

from rich.progress import Progress, track

from hookline.dialects.exports import export_defined


class ProgressBar:
    """A progress bar that the caller updates.

    Args:
        task_num: The number of tasks; 0 if it is unknown.
        bar_width: Accepted, but has no effect: the bar is as wide as it needs to be.
        start: Whether the bar is shown at once.
        file: Accepted, but has no effect: the bar is shown on the screen.
    """

    def __init__(self, task_num: int = 0, bar_width: int = 50, start: bool = True, file: Any = None) -> None:
        self.task_num, self.completed = task_num, 0
        self._progress = Progress(transient=True)
        self._task = self._progress.add_task("", total=task_num or None)
        if start:
            self.start()

    def start(self) -> None:
        """Show the bar."""
        self._progress.start()

    def update(self, num_tasks: int = 1) -> None:
        """Count more tasks as done."""
        self.completed += num_tasks
        self._progress.update(self._task, completed=self.completed)
        if self.task_num and self.completed >= self.task_num:
            self._progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def track_iter_progress(tasks: Any, bar_width: int = 50, file: Any = None) -> Iterator[Any]:
    """Yield the tasks one after the other, with a bar; pass `(iterator, length)` if they have no length."""
    if isinstance(tasks, tuple) and len(tasks) == 2 and isinstance(tasks[1], int) and not isinstance(tasks[0], int):
        yield from track(tasks[0], total=tasks[1], transient=True)
    else:
        yield from track(tasks, transient=True)


def track_progress(
    func: Callable[..., Any], tasks: Any, bar_width: int = 50, file: Any = None, **kwargs: Any
) -> list[Any]:
    """Call a function on each task, with a bar, and return the results."""
    return [func(task, **kwargs) for task in track_iter_progress(tasks)]


def init_pool(process_num: int, initializer: Any = None, initargs: Sequence[Any] | None = None) -> Any:
    """Return a pool of processes."""
    return Pool(process_num, initializer, initargs or ())


def track_parallel_progress(
    func: Callable[..., Any],
    tasks: Sequence[Any],
    nproc: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] | None = None,
    bar_width: int = 50,
    chunksize: int = 1,
    skip_first: bool = False,
    keep_order: bool = True,
    file: Any = None,
) -> list[Any]:
    """Do the same as `track_progress` in several processes."""
    with init_pool(nproc, initializer, initargs) as pool:
        run = pool.imap if keep_order else pool.imap_unordered
        return list(track(run(func, tasks, chunksize), total=len(tasks), transient=True))


def track_progress_rich(
    func: Callable[..., Any],
    tasks: Iterable[Any] = (),
    task_num: int | None = None,
    nproc: int = 1,
    chunksize: int = 1,
    description: str = "Processing",
    color: str = "blue",
) -> list[Any]:
    """Call a function on each task, or `task_num` times without one, with a bar, and return the results."""
    todo = list(tasks) or [()] * (task_num or 0)
    call = partial(_call, func)
    if nproc == 1:
        return [call(task) for task in track(todo, description, transient=True)]
    with Pool(nproc) as pool:
        return list(track(pool.imap(call, todo, chunksize), description, total=len(todo), transient=True))


def _call(func: Callable[..., Any], task: Any) -> Any:
    if isinstance(task, tuple):
        return func(*task)
    return func(**task) if isinstance(task, dict) else func(task)


export_defined(globals())
