"""Adapt hookline's hooks so that their methods accept all arguments of a point, as subclasses for MMEngine expect."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from hookline.dialects.mmengine.errors import RefusedError, WrongParameterError
from hookline.dialects.mmengine.hooks.hook import STAGES, Hook
from hookline.errors import ConfigError

H = TypeVar("H", bound=type[Hook])


def with_original_signatures(cls: H) -> H:
    """Give the methods of a hook the full signatures of MMEngine's Hook, and its constructor the original's errors.

    Methods of native hooks take only the arguments they need. With the full signatures,
    `super().after_train_iter(runner, batch_idx, data_batch, outputs)` works in a subclass.
    """
    _convert_errors(cls)
    for stage in STAGES:
        method = inspect.getattr_static(cls, stage)
        if method is not inspect.getattr_static(Hook, stage):
            given, taken = (list(inspect.signature(each).parameters) for each in (getattr(Hook, stage), method))
            if taken != given:
                setattr(cls, stage, _accept_all_arguments(stage, method))
    return cls


def _convert_errors(cls: type[Any]) -> None:
    """Let the constructor raise errors of the standard types that the original raises, and hide `left_out` from it."""
    construct = cls.__init__
    if construct is object.__init__:
        return
    signature = inspect.signature(construct)
    shown = [each for name, each in signature.parameters.items() if name not in cls.left_out]
    signature = signature.replace(parameters=shown)

    @wraps(construct)
    def construct_or_refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            if cls.left_out:
                signature.bind(self, *args, **kwargs)
            construct(self, *args, **kwargs)
        except RefusedError:
            raise
        except ConfigError as error:
            raise WrongParameterError(str(error)) from None

    construct_or_refuse.__signature__ = signature  # type: ignore[attr-defined]  # shown, and checked by registries
    cls.__init__ = construct_or_refuse


def _accept_all_arguments(stage: str, method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(getattr(Hook, stage)).parameters.values())[1:]
    head = ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"{each.name}={each.default!r}" for each in parameters
    )
    taken = list(inspect.signature(method).parameters)[1:]
    passed = ", ".join(name if number == 0 else f"{name}={name}" for number, name in enumerate(taken))
    source = f"def {stage}(self, {head}): return hl_method(self{', ' * bool(taken)}{passed})"
    names: dict[str, Any] = {"hl_method": method}
    code = method.__code__
    # Compiled with the file and line of the method, so that messages and tracebacks point there.
    exec(compile("\n" * (code.co_firstlineno - 1) + source, code.co_filename, "exec"), names)
    wrapper: Any = names[stage]
    wrapper.__doc__, wrapper.__module__ = method.__doc__, method.__module__
    vars(wrapper).update(vars(method))
    wrapper.__hookline_direct__ = method  # the loop calls the native method itself; the wrapper is for subclasses
    return wrapper  # type: ignore[no-any-return]  # a function
