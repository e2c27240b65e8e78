"""Forked processes: a run belongs to the process that started it.

A process that is forked during a run, by a hook or for a loader, has a copy of everything: of open files, of records
that wait to be written, of the loop itself. It must not use any of it. Whatever only the run's own process may use is
registered with `own`, and `disown` is called for it in every forked process. A copy of the loop ends as soon as it
would continue, with `end_if_copy`. It ends at once, like a process of `multiprocessing`: unwinding it, or returning to
the code that started the run, would do everything twice. The run itself pays nothing for this until somebody forks.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, Protocol
from weakref import WeakValueDictionary

from hookline.errors import HooklineError, exit_code_of


class Owned(Protocol):
    """An object that belongs to one process."""

    def disown(self) -> None:
        """Leave everything to the process that this one was forked from."""


class Lock(Protocol):
    """A lock that its owner can take again."""

    def acquire(self) -> bool:
        """Take the lock."""
        ...

    def release(self) -> None:
        """Give the lock back."""


# By identity, because a host may be of any class, even one without a hash.
_owned: WeakValueDictionary[int, Owned] = WeakValueDictionary()
_locks: WeakValueDictionary[int, Lock] = WeakValueDictionary()
# The locks that are held because a process is being forked.
_held: list[list[Lock]] = []
# The functions of other modules that a new process calls.
_callbacks: list[Callable[[], None]] = []
# The objects of which this process only has a copy.
_copies: list[object] = []


def own(thing: Owned, lock: Lock | None = None) -> None:
    """Register something that belongs to this process, until it is released.

    The lock is held while a process is forked, so no other thread is using the protected object at that moment. Neither
    this lock nor the lock of a file below it stays locked in the new process, where the other thread does not exist.
    """
    _owned[id(thing)] = thing
    if lock is not None:
        _locks[id(thing)] = lock


def call_in_children(function: Callable[[], None]) -> None:
    """Call a function in every process that is forked from this one."""
    _callbacks.append(function)


def release(thing: Owned) -> None:
    """Take back `own`: processes that are forked from now on may use it."""
    _owned.pop(id(thing), None)
    _locks.pop(id(thing), None)


def note_copy(thing: object) -> None:
    """Note that this process only has a copy of something that belongs to an owned object."""
    _copies.append(thing)


def end_if_copy(thing: object, error: BaseException) -> None:
    """End this process because of an error if it has only a copy of something."""
    if any(thing is copy for copy in _copies):
        end_copy(error)


def end_copy(error: BaseException) -> NoReturn:
    """End a process that was forked during a run, and run nothing else. Show the error, and exit with its code."""
    code: object = error.code if isinstance(error, SystemExit) else exit_code_of(error)
    if isinstance(error, HooklineError):
        print(f"hookline: {error}", file=sys.stderr)
    elif isinstance(error, Exception):
        traceback.print_exception(error)
    elif not isinstance(code, int | None):
        print(code, file=sys.stderr)  # as `sys.exit("a text")` does
        code = 1
    _flush()
    os._exit(code & 0xFF if isinstance(code, int) else 0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed, or nobody reads it
            stream.flush()


def _before() -> None:
    locks = list(_locks.values())
    for lock in locks:
        lock.acquire()
    _held.append(locks)
    if _owned:
        _flush()  # otherwise, both processes would write the contents of the buffers


def _after() -> None:
    for lock in _held.pop():
        lock.release()


def _in_child() -> None:
    _after()
    for function in _callbacks:
        function()
    copied = list(_owned.values())
    _owned.clear()
    _locks.clear()
    _copies.extend(copied)
    for thing in copied:
        thing.disown()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
