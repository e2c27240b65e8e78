"""YAML text becomes plain values with positions. Anything that is not plain is refused with its position."""

from __future__ import annotations

import contextlib
import math
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline.common.marks import Mark
from hookline.common.nodes import plain, walk
from hookline.common.yaml_text import parse
from hookline.errors import ConfigError


def read(text: str) -> Any:
    return plain(parse(text, lambda line, column: Mark("x.yaml", line, column)))


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.0e-3", 0.001),
        ("-.5", -0.5),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("+3", 3),
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("", None),
        ("2026-01-31", "2026-01-31"),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("-.inf", -math.inf),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = read(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(read("a: .nan")["a"])


def test_every_key_and_item_has_its_position() -> None:
    root = parse("a: 1\nb:\n  - x\n  - {c: 2}\n", lambda line, column: Mark("x.yaml", line, column))
    assert {keys: str(node.mark) for keys, node in walk(root)} == {
        (): "x.yaml:1:1",
        ("a",): "x.yaml:1:1",
        ("b",): "x.yaml:2:1",
        ("b", 0): "x.yaml:3:5",
        ("b", 1): "x.yaml:4:5",
        ("b", 1, "c"): "x.yaml:4:6",
    }


def test_anchors_and_merge_keys() -> None:
    text = """
a: &a {x: 1, y: 1}
b: &b {y: 2, z: 2}
c: {<<: *a, y: 3}
d: {y: 4, <<: [*a, *b]}
e: *a
f: {<<: [*a, *b]}
"""
    assert read(text) == {
        "a": {"x": 1, "y": 1},
        "b": {"y": 2, "z": 2},
        "c": {"x": 1, "y": 3},
        "d": {"x": 1, "y": 4, "z": 2},
        "e": {"x": 1, "y": 1},
        "f": {"x": 1, "y": 1, "z": 2},
    }


def test_values_of_aliases_are_not_shared() -> None:
    data = read("a: &a [1]\nb: *a")
    data["a"].append(2)
    assert data["b"] == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "m: !!python/object/apply:os.system [ls]",
            "x.yaml:1:4 m: the tag '!!python/object/apply:os.system' is not allowed; a config must "
            "contain only plain values",
        ),
        ("m: {n: !Foo 1}", "x.yaml:1:8 m.n: the tag '!Foo' is not allowed; a config must contain only plain values"),
        ("m: !!set {a}", "x.yaml:1:4 m: the tag '!!set' is not allowed; a config must contain only plain values"),
        (
            "!!python/name:os.system : 1",
            "x.yaml:1:1: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed; a key must be a plain "
            "string",
        ),
        ("a: 1\nb: 2\na: 3", "x.yaml:3:1 a: duplicate key, already given at x.yaml:1:1"),
        ("a: {<<: {x: 1}, <<: {y: 1}}", "x.yaml:1:17 a.<<: duplicate key, already given at x.yaml:1:5"),
        ("a: {<<: 3}", "x.yaml:1:9 a.<<: '<<' takes a mapping or a list of them, not 3"),
        ("a: {1: x}", "x.yaml:1:5 a: a key must be a string, not 1; write it in quotes: '1'"),
        ("true: x", "x.yaml:1:1: a key must be a string, not true; write it in quotes: 'true'"),
        ("? [a]\n: x", "x.yaml:1:3: a key must be a string, not a list, a mapping or an alias"),
        ("a: &a [*a]", "x.yaml:1:8 a[0]: '*a' is used inside its own anchor '&a'"),
        ("a: *.bias", "x.yaml:1:4 a: no anchor '&.bias' before this '*.bias'; if this is text, write it in quotes"),
        ("a: [1", "x.yaml:1:6: invalid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\t- b", "x.yaml:2:1: invalid YAML: found character '\\t' that cannot start any token"),
        ("a: b: c", "x.yaml:1:5: invalid YAML: mapping values are not allowed here"),
        (
            "a: {b: ${c}}",
            "x.yaml:1:9: invalid YAML: expected ',' or '}', but got '{'; inside [] and {}, write ${...} in quotes",
        ),
        ("a: 1\nb: \x01", "x.yaml:2:4: invalid YAML: the character '\\x01' is not allowed"),
        (
            'a: "\\ud800"',
            "x.yaml:1:4 a: the text has a character that files cannot store (NUL or an unpaired surrogate)",
        ),
        ('a: "\\0"', "x.yaml:1:4 a: the text has a character that files cannot store (NUL or an unpaired surrogate)"),
        (
            'a: 1\nb: "x\\UFFFFFFFF"',
            "x.yaml:2:8: invalid YAML: the escape \\UFFFFFFFF stands for no character; the last one is \\U0010FFFF",
        ),
        (
            'a: "\\U00110000"',
            "x.yaml:1:7: invalid YAML: the escape \\U00110000 stands for no character; the last one is \\U0010FFFF",
        ),
        (
            'a: "\\xZZ"',
            "x.yaml:1:7: invalid YAML: expected escape sequence of 2 hexdecimal numbers, but found 'Z'",
        ),
        ("a: " + "9" * 5000, "x.yaml:1:4 a: the number has 5000 digits, too many to read"),
        ("a: -" + "9" * 2000, "x.yaml:1:4 a: the number has 2000 digits, too many to read"),
        ("a: 0x" + "F" * 100_000, "x.yaml:1:4 a: the number has 100000 digits, too many to read"),
        ("a: 0o" + "7" * 100_000, "x.yaml:1:4 a: the number has 100000 digits, too many to read"),
        ("a: 1\n---\nb: 2", "x.yaml:2:1: a second document starts here; a config must be a single document"),
    ],
)
def test_refusals_say_where_and_what(text: str, message: str) -> None:
    assert refused(text) == message


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(30), "x.yaml:5:5 a4: more than 20,000 values, counting repeated ones; this is not a config"),
        ("a: [" + "x, " * 30_000 + "]", "x.yaml:1:59999 a: more than 20,000 values; this is not a config"),
        ("a: " + "[" * 100_000, "x.yaml:1:104 a: more than 100 levels deep; this is not a config"),
        (
            "\n".join(" " * n + "a:" for n in range(500)),
            "x.yaml:102:102 a: more than 100 levels deep; this is not a config",
        ),
        (
            "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]" for n in range(1, 50))]),
            "x.yaml:11:12 a10[0]: more than 100 levels deep; this is not a config",
        ),
    ],
    ids=["aliases", "values", "brackets", "indent", "deep aliases"],
)
def test_bombs_are_refused_quickly(text: str, message: str) -> None:
    start = time.perf_counter()
    assert refused(text) == message
    assert time.perf_counter() - start < 10  # takes about two seconds; the rest is a margin for a busy machine


def test_an_alias_bomb_costs_under_a_second_and_little_memory() -> None:
    tracemalloc.start()
    start = time.perf_counter()
    refused(bomb(1000))
    assert time.perf_counter() - start < 1
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("abc01:-?[]{},&*!|>'\"%@`#~<. \n\t\\$"), max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read(text)
        return
    assert "\n" not in refused(text)
