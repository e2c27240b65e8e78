"""Ranges and lists, on the command line and in a config."""

from __future__ import annotations

from typing import Any

import pytest

from hookline.errors import ConfigError
from hookline.sweeps.grammar import combine, read_section, read_values, read_words
from hookline.sweeps.space import Choices, Range, Space, Values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-4..1e-1", Range(1e-4, 1e-1)),
        ("1e-4..1e-1:log", Range(1e-4, 1e-1, log=True)),
        ("16..64", Range(16, 64)),
        ("16..64:16", Range(16, 64, step=16)),
        ("1..1024:log", Range(1, 1024, log=True)),
        ("-1..1:0.5", Range(-1, 1, step=0.5)),
        (".5..1.5", Range(0.5, 1.5)),
        ("32,64,128", Choices((32, 64, 128))),
        ("0.1, 1", Choices((0.1, 1))),
        ("true,false", Choices((True, False))),
        ("SGD,AdamW", Choices(("SGD", "AdamW"))),
        ("'1','a,b'", Choices(("1", "a,b"))),
        ("null,1", Choices((None, 1))),
        ("[8,8],[16]", Choices(([8, 8], [16]))),
        ("{a: 1, b: '2,3'},{a: 2}", Choices(({"a": 1, "b": "2,3"}, {"a": 2}))),
        ("it's,b", Choices(("it's", "b"))),
        ("5", None),
        ("adam", None),
        ("[1,2]", None),
        ("'a,b'", None),
        ("../data", None),
        ("data/../more", None),
        ("'1..2'", None),
        ("", None),
    ],
)
def test_a_text_is_a_range_a_list_or_a_single_value(text: str, expected: Any) -> None:
    found = read_values(text, f"key={text}")
    assert found == expected
    assert found is None or [type(each) for each in found.ends] == [type(each) for each in expected.ends]


@pytest.mark.parametrize("text", ["1..", "1..2:lgo", "1..2:log:log", "a..2", "1..2:", "1..2,3"])
def test_something_like_a_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_values(text, f"lr={text}")
    expected = f"'lr={text}': not a valid range; write low..high, low..high:log or low..high:step"
    assert str(refused.value) == expected


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        read_words(["x=1,,2"])
    expected = "'x=1,,2': a value between two commas is missing; for an empty text, write ''"
    assert str(refused.value) == expected


def test_words_without_a_range_or_a_list_are_overrides() -> None:
    parameters, overrides = read_words(["model.width=8,16", "seed=3", "custom_hooks[0].x=1..2", "oops"])
    assert parameters == {"model.width": Choices((8, 16)), "custom_hooks[0].x": Range(1, 2)}
    assert overrides == ["seed=3", "oops"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=1,2", "a=3,4"], "'a=3,4': the search space has 'a' twice"),
        (["a[0]=1,2", "a.0=3,4"], "'a.0=3,4': the search space has 'a.0' twice"),
        (
            ["a[0].b=1,2", "c=1", "a.0.b=3"],
            "'a.0.b=3': 'a.0.b' has a single value here, and a range or a list in another word; remove one of them",
        ),
        (
            ["a..b=1,2"],
            "'a..b=1,2': the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type",
        ),
    ],
)
def test_a_bad_key_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_words(words)
    assert str(refused.value) == message


def test_a_section_has_ranges_lists_and_texts() -> None:
    section = {
        "optim.optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "model.width": {"low": 8, "high": 32, "step": 8},
        "model.kind": {"values": ["a", "b"]},
        "model.depth": [1, 2],
        "seed": "0..5",
    }
    assert read_section(section, "x.yaml") == {
        "optim.optimizer.lr": Range(1e-4, 1e-1, log=True),
        "model.width": Range(8, 32, step=8),
        "model.kind": Choices(("a", "b")),
        "model.depth": Choices((1, 2)),
        "seed": Range(0, 5),
    }
    with pytest.raises(ConfigError) as refused:
        read_section({"seed": "5"}, "x.yaml")
    assert str(refused.value) == (
        "x.yaml sweep.space.seed: expected a range such as '1e-4..1e-1:log', or a list, found '5'; a single value "
        "belongs to the config itself"
    )


def test_the_command_line_wins_over_the_section() -> None:
    section = {"a": Choices((1, 2)), "b": Choices((1, 2)), "c": Choices((1, 2))}
    space = combine(section, {"a": Range(1, 9)}, ["b=1", "d=2"])
    assert dict(space) == {"a": Range(1, 9), "c": Choices((1, 2))}
    assert dict(combine({"a[0]": Range(1, 9)}, {"a.0": Choices((1, 2))}, [])) == {"a.0": Choices((1, 2))}


# ------------------------------------------------------------------------------------------------------------- space


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"a": Range(2, 1)}, "the search space, a: low is 2, which is above high, 1; write the lower one first"),
        (
            {"a": Range(1, 2**53 + 1)},
            "the search space, a: an int must be at most 9,007,199,254,740,992, because Optuna stores it as a float",
        ),
        (
            {"a": Range(0.0, 1e308, step=1e-10)},
            "the search space, a: a step of 1e-10 is too small for this range; use a larger one, or none",
        ),
        (
            {"a": Range(0.1, 1, step=1e-320)},
            "the search space, a: a step of 1e-320 is too small for this range; use a larger one, or none",
        ),
        ({"a": Range(0, 1, log=True)}, "the search space, a: a log range must begin above 0, not at 0"),
        ({"a": Range(1, 2, step=0)}, "the search space, a: step must be above 0, not 0"),
        ({"a": Range(1, 2, log=True, step=1)}, "the search space, a: a log range cannot have a step"),
        ({"a": Range(1, float("inf"))}, "the search space, a: high must be a finite number, not .inf"),
        ({"a": Choices(())}, "the search space, a: values is empty; give at least one"),
        ({"a": Choices((1, 2, 1))}, "the search space, a: 1 is listed twice"),
        ({"a": Choices((True, 1))}, "the search space, a: 1 and true are the same value"),
        ({"a": Choices((1.0, float("nan")))}, "the search space, a: a value must be finite, not .nan"),
        ({"work_dir": Choices((1, 2))}, "the search space, work_dir: a sweep sets 'work_dir' itself"),
        (
            {"a": Choices((1, 2)), "a.b": Choices((1, 2))},
            "the search space, a: it contains a.b, which has its own values; remove one",
        ),
        (
            {},
            "the search space is empty; give at least one range or list, such as optim.optimizer.lr=1e-4..1e-1:log or "
            "model.width=32,64,128, or a 'sweep: {space: ...}' section in the config",
        ),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Space(parameters).refuse_unusable()
    assert str(refused.value) == message


def grid(values: Values) -> list[Any]:
    """Return all values."""
    return [values.nth(index) for index in range(values.count or 0)]


def test_a_grid_has_every_combination_once_and_is_never_listed() -> None:
    space = Space({"a": Range(1, 2), "b": Choices(("x", [1], "y")), "c": Range(0, 10, step=5)})
    found = [space.combination(number) for number in range(space.combinations)]
    assert found == [{"a": a, "b": b, "c": c} for a in (1, 2) for b in ("x", "[1]", "y") for c in (0, 5, 10)]
    endless = Space({"a": Range(0, 2**53), "b": Range(0, 2**53)})
    assert endless.combinations == (2**53 + 1) ** 2
    assert endless.combination(2**53 + 3) == {"a": 1, "b": 2}


def test_steps_end_at_the_last_one_that_fits() -> None:
    assert (str(Range(1, 100, step=32)), grid(Range(1, 100, step=32))) == ("1..97:32", [1, 33, 65, 97])
    assert grid(Range(0.0, 0.3, step=0.1)) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    distribution: Any = Range(1, 100, step=32).distribution()
    assert (distribution.low, distribution.high, distribution.step) == (1, 97, 32)


def test_every_end_and_every_value_is_tried_out() -> None:
    space = Space({"lr": Range(1, 2.5), "kind": Choices(("a", [1], None))})
    assert list(space.corners()) == [
        ["lr=1.0", "kind=a"],
        ["lr=1.0", "kind=a", "lr=2.5"],
        ["lr=1.0", "kind=a", "kind=[1]"],
        ["lr=1.0", "kind=a", "kind=null"],
    ]


def test_values_come_back_from_optuna_as_they_were() -> None:
    space = Space({"a": Choices(([1, "x"], {"b": 2}, "text", "1")), "lr": Range(1e-5, 1.0)})
    for label, expected in zip(grid(space["a"]), ['[1, "x"]', '{"b": 2}', "text", '"1"'], strict=True):
        assert space.overrides({"a": label, "lr": 1.2345678901234567e-05}) == [
            f"a={expected}",
            "lr=1.2345678901234568e-05",
        ]


def test_a_grid_needs_lists_or_steps() -> None:
    with pytest.raises(ConfigError) as refused:
        _ = Space({"lr": Range(1e-4, 0.1, log=True)}).combinations
    assert str(refused.value) == (
        "--sampler grid needs a list or a step for every parameter, but lr is the range 0.0001..0.1:log; write values "
        "such as lr=0.001,0.01,0.1"
    )
