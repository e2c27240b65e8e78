"""The methods of hookline's hooks with all arguments of their points, as subclasses written for MMEngine call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from hookline.dialects.mmengine.hooks.hook import STAGES, Hook

H = TypeVar("H", bound=type[Hook])


def as_in_the_original(cls: H) -> H:
    """Give a hook the signatures of its base class: natively, a method takes only the arguments that it needs.

    So `super().after_train_iter(runner, batch_idx, data_batch, outputs)` works in a subclass.
    """
    for stage in STAGES:
        method = inspect.getattr_static(cls, stage)
        if method is not inspect.getattr_static(Hook, stage):
            given, taken = (list(inspect.signature(each).parameters) for each in (getattr(Hook, stage), method))
            if taken != given:
                setattr(cls, stage, _with_all(stage, method))
    return cls


def _with_all(stage: str, method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(getattr(Hook, stage)).parameters.values())[1:]
    head = ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"{each.name}={each.default!r}" for each in parameters
    )
    taken = list(inspect.signature(method).parameters)[1:]
    passed = ", ".join(name if number == 0 else f"{name}={name}" for number, name in enumerate(taken))
    source = f"def {stage}(self, {head}): return hl_method(self{', ' * bool(taken)}{passed})"
    names: dict[str, Any] = {"hl_method": method}
    code = method.__code__
    # Compiled at the place of the method, where messages and tracebacks then point to.
    exec(compile("\n" * (code.co_firstlineno - 1) + source, code.co_filename, "exec"), names)
    made: Callable[..., Any] = names[stage]
    made.__doc__, made.__module__ = method.__doc__, method.__module__
    vars(made).update(vars(method))
    return made
