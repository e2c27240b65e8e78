"""Checks of parameters: one message that says what was found, whatever it is."""

from __future__ import annotations

from typing import Any

import pytest

from hookline.common.checks import check_choice, check_int, check_name, check_number
from hookline.errors import ConfigError

HUGE = 16**100_000


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (-1, "-1"),
        (True, "True"),
        ("1", "'1'"),
        (HUGE, "an int of 400001 bits"),
        (-HUGE, "an int of 400001 bits"),
    ],
    ids=["nan", "inf", "negative", "bool", "text", "huge", "hugely negative"],  # pytest cannot print the last ones
)
def test_a_number_must_be_finite_and_not_too_small(value: Any, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_number("Optim: clip_norm", value, least=0)
    assert str(refused.value) == f"Optim: clip_norm must be a number of at least 0, not {found}"


def test_an_int_that_python_cannot_print_is_described() -> None:
    with pytest.raises(ConfigError, match=r"^n must be an int of at least 1, not an int of 400001 bits$"):
        check_int("n", -HUGE, least=1)
    with pytest.raises(ConfigError, match=r"^rule cannot be an int of 400001 bits; available: greater, less$"):
        check_choice("rule", HUGE, ("greater", "less"))


def test_a_name_must_be_one_that_a_file_can_have() -> None:
    with pytest.raises(ConfigError) as refused:
        check_name("work_dir", "runs/\ud800")
    assert str(refused.value) == "work_dir must be text that can be the name of a file, not 'runs/\\ud800'"
    check_name("work_dir", "runs/\udcff")  # how Python shows a byte that is not UTF-8
