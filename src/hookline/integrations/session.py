"""A training whose loop the user writes.

    with hookline.session(model, optimizer, loader, max_epochs=10, work_dir="runs/mine", resume=True) as run:
        for batch in run:
            loss = criterion(model(batch[0]), batch[1])
            run.step(loss)

Behind it is a Runner, with the same hooks, checks, files, signals, processes and exit codes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from torch.optim import Optimizer

from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.errors import ConfigError, HooklineError, did_you_mean
from hookline.optim.optim import Optim
from hookline.runner.runner import Runner

if TYPE_CHECKING:
    from torch import nn

    from hookline.integrations.own_loop import Session

#: The parameters of a TrainLoop that a session takes besides its own.
OF_LOOP = ("val_interval", "val_begin", "limit_batches", "weigh", "skip")
#: Parameters of a Runner that a session sets itself, with what to pass instead.
INSTEAD = {"train": "the dataloader and max_epochs", "optim": "the optimizer", "custom_hooks": "hooks"}


def session(
    model: nn.Module,
    optimizer: Any,
    dataloader: Iterable[Any],
    *,
    max_epochs: int | None = None,
    max_iters: int | None = None,
    schedulers: Iterable[Any] = (),
    accumulate: int = 1,
    clip_norm: float | None = None,
    hooks: Iterable[Any] = (),
    val: EvalLoop | Mapping[str, EvalLoop] | None = None,
    **options: Any,
) -> Session:
    """Return a training whose loop you write yourself, as a context.

    Args:
        model: Any module. With several processes, or a compiled model, call `run.model` instead of it.
        optimizer: A torch optimizer, or a dict of several by name, each of them a torch optimizer or an Optim.
        dataloader: Yields the batches.
        max_epochs: Train this many epochs. Give either this or `max_iters`.
        max_iters: Train this many iterations, with as many passes over the data as needed.
        schedulers: torch schedulers of the optimizer; see `Optim`.
        accumulate: The number of batches per update.
        clip_norm: The maximum total norm of the gradients.
        hooks: Hooks: objects, names, or dicts with `type`.
        val: A validation that hookline runs; see `EvalLoop`. Without it, report your own with `run.report`.
        options: Options of `Runner` (`work_dir`, `resume`, `seed`, `device`, `strategy`, `precision`, `writers`,
            `default_hooks`, ...), and `val_interval`, `val_begin`, `limit_batches`, `weigh` and `skip` of
            `TrainLoop`.
    """
    from hookline.integrations.own_loop import Session  # with the engine, as in a Runner

    for name in options:
        if name in INSTEAD:
            raise ConfigError(f"session() has no parameter '{name}'; pass {INSTEAD[name]} instead")
        if name not in (known := _parameters()):
            raise ConfigError(f"session() has no parameter '{name}'; {did_you_mean(name, known)}")
    if (max_epochs is None) == (max_iters is None):
        given = "neither" if max_epochs is None else "both"
        raise ConfigError(f"session() needs either max_epochs or max_iters, but {given} of them was given")
    if _is_started(dataloader):
        raise ConfigError(
            "the dataloader of session() is an iterator that was already started, so its order is not known; pass the "
            "loader itself, without iter()"
        )
    optim = _as_optim(optimizer, schedulers, accumulate, clip_norm)
    step: Callable[..., Any] = _own_step
    if isinstance(optim, Mapping):
        step = _own_steps
    of_loop = {name: options.pop(name) for name in OF_LOOP if name in options}
    loop = TrainLoop(dataloader, step, max_epochs=max_epochs, max_iters=max_iters, **of_loop)
    return Session(Runner(model, train=loop, val=val, optim=optim, custom_hooks=hooks, **options), model)


def _parameters() -> list[str]:
    """Return the names of all parameters, its own first."""
    own = [name for name, each in inspect.signature(session).parameters.items() if each.kind is each.KEYWORD_ONLY]
    others = [name for name in inspect.signature(Runner).parameters if name not in (*INSTEAD, "model")]
    return list(dict.fromkeys([*own, *OF_LOOP, *others]))


def _is_started(dataloader: Any) -> bool:
    """Return whether a loader is an iterator that has begun. A new generator is a stream, which may be endless."""
    if isinstance(dataloader, GeneratorType):
        return inspect.getgeneratorstate(dataloader) != inspect.GEN_CREATED
    return hasattr(dataloader, "__next__") and type(dataloader).__module__ in (
        "builtins",
        "torch.utils.data.dataloader",
    )


def _as_optim(optimizer: Any, schedulers: Iterable[Any], accumulate: int, clip_norm: float | None) -> Any:
    if isinstance(optimizer, Optimizer):
        return Optim(optimizer, schedulers, accumulate, clip_norm)
    given = [*schedulers] or accumulate != 1 or clip_norm is not None
    if given and isinstance(optimizer, (Optim, Mapping)):
        raise ConfigError(
            "session() takes schedulers, accumulate and clip_norm only with a single torch optimizer; set them on the "
            "Optim: Optim(optimizer, schedulers=[...], accumulate=4, clip_norm=1.0)"
        )
    return optimizer


def _own_step(model: nn.Module, batch: Any) -> NoReturn:
    raise HooklineError("this Runner belongs to a session, whose step is the body of your loop: for batch in run")


def _own_steps(model: nn.Module, batch: Any, optim: Any) -> NoReturn:
    _own_step(model, batch)
