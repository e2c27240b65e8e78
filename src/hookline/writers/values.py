"""What is handed to writers, checked once for all of them and made plain. What is wrong is refused, with its name."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import DataError, HooklineError
from hookline.record.hub import PLAIN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What every file, database and server has room for: 64 bits.
LARGEST = 1 << 63
# What a record has besides its numbers.
PLACES = ("step", "epoch")


def plain_scalars(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by name as ints and floats; those of numpy and tensors with one element are read.

    >>> import numpy as np
    >>> plain_scalars({"loss": np.float32(0.5), "epoch": 2})
    {'loss': 0.5, 'epoch': 2}
    """
    found = {}
    for name, value in scalars.items():
        if value.__class__ is float and name.__class__ is str and name not in PLACES:
            found[name] = value  # as nearly all are
        else:
            found[scalar_name(name)] = plain_number(name, value)
    return found


def plain_name(kind: str, name: Any) -> str:
    """The name of something that is written."""
    if name.__class__ is str:
        return name
    if isinstance(name, str):
        return str.__str__(name)  # one of numpy, or a member of an enum
    raise HooklineError(f"the name of {kind} is a text, not {name!r}")


def scalar_name(name: Any) -> str:
    """The name of a number, which stands beside its step in a record."""
    if name == "step":
        raise HooklineError("a scalar cannot be called 'step': so every record calls the step that it belongs to")
    return plain_name("a scalar", name)


def plain_step(name: str, step: Any) -> int:
    """A step as an int; those of numpy and tensors are read."""
    if step.__class__ is not int:
        try:
            step = operator.index(step)
        except TypeError:
            raise HooklineError(f"the step of '{name}' must be a whole number, not {step!r}") from None
    if not -LARGEST < step < LARGEST:
        raise HooklineError(f"the step of '{name}' is larger than 64 bits can hold")
    return int(step)


def plain_number(name: str, value: Any) -> float:
    """One number as an int or a float; `epoch` is an int, as in every record."""
    number = cast("float", value) if value.__class__ in PLAIN else _read(name, value)
    if isinstance(number, int) and not -LARGEST < number < LARGEST:
        number = _as_float(name, number)
    if name == "epoch" and not isinstance(number, int):
        raise HooklineError(f"the scalar 'epoch' must be a whole number, as in every record, not {number!r}")
    return number


def _read(name: str, value: Any) -> float:
    try:
        found = value.item()
    except (AttributeError, ValueError, RuntimeError):  # no array, or one with more than one element
        found = value
    if isinstance(found, (bool, int)):
        return int(found)
    if isinstance(found, float):
        return float(found)
    shape = getattr(value, "shape", None)
    told = f"{type(value).__name__} of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else repr(value)
    raise HooklineError(f"the scalar '{name}' must be a number or a tensor with one element, not {told}")


def _as_float(name: str, number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise HooklineError(f"the scalar '{name}' is too large: an int of {number.bit_length()} bits") from None


def plain_image(name: str, image: Any) -> NDArray[np.uint8]:
    """An image of any kind that `hookline.record.images` knows as a uint8 array; a batch or a list as a grid."""
    from hookline.record.images import as_grid, as_image

    try:
        return as_grid(image) if isinstance(image, (list, tuple)) else as_image(image)
    except DataError as error:
        raise DataError(f"the image '{name}': {error}") from None


def plain_values(name: str, values: Any) -> NDArray[np.float64]:
    """The finite numbers of an array, a tensor or a list, in one dimension."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        found = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise DataError(f"the histogram '{name}' is made of numbers, not of {type(values).__name__}: {error}") from None
    finite: NDArray[np.float64] = found[np.isfinite(found)]
    if not finite.size:
        raise DataError(f"the histogram '{name}' has no finite number among its {found.size}")
    return finite


def plain_table(name: str, columns: Any, rows: Any) -> tuple[list[str], list[list[Any]]]:
    """The names of columns, and rows that have just as many cells."""
    try:
        columns, rows = [str(column) for column in columns], [list(row) for row in rows]
    except TypeError:
        found = f"{columns!r} and {rows!r}"
        raise DataError(f"the table '{name}' has a list of columns and a list of rows, not {found}") from None
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise DataError(
                f"the table '{name}' has {len(columns)} columns ({', '.join(columns)}), and its row {number} has "
                f"{len(row)} cells"
            )
    return columns, rows


def statistics(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """What a histogram comes down to where only numbers are kept."""
    found = {"min": values.min(), "mean": values.mean(), "std": values.std(), "max": values.max()}
    return {f"{name}/{key}": float(value) for key, value in found.items()}


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    r"""A table as text.

    >>> print(as_markdown(["name", "score"], [["a|b", 0.5]]))
    | name | score |
    | --- | --- |
    | a\|b | 0.5 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def flat(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config by their dotted paths.

    >>> dict(flat({"train": {"max_epochs": 2}, "writers": ["jsonl"], "val": {}}))
    {'train.max_epochs': 2, 'writers.0': 'jsonl', 'val': {}}
    """
    if isinstance(config, Mapping) and config:
        parts = list(config.items())
    elif isinstance(config, (list, tuple)) and config:
        parts = list(enumerate(config))
    else:
        yield path, config
        return
    for key, value in parts:
        yield from flat(value, f"{path}.{key}" if path else str(key))
