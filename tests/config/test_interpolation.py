"""References with `${...}`, and values that must still be set: `???`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline.config.loading import from_dict, load
from hookline.errors import ConfigError

Write = Callable[[str, str], Path]


def refused(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        from_dict(config)
    return str(caught.value)


def test_references_become_values_and_parts_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKLINE_X", "42")
    monkeypatch.delenv("HOOKLINE_Y", raising=False)
    config = {
        "lr": 0.5,
        "on": True,
        "data": {"sizes": [1, 2], "first": "${data.sizes[0]}", "dotted": "${data.sizes.1}"},
        "copy": "${data}",
        "through": "${copy.sizes}",
        "text": "lr=${lr}, ${on}, ${ lr }",
        "env": "${oc.env:HOOKLINE_X}",
        "default": "${oc.env:HOOKLINE_Y, a b}",
        "kept": "\\${lr}",
        "kept_copy": "${kept}",
    }
    data = {"sizes": [1, 2], "first": 1, "dotted": 2}
    assert from_dict(config).data == {
        "lr": 0.5,
        "on": True,
        "data": data,
        "copy": data,
        "through": [1, 2],
        "text": "lr=0.5, true, 0.5",
        "env": "42",
        "default": "a b",
        "kept": "${lr}",
        "kept_copy": "${lr}",
    }


def test_a_text_that_looks_like_a_reference_after_resolving_is_not_resolved_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOKLINE_X", "${secret}")
    config = {"secret": "s", "a": {"b": "${oc.env:HOOKLINE_X}"}, "c": "${a}", "d": "${c.b}", "e": "${a.b}!"}
    assert from_dict(config).data == {
        "secret": "s",
        "a": {"b": "${secret}"},
        "c": {"b": "${secret}"},
        "d": "${secret}",
        "e": "${secret}!",
    }


def test_overrides_are_applied_before_references(write: Write) -> None:
    write("run.yaml", "lr: 1\nx: ${lr}\n")
    loaded = load("run.yaml", ["lr=2"])
    assert loaded.data == {"lr": 2, "x": 2}
    assert loaded.locate(("x",)) == "run.yaml:2:1"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lr": 1, "x": "${lrr}"}, "config x: ${lrr} does not exist; did you mean 'lr'?"),
        (
            {"a": {"bc": 1}, "x": ["${a.bd}"]},
            "config x[0]: ${a.bd} does not exist; did you mean 'a.bc'?",
        ),
        ({"a": [1], "x": "${a.3}"}, "config x: ${a.3} does not exist; 'a' is a list of length 1"),
        ({"a": 1, "x": "${a.b}"}, "config x: ${a.b} does not exist; 'a' is 1"),
        ({"a": "${b}", "b": "x${a}"}, "config a: circular reference: a -> b -> a"),
        ({"a": {"b": "${a}"}}, "config a: circular reference: a -> a.b -> a"),
        ({"a": "${a}"}, "config a: circular reference: a -> a"),
        ({"a": [1], "x": "n${a}"}, "config x: ${a} is a list, which cannot be inserted into a text"),
        (
            {"x": "${oc.decode:1}"},
            "config x: ${oc.decode:...} is not allowed; use ${key.path} or ${oc.env:NAME,default}",
        ),
        (
            {"x": "${eval:1}"},
            "config x: ${eval:...} is not allowed; use ${key.path} or ${oc.env:NAME,default}",
        ),
        (
            {"a": "b", "x": "${${a}}"},
            "config x: '${$' is not a valid reference; write ${key.path}, without braces in it",
        ),
        ({"x": "${}"}, "config x: '${}' is not a valid reference; write ${key.path}"),
        ({"x": "${a"}, "config x: '${a' is not a valid reference; write ${key.path}, without braces in it"),
        (
            {"x": "${oc.env:HOOKLINE_NOT_SET}"},
            "config x: the environment variable HOOKLINE_NOT_SET is not set; "
            "to give a default, write ${oc.env:HOOKLINE_NOT_SET,default}",
        ),
    ],
)
def test_invalid_references_are_refused(config: dict[str, Any], message: str) -> None:
    assert refused(config) == message


def test_all_missing_values_are_listed(write: Write) -> None:
    write("run.yaml", "a: ???\nb:\n  - c: '???'\nd: ${a}\n")
    with pytest.raises(ConfigError) as caught:
        load("run.yaml")
    assert str(caught.value) == (
        "run.yaml: 2 errors\n  run.yaml:1:1  a: this value is ??? and must be set\n"
        "  run.yaml:3:5  b[0].c: this value is ??? and must be set"
    )
    assert load("run.yaml", ["a=1", "b.0.c=2"]).data == {"a": 1, "b": [{"c": 2}], "d": 1}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"a0": "x" * 10, **{f"a{n}": f"${{a{n - 1}}}" * 10 for n in range(1, 20)}},
            "config a5: the references expand to more than 1,000,000 characters",
        ),
        (
            {"a0": ["x"], **{f"a{n}": [f"${{a{n - 1}}}"] * 10 for n in range(1, 20)}},
            "config a4: more than 20,000 values, counting repeated ones; this is not a config",
        ),
        (
            {**{f"a{n}": f"${{a{n + 1}}}" for n in range(5000)}, "a5000": 1},
            "config a100: a chain of more than 100 references; this is not a config",
        ),
    ],
    ids=["texts", "values", "chain"],
)
def test_references_cannot_be_a_bomb(config: dict[str, Any], message: str) -> None:
    start = time.perf_counter()
    assert refused(config) == message
    assert time.perf_counter() - start < 1
