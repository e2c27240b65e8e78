"""The names of precisions: hookline's own, and the names that other libraries use for them."""

from __future__ import annotations

from typing import Any

from hookline.common.numbers import as_repr
from hookline.errors import ConfigError, did_you_mean

#: The precisions, and the names of their dtypes in torch.
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

#: Other names for them. Lightning's and Keras' names are those that people know.
ALIASES = {
    "32": "fp32",
    "32-true": "fp32",
    "float32": "fp32",
    "bf16-mixed": "bf16",
    "mixed_bfloat16": "bf16",
    "16": "fp16",
    "16-mixed": "fp16",
    "mixed_float16": "fp16",
}
#: A number is accepted, too: YAML reads `precision: 32` as one.
NUMBERS = (32, 16)

#: Names for a model whose weights are in another format, with what to write.
WEIGHTS = {
    "bf16-true": ("bfloat16", "bf16"),
    "bfloat16": ("bfloat16", "bf16"),
    "16-true": ("float16", "fp16"),
    "float16": ("float16", "fp16"),
    "half": ("float16", "fp16"),
    "64": ("float64", None),
    "64-true": ("float64", None),
    "float64": ("float64", None),
    "double": ("float64", None),
}


def precision_of(asked: Any) -> str:
    """Return hookline's name of a precision.

    >>> precision_of("bf16-mixed"), precision_of(32)
    ('bf16', 'fp32')
    """
    name = str(asked) if isinstance(asked, int) and not isinstance(asked, bool) else asked
    if isinstance(name, str) and name in PRECISIONS:
        return name
    if isinstance(name, str) and name in ALIASES:
        return ALIASES[name]
    if isinstance(name, str) and name in WEIGHTS:
        dtype, mixed = WEIGHTS[name]
        advice = f"Convert the model yourself, model.to(torch.{dtype}), and leave precision at 'fp32'"
        if mixed is not None:
            advice = f"For mixed precision, write '{mixed}'; otherwise, c{advice[1:]}"
        raise ConfigError(
            f"precision '{name}' means weights in {dtype}, but the precision of a run is about its computations: the "
            f"weights stay as they are. {advice}"
        )
    known = f"; {did_you_mean(name, PRECISIONS)}" if isinstance(name, str) else "; available: fp32, bf16, fp16"
    raise ConfigError(f"unknown precision {as_repr(name)}{known}")
