"""A function in a process of its own, so that no state of a module or of torch is left from an earlier call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hookline.errors import HooklineError

T = TypeVar("T")


def in_a_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a process of its own, and return its result."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            return pool.submit(function, *arguments).result()
    except BrokenProcessPool as error:
        raise HooklineError("a training was ended from the outside, or it has used too much memory") from error
