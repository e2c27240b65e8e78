"""The drawing of the loop in hookline.plan.points matches recorded runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hookline.plan.points
from hookline.errors import HookError
from hookline.plan.points import POINTS, SCOPES, user_point
from hookline.testing import Recorder, toy_runner

SECTIONS = ["train(), by epochs", "train(), by iterations", "epoch", "iteration", "validation", "val()", "test()"]


def drawings() -> dict[str, str]:
    """Return each drawn section as a regular expression over the names that a Recorder records."""
    blocks = re.split(r"\n\s*\n", hookline.plan.points.__doc__ or "")
    drawn = {block.strip().splitlines()[0]: block.strip().splitlines()[1:] for block in blocks if "\n    ┌" in block}
    assert list(drawn) == SECTIONS
    return {title: to_pattern(lines, drawn) for title, lines in drawn.items()}


def to_pattern(lines: list[str], drawn: dict[str, list[str]]) -> str:
    pattern = ""
    open_scopes: list[tuple[str, str]] = []
    for line in lines:
        content = line.replace("│", " ").strip()
        match = re.match(r"(┌ |> )?(\w+)( [*?])?(\s|$)", content)
        if content == "└":
            name, mark = open_scopes.pop()
            pattern += rf"leave {name};){mark}"
            continue
        assert match, line
        kind, name, mark = match[1], match[2], {" *": "+", " ?": "?", None: ""}[match[3]]
        if kind == "┌ ":
            open_scopes.append((name, mark))
            pattern += rf"(?:enter {name};"
        elif kind == "> ":
            pattern += rf"(?:{to_pattern(drawn[name], drawn)}){mark}"
        else:
            assert name in POINTS
            pattern += rf"(?:{name};){mark}"
    assert not open_scopes
    return pattern


def record(verb: str = "train", **parts: Any) -> str:
    recorder = Recorder()
    runner = toy_runner(custom_hooks=[recorder], **parts)
    getattr(runner, verb)()
    return "".join(f"{name};" for name in recorder.names)


@pytest.mark.parametrize(
    ("section", "verb", "parts"),
    [
        ("train(), by epochs", "train", {"max_epochs": 2}),
        ("train(), by epochs", "train", {"max_epochs": 3, "batches": 5, "accumulate": 2, "train": {"val_begin": 0}}),
        ("train(), by iterations", "train", {"max_iters": 7, "train": {"val_interval": 2}}),
        ("train(), by iterations", "train", {"max_iters": 3, "accumulate": 2, "train": {"val_begin": 0}}),
        ("val()", "val", {}),
        ("test()", "test", {}),
    ],
)
def test_a_recorded_run_matches_the_drawing(section: str, verb: str, parts: dict[str, Any]) -> None:
    recorded = record(verb, **parts)
    assert re.fullmatch(drawings()[section], recorded), recorded


def test_one_drawing_does_not_match_another_kind_of_run() -> None:
    patterns = drawings()
    assert not re.fullmatch(patterns["train(), by iterations"], record(max_epochs=2))
    assert not re.fullmatch(patterns["val()"], record("test"))


def test_every_point_and_scope_is_drawn() -> None:
    text = hookline.plan.points.__doc__ or ""
    assert [name for name in POINTS if not re.search(rf"\b{name}\b", text)] == []
    assert [name for name in SCOPES if f"┌ {name.removeprefix('around_')}" not in text] == []


def test_the_22_points_of_mmengine_are_there_with_their_arguments() -> None:
    batch, outputs = ("batch_idx", "data_batch"), ("batch_idx", "data_batch", "outputs")
    expected: dict[str, tuple[str, ...]] = {"before_run": (), "after_run": ()}
    for stage in ("train", "val", "test"):
        metrics = () if stage == "train" else ("metrics",)
        expected |= {f"before_{stage}": (), f"after_{stage}": ()}
        expected |= {f"before_{stage}_epoch": (), f"after_{stage}_epoch": metrics}
        expected |= {f"before_{stage}_iter": batch, f"after_{stage}_iter": outputs}
    expected |= {"before_save_checkpoint": ("checkpoint",), "after_load_checkpoint": ("checkpoint",)}
    assert len(expected) == 22
    assert {name: POINTS[name].arguments for name in expected} == expected
    assert {name: POINTS[name].arguments for name in POINTS if name not in expected} == {
        "before_backward": ("outputs",),
        "after_backward": ("outputs",),
        "before_optimizer_step": (),
        "after_optimizer_step": (),
        "on_exception": ("error",),
    }


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("before_run", (), "the point 'before_run' already exists: before_run(runner)"),
        ("after render", (), "the point 'after render' needs valid Python names, and 'after render' is not one"),
        ("after_render", ("class",), "the point 'after_render' needs valid Python names, and 'class' is not one"),
        ("after_render", "image", "the arguments of the point 'after_render' must be a tuple of names, not 'image'"),
        (
            "around_render",
            (),
            "'around_render' cannot be a point: names that begin with 'around_' belong to scopes; call it 'before_...'",
        ),
        (
            "after_render",
            ("image", "image"),
            "the arguments of the point 'after_render' must be different names, without 'runner': ('image', 'image')",
        ),
    ],
)
def test_a_point_of_ones_own_that_cannot_be_is_refused(name: str, arguments: Any, message: str) -> None:
    with pytest.raises(HookError) as refused:
        user_point(name, arguments)
    assert str(refused.value) == message
