"""Checks and conversion of everything that is written, once for all writers. Errors name the invalid value."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import ConfigError, DataError, HooklineError
from hookline.record.history import PLAIN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# 64 bits: every file, database and server can store such numbers.
LARGEST = 1 << 63
# Names that every record has besides its numbers.
PLACES = ("step", "epoch")


def plain_scalars(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Return numbers by name as ints and floats, converted from numpy or tensors with one element.

    >>> import numpy as np
    >>> plain_scalars({"loss": np.float32(0.5), "epoch": 2})
    {'loss': 0.5, 'epoch': 2}
    """
    numbers = {}
    for name, value in scalars.items():
        if value.__class__ is float and name.__class__ is str and name not in PLACES:
            numbers[name] = value  # the fast path, for nearly all
        else:
            numbers[scalar_name(name)] = plain_number(name, value)
    return numbers


def plain_name(kind: str, name: Any) -> str:
    """Return a name as a plain string; refuse anything else."""
    if name.__class__ is str:
        return name
    if isinstance(name, str):
        return str.__str__(name)  # a numpy string, or a member of an enum
    raise HooklineError(f"the name of {kind} must be a string, not {name!r}")


def scalar_name(name: Any) -> str:
    """Return the name of a number as a plain string; refuse `step`."""
    if name == "step":
        raise HooklineError("a scalar cannot be named 'step': every record already has its step under this name")
    return plain_name("a scalar", name)


def plain_step(name: str, step: Any) -> int:
    """Return a step as an int, converted from numpy or a tensor."""
    if step.__class__ is not int:
        try:
            step = operator.index(step)
        except TypeError:
            raise HooklineError(f"the step of '{name}' must be a whole number, not {step!r}") from None
    if not -LARGEST < step < LARGEST:
        raise HooklineError(f"the step of '{name}' does not fit in 64 bits")
    return int(step)


def plain_number(name: str, value: Any) -> float:
    """Return one number as an int or a float; `epoch` must be an int, as in every record."""
    number = cast("float", value) if value.__class__ in PLAIN else _read(name, value)
    if isinstance(number, int) and not -LARGEST < number < LARGEST:
        number = _as_float(name, number)
    if name == "epoch" and not isinstance(number, int):
        raise HooklineError(f"the scalar 'epoch' must be a whole number, as in every record, not {number!r}")
    return number


def _read(name: str, value: Any) -> float:
    try:
        number = value.item()
    except (AttributeError, ValueError, RuntimeError):  # not an array, or an array with more than one element
        number = value
    if isinstance(number, (bool, int)):
        return int(number)
    if isinstance(number, float):
        return float(number)
    shape = getattr(value, "shape", None)
    shown = f"{type(value).__name__} of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else repr(value)
    raise HooklineError(f"the scalar '{name}' must be a number or a tensor with one element, not {shown}")


def _as_float(name: str, number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise ConfigError(
            f"the scalar '{name}' is too large for a float: it is an int of {number.bit_length()} bits"
        ) from None


def plain_image(name: str, image: Any) -> NDArray[np.uint8]:
    """Return any image that `hookline.record.images` accepts as a uint8 array; a batch or a list as a grid."""
    from hookline.record.images import as_grid, as_image

    try:
        return as_grid(image) if isinstance(image, (list, tuple)) else as_image(image)
    except DataError as error:
        raise DataError(f"the image '{name}': {error}") from None


def plain_values(name: str, values: Any) -> NDArray[np.float64]:
    """Return the finite numbers of an array, a tensor or a list, in one dimension."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise DataError(f"the histogram '{name}' needs numbers, not {type(values).__name__}: {error}") from None
    finite: NDArray[np.float64] = numbers[np.isfinite(numbers)]
    if not finite.size:
        raise DataError(f"the histogram '{name}' has no finite number among its {numbers.size} numbers")
    return finite


def plain_table(name: str, columns: Any, rows: Any) -> tuple[list[str], list[list[Any]]]:
    """Return the column names and the rows as lists; every row must have one cell per column."""
    try:
        columns, rows = [str(column) for column in columns], [list(row) for row in rows]
    except TypeError:
        shown = f"{columns!r} and {rows!r}"
        raise DataError(f"the table '{name}' needs a list of columns and a list of rows, not {shown}") from None
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise DataError(
                f"the table '{name}' has {len(columns)} columns ({', '.join(columns)}), but its row {number} has "
                f"{len(row)} cells"
            )
    return columns, rows


def statistics(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Summarize a histogram in a few numbers, for writers that keep only numbers."""
    numbers = {"min": values.min(), "mean": values.mean(), "std": values.std(), "max": values.max()}
    return {f"{name}/{key}": float(value) for key, value in numbers.items()}


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    r"""Return a table as Markdown text.

    >>> print(as_markdown(["name", "score"], [["a|b", 0.5]]))
    | name | score |
    | --- | --- |
    | a\|b | 0.5 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def flatten(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a config with their dotted paths.

    >>> dict(flatten({"train": {"max_epochs": 2}, "writers": ["jsonl"], "val": {}}))
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
        yield from flatten(value, f"{path}.{key}" if path else str(key))
