"""Restoring the memory of data and models between two calls: counters, random generators, and iterators.

The trial before training reads a batch of a data set that may count its passes, draw from its own generator or continue
its own iterator, and calls a model that may count its calls. Afterwards, all of this is as before, so that the trial
changes no result.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from hookline.common.torch_private import buffers_of

#: The limits of the search: objects in all, and the entries of one list or mapping.
MAX_OBJECTS, MAX_ENTRIES = 2000, 100
SCALARS = (bool, int, float, str)
#: Types that the search does not look into.
OPAQUE = (type, ModuleType, Tensor, nn.Module, np.ndarray, np.generic, *SCALARS, bytes)
#: Objects whose counters and iterators are restored. Other objects, such as a connection, may not be touched.
DATA = (DataLoader, Dataset, Sampler)
#: Iterators whose copies continue at the same place.
_EMPTY: list[Iterable[Any]] = [[], (), range(0), "", b"", {}, {}.values(), {}.items(), set()]
COPYABLE = tuple(type(iter(each)) for each in _EMPTY)


class ConsumedError(Exception):
    """An object has an iterator that cannot be copied, so the next items would be lost."""


@contextmanager
def untouched(loader: object) -> Iterator[None]:
    """Restore the counters, generators and iterators of a loader, and of the data sets and samplers in it.

    An attribute that is set for the first time, such as a file that is opened when it is needed, is kept.
    """
    restoring: list[Callable[[], object]] = []
    for value in _reachable(loader):
        restoring += _generator(value)
        if value is loader or isinstance(value, DATA):
            restoring += _memory(value)
    with _restored(restoring):
        yield


@contextmanager
def modules_untouched(model: nn.Module) -> Iterator[None]:
    """Restore the numbers and texts that are attributes of a model and of the modules in it."""
    with _restored([restore for module in model.modules() for restore in _scalars(module)]):
        yield


@contextmanager
def _restored(restoring: list[Callable[[], object]]) -> Iterator[None]:
    try:
        yield
    finally:
        for restore in restoring:
            restore()


def _reachable(root: object) -> list[Any]:
    """Return an object and the objects in its attributes, also inside short lists and mappings."""
    objects: dict[int, Any] = {}
    waiting = [root]
    while waiting and len(objects) < MAX_OBJECTS:
        item = waiting.pop()
        if id(item) in objects:
            continue
        objects[id(item)] = item
        if isinstance(item, (list, tuple)):
            inner: Iterable[Any] = item[:MAX_ENTRIES]
        else:
            entries = item if isinstance(item, dict) else _attributes(item)
            inner = list(entries.values())[:MAX_ENTRIES]
        waiting += [value for value in inner if value is not None and not isinstance(value, OPAQUE)]
    return list(objects.values())


def _attributes(value: object) -> dict[str, Any]:
    try:  # without __getattr__, which is code of the user
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _generator(value: Any) -> Iterator[Callable[[], object]]:
    if isinstance(value, torch.Generator):
        yield _call(value.set_state, value.get_state())
    elif isinstance(value, random.Random):
        yield _call(value.setstate, value.getstate())
    elif isinstance(value, np.random.RandomState):
        yield _call(value.set_state, value.get_state())
    elif isinstance(value, np.random.Generator):
        yield _call(setattr, value.bit_generator, "state", copy.deepcopy(value.bit_generator.state))


def _memory(data: object) -> Iterator[Callable[[], object]]:
    yield from _scalars(data)
    attributes = _attributes(data)
    for name, value in attributes.items():
        if isinstance(value, Iterator) and not _attributes(value) and not hasattr(value, "readable"):  # not a file
            if not isinstance(value, COPYABLE):
                raise ConsumedError(f"{type(data).__name__}.{name} is a {type(value).__name__}, which yields data once")
            yield _call(attributes.__setitem__, name, copy.copy(value))
    if isinstance(data, DataLoader) and attributes.get("_iterator", ...) is None:  # one with persistent workers
        yield _call(attributes.__setitem__, "_iterator", None)


def _scalars(data: object) -> Iterator[Callable[[], object]]:
    attributes = _attributes(data)
    for name, value in attributes.items():
        if isinstance(value, SCALARS):
            yield _call(_set_back, attributes, name, value)


def _set_back(attributes: dict[str, Any], name: str, value: Any) -> None:
    if name in attributes and attributes[name] is not value:
        attributes[name] = value


def _call(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the buffers and extra states of a model afterwards.

    A buffer that now has another shape is a cache, and stays.
    """
    buffers = [
        (module, name, buffer, buffer.shape, _elements(buffer).clone())
        for module in model.modules()
        for name, buffer in buffers_of(module).items()
        if buffer is not None
    ]
    extra = [
        (module, copy.deepcopy(module.get_extra_state()))
        for module in model.modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
        and type(module).set_extra_state is not nn.Module.set_extra_state
    ]
    try:
        yield
    finally:
        for module, name, buffer, shape, value in buffers:
            now = buffers_of(module).get(name)
            if now is not None and now.shape == shape == buffer.shape:
                _elements(buffer).copy_(value)
                buffers_of(module)[name] = buffer
        for module, state in extra:
            module.set_extra_state(state)


@contextmanager
def gradients_restored(model: nn.Module) -> Iterator[None]:
    """Hide the gradients of a model, and restore them afterwards: an evaluation may compute some of its own."""
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


def _elements(buffer: Tensor) -> Tensor:
    """Return a view that has every element once. torch cannot write into a buffer that was made with `expand`."""
    view = buffer.detach()
    repeated = [index for index, step in enumerate(view.stride()) if not step] if view.layout is torch.strided else []
    for index in repeated:
        view = view.narrow(index, 0, min(view.shape[index], 1))
    return view
