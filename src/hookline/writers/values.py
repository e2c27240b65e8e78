"""What is handed to writers, checked once for all of them and made plain. What is wrong is refused, with its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import DataError, HooklineError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PLAIN = frozenset({float, int})


def plain_scalars(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by name as ints and floats; those of numpy and tensors with one element are read.

    >>> import numpy as np
    >>> plain_scalars({"loss": np.float32(0.5), "epoch": 2})
    {'loss': 0.5, 'epoch': 2}
    """
    for value in scalars.values():
        if value.__class__ not in PLAIN:
            return {name: plain_number(name, value) for name, value in scalars.items()}
    return dict(scalars)


def plain_number(name: str, value: Any) -> float:
    """One number as an int or a float."""
    if value.__class__ in PLAIN:
        return cast("float", value)
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


def plain_image(name: str, image: Any) -> NDArray[np.uint8]:
    """An image of any kind that `hookline.images` knows as a uint8 array; a batch or a list as a grid."""
    from hookline.images import as_grid, as_image

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
    columns, rows = [str(column) for column in columns], [list(row) for row in rows]
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
