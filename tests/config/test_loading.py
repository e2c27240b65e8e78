"""Loading files with their bases, notices about conflicts, and writing YAML."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline.common.marks import Mark
from hookline.common.nodes import from_plain, plain
from hookline.common.yaml_file import dump
from hookline.common.yaml_text import parse
from hookline.config.loading import from_dict, load
from hookline.config.merging import merge, read_markers
from hookline.errors import ConfigError
from hookline.rundir import origin

Write = Callable[[str, str], Path]

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)
keys = st.sampled_from(["a", "b", "c"])
mappings = st.recursive(
    st.dictionaries(keys, st.integers() | st.lists(st.integers(), max_size=2), max_size=3),
    lambda inner: st.dictionaries(keys, inner | st.integers(), max_size=3),
    max_leaves=10,
)


def refused(path: str, overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return str(caught.value)


def test_a_file_is_merged_over_its_bases(write: Write) -> None:
    write("base/common.yaml", "seed: 1\ntrain: {max_epochs: 1, steps: [1, 2]}\n")
    write("base/more.yaml", "_base_: common.yaml\ntrain: {max_epochs: 2}\n")
    write("run.yaml", "_base_: [base/more.yaml]\ntrain:\n  steps: [3]\n")
    loaded = load("run.yaml")
    assert loaded.data == {"seed": 1, "train": {"max_epochs": 2, "steps": [3]}}
    assert loaded.file == Path("run.yaml")
    assert loaded.notices == []
    assert [
        loaded.locate(place) for place in [("seed",), ("train", "max_epochs"), ("train", "steps", 0), ("train", "x")]
    ] == [
        "base/common.yaml:1:1",
        "base/more.yaml:2:9",
        "run.yaml:3:11",
        "run.yaml:2:1",
    ]


def test_a_conflict_between_two_bases_is_reported_unless_the_file_decides(write: Write) -> None:
    write("a.yaml", "x: 1\ny: {z: [1], w: 1}\nsame: 3\n")
    write("b.yaml", "x: 2\ny: {z: [2], w: 2}\nsame: 3\n")
    write("run.yaml", "_base_: [a.yaml, b.yaml]\ny: {w: 3}\n")
    loaded = load("run.yaml")
    assert loaded.data == {"x": 2, "y": {"z": [2], "w": 3}, "same": 3}
    assert loaded.notices == [
        "b.yaml:1:1 x: 2 replaces 1 from a.yaml:1:1; to choose one of them, set it in run.yaml",
        "b.yaml:2:5 y.z: a list replaces a list from a.yaml:2:5; to choose one of them, set it in run.yaml",
    ]


def test_delete_replaces_and_leaves_no_trace(write: Write) -> None:
    write("a.yaml", "optim: {type: SGD, momentum: 0.9}\nkept: {x: 1}\n")
    write(
        "b.yaml", "optim: {_delete_: true, type: Adam}\nkept: {_delete_: false, y: 2}\nnew: [{_delete_: true, q: 1}]\n"
    )
    write("run.yaml", "_base_: [a.yaml, b.yaml]\n")
    loaded = load("run.yaml")
    assert loaded.data == {"optim": {"type": "Adam"}, "kept": {"x": 1, "y": 2}, "new": [{"q": 1}]}
    assert loaded.notices == []


def test_delete_applies_to_all_earlier_bases(write: Write) -> None:
    write("a.yaml", "optim: {momentum: 0.9}\n")
    write("clean.yaml", "optim: {_delete_: true, type: Adam}\n")
    write("b.yaml", "_base_: clean.yaml\noptim: {lr: 1}\n")
    write("run.yaml", "_base_: [a.yaml, b.yaml]\n")
    assert load("run.yaml").data == {"optim": {"type": "Adam", "lr": 1}}


def test_a_shared_base_is_read_once(write: Write) -> None:
    write("f0.yaml", "x: 1\n")
    for number in range(1, 40):
        write(f"f{number}.yaml", f"_base_: [f{number - 1}.yaml, f{number - 1}.yaml]\n")
    assert load("f39.yaml").data == {"x": 1}


def test_the_number_of_nested_bases_is_limited(write: Write) -> None:
    for number in range(60):
        write(f"f{number}.yaml", f"_base_: f{number + 1}.yaml\n")
    assert refused("f0.yaml") == "f0.yaml: _base_ is nested more than 50 files deep"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("_base_: other.yaml", "run.yaml: _base_ is circular: other.yaml"),
        ("_base_: comon.yaml", "run.yaml:1:1 _base_: file not found: comon.yaml; did you mean 'common.yaml'?"),
        ("_base_: nowhere/x.yaml", "run.yaml:1:1 _base_: file not found: nowhere/x.yaml; there is no folder nowhere"),
        ("_base_: [common.yaml, 3]", "run.yaml:1:23 _base_: expected a path or a list of paths, found 3"),
        (
            "model: {_base_: common.yaml}",
            "run.yaml:1:9 model._base_: _base_ is only allowed at the top level of a file",
        ),
        ("a: {_delete_: 1}", "run.yaml:1:5 a._delete_: expected true or false, found 1"),
    ],
)
def test_invalid_bases_are_refused(write: Write, text: str, message: str) -> None:
    write("common.yaml", "x: 1\n")
    write("other.yaml", "_base_: run.yaml\n")
    write("run.yaml", text)
    if "circular" in message:
        assert refused("run.yaml") == "other.yaml: _base_ is circular: run.yaml -> other.yaml -> run.yaml"
    else:
        assert refused("run.yaml") == message


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    write("digits.yaml", "x: 1\n")
    write("list.yaml", "- 1\n")
    write("empty.yaml", "# nothing\n")
    Path("binary.yaml").write_bytes(b"\x7fELF\0\0")
    Path("latin.yaml").write_bytes("a: 1\nb: caf\xe9\n".encode("latin-1"))
    Path("large.yaml").write_bytes(b"#" * 1_000_001)
    assert [
        refused("digit.yml"),
        refused("zzzzzzz.yaml"),
        refused("no/where.yaml"),
        refused("."),
        refused("list.yaml"),
        refused("empty.yaml"),
        refused("binary.yaml"),
        refused("latin.yaml"),
        refused("large.yaml"),
        refused("a\0b.yaml"),
    ] == [
        "digit.yml: file not found; did you mean 'digits.yaml'?",
        "zzzzzzz.yaml: file not found; to create a project with a config: hookline init FOLDER",
        "no/where.yaml: file not found; there is no folder no",
        ".: this is a folder, not a YAML file",
        "list.yaml:1:1: a config must be a mapping of keys to values, not a list",
        "empty.yaml: the file is empty; a config must be a mapping of keys to values",
        "binary.yaml: this is a binary file, not YAML",
        "latin.yaml:2:7: the file is not UTF-8 text",
        "large.yaml: the file is larger than 1,000,000 bytes; this is not a config",
        "'a\\x00b.yaml': a path cannot contain a NUL character",
    ]


def test_a_byte_order_mark_is_ignored(write: Write) -> None:
    Path("bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load("bom.yaml").data == {"a": 1}


def test_a_dict_is_copied_and_its_position_is_config() -> None:
    given = {"model": {"type": "Net", "sizes": (1, 2)}, "x": "${model.type}"}
    before = copy.deepcopy(given)
    loaded = from_dict(given, ["model.sizes.0=5"])
    assert given == before
    assert loaded.data == {"model": {"type": "Net", "sizes": [5, 2]}, "x": "Net"}
    assert (loaded.locate(("x",)), loaded.locate(("model", "sizes", 0))) == ("config", "override 'model.sizes.0=5'")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"a": [object()]},
            "config a[0]: a config must contain only plain values (strings, numbers, true and false, null, lists, "
            "mappings), not object",
        ),
        ({"a": {1: 2}}, "config a: a key must be a string, not 1"),
        ({"_base_": "x.yaml"}, "config _base_: only a file can have a base"),
        ({"a": [1, 16**100_000]}, "config a[1]: the number has 400001 bits, too many to read"),
        ({"a": "x\0"}, "config a: the text has a character that files cannot store (NUL or an unpaired surrogate)"),
    ],
)
def test_python_data_that_yaml_cannot_express_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(value)
    assert str(caught.value) == message


def test_a_dict_that_contains_itself_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["a"] = circle
    with pytest.raises(ConfigError) as caught:
        from_dict(circle)
    assert (
        str(caught.value) == "config: more than 100 levels deep, or a part of it contains itself; this is not a config"
    )


def test_dump_is_plain_and_keeps_the_order() -> None:
    shared = [1, 2]
    data = {"z": shared, "a": shared, "lr": 1e-3, "name": "on", "none": None, "text": "1e-3", "empty": "", "m": {}}
    assert dump(data) == (
        "z:\n- 1\n- 2\na:\n- 1\n- 2\nlr: 0.001\nname: on\nnone: null\ntext: '1e-3'\nempty: ''\nm: {}\n"
    )


@pytest.mark.parametrize(
    "text", [".5e3", "1.e3", "+1", "017", "0o7", "0x1f", "~", "Null", "-.INF", "9" * 5000, "- a", "a: b", "*x"]
)
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    assert plain(parse(dump({"a": text}), lambda line, column: Mark("x", line, column))) == {"a": text}


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(texts, values, max_size=4))
def test_dumped_data_reads_back_the_same(data: dict[str, Any]) -> None:
    again = plain(parse(dump(data), lambda line, column: Mark("x", line, column)))
    assert again == data
    assert repr(again) == repr(data)


@given(mappings, mappings, mappings)
def test_merging_is_associative_and_idempotent_and_the_later_wins(a: Any, b: Any, c: Any) -> None:
    one, two, three = (read_markers(from_plain(value, Mark("x"))) for value in (a, b, c))
    assert plain(merge(merge(one, two), three)) == plain(merge(one, merge(two, three)))
    assert plain(merge(one, one)) == a
    merged = plain(merge(one, two))
    assert list(merged) == [*a, *(key for key in b if key not in a)]
    for key, value in b.items():
        if not isinstance(value, dict):
            assert merged[key] == value


def test_a_config_that_was_made_from_another_one_finds_the_modules_next_to_that(write: Write, tmp_path: Path) -> None:
    write("configs/mine.yaml", "a: 1\n")
    comment = origin.describe(Path("configs/mine.yaml"))
    assert comment == f'# resolved from "configs/mine.yaml" in "{tmp_path}"\n'
    assert load(write("runs/sweep/best.yaml", f"{comment}a: 2\n")).modules == tmp_path / "configs"
    assert load(write("runs/sweep/best.yaml", "a: 2\n")).modules is None
    elsewhere = '# resolved from "configs/mine.yaml" in "/"\n'.replace("configs", str(tmp_path.parent))
    assert load(write("runs/sweep/best.yaml", f"{elsewhere}a: 2\n")).modules is None, "outside, it is not trusted"
