"""`hookline.launch`: call a function in several processes, from a script or a notebook."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from hookline.common.checks import check_int
from hookline.errors import ConfigError

T = TypeVar("T")


def launch(function: Callable[..., T], *args: Any, nproc: int = 2, **kwargs: Any) -> list[T]:
    """Call `function(*args, **kwargs)` in several processes on this machine, and return the results by rank.

    Each process has the variables that torchrun sets: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. It
    uses one thread of torch, unless OMP_NUM_THREADS is set. Where the platform can copy a process, the function may be
    defined anywhere, also in a notebook. On Windows, it has to be at the top level of a module.

    If the function raises in a process, the others are ended, and the error is raised here, with a note that has the
    rank and the traceback. Ctrl-C lets all processes save and end. It is then raised here, too.

    Example:
        import os

        import hookline

        def work(factor):
            return factor * int(os.environ["RANK"])

        hookline.launch(work, 10, nproc=2)  # [0, 10]
    """
    check_int("hookline.launch: nproc", nproc, least=1)
    for name in kwargs:
        if name in ("nprocs", "num_processes", "nproc_per_node", "n_proc") and not accepts(function, name):
            raise ConfigError(
                f"hookline.launch has no parameter '{name}', and neither has the function; did you mean 'nproc'?"
            )
    from hookline.launching.group import Group

    call, method = (function, args, kwargs), start_method()
    refuse(call, method)
    return Group(nproc).run(multiprocessing.get_context(method), call)


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes a parameter of this name, as far as this can be known."""
    try:
        inspect.signature(function).bind_partial(**{name: None})
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def start_method() -> str:
    """Return how processes are started: as copies of this one where the platform can, or else as new ones."""
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


def refuse(call: tuple[Any, ...], method: str) -> None:
    """Raise an error if processes cannot be started from here."""
    if "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        raise ConfigError(
            "hookline.launch was called in a process that a launcher has started (RANK and WORLD_SIZE are set); call "
            "the function itself"
        )
    torch = sys.modules.get("torch")
    if method == "fork" and torch is not None and torch.cuda.is_initialized():
        raise ConfigError(
            "hookline.launch cannot copy this process, because it has already used CUDA, and the copies could not; "
            "call launch before anything uses a GPU (in a notebook, restart the kernel first), or use torchrun"
        )
    if method != "fork":
        try:
            pickle.dumps(call)
        except Exception as error:
            raise ConfigError(
                f"hookline.launch: the function and its arguments cannot be sent to a new process ({error}); define "
                "the function at the top level of a module"
            ) from error
