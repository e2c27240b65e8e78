"""Read the tensors in a pickle, such as the predictions that `tools/test.py --out` writes, without running any code."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, cast

from hookline.errors import StorageError


def read_storage(data: bytes) -> Any:
    """Return the numbers of a tensor, which are a file of torch inside the pickle."""
    import torch

    try:
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise StorageError(f"a tensor in the pickle cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(found, torch.storage.TypedStorage):
        raise StorageError(f"the pickle has a {type(found).__name__} where the numbers of a tensor must be")
    return found


def new_tensor(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any) -> Any:
    """Return a tensor, if it lies within its numbers."""
    from torch import _utils
    from torch.storage import TypedStorage

    numbers = (offset, *size, *stride)
    if not isinstance(storage, TypedStorage) or not all(type(each) is int and each >= 0 for each in numbers):
        raise StorageError("the pickle holds a tensor without numbers, or with a shape that is not made of numbers")
    count = cast("Any", storage)._size()  # len() warns that torch will have another class for storages
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 not in size and last >= count:
        raise StorageError(f"the pickle holds a tensor with more numbers than the file has: {last + 1}, {count}")
    return cast("Any", _utils)._rebuild_tensor_v2(storage, offset, size, stride, bool(requires_grad), OrderedDict())


#: What a pickle of a tensor calls, and what is called instead.
SAFE: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch.storage", "_load_from_bytes"): read_storage,
    ("torch._utils", "_rebuild_tensor_v2"): new_tensor,
}
