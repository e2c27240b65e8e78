"""The sentence of a triage, and which process it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hookline.replay.preparation import UNKNOWN, Task
from hookline.replay.verdict import Verdict, choose

TASK = Task(Path("runs/x"), None, 0, 1, 9, None, 1, UNKNOWN, None)


def origin(kind: str = "operation", name: str = "div", phase: str = "forward", **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "inputs": [],
        "result": "1 of 4 numbers are NaN",
        "rows": None,
        "module": None,
        "module_type": "",
    }
    return {**given, "place": "", "kind": kind, "name": name, "phase": phase, **more}


def finding(symptom: str = "loss", of: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"step": 5, "epoch": 1, "batch": 5, "rank": 0, "names": ["w"], "count": 1, "loss": "nan", "terms": {}}
    more = {
        "samples": "samples",
        "ids": [7, 3, 9, 1],
        "overflows": [],
        "traced": True,
        "without_compiler": False,
    } | more
    return {**given, "symptom": symptom, "origin": of, **more}


#: What is made, the pass, and the cause.
DIV = "div, outside of modules, made NaN"
TERMS = {"loss": "nan", "loss_a": "nan", "loss_b": 1.0}
BACKWARD, FINITE = origin(phase="backward"), "although the loss is finite"
SENTENCES = [
    (finding(of=origin()), "forward pass", DIV),
    (finding(of=origin(rows=[1, 2])), "forward pass", f"{DIV} for samples 3, 9"),
    (finding(of=origin(rows=[0, 1, 2, 3])), "forward pass", f"{DIV} for all 4 samples"),
    (finding(of=origin(rows=[1]), samples="rows", ids=[0, 1]), "forward pass", f"{DIV} for row 1"),
    (finding(of=origin(module="a.b", module_type="Net")), "forward pass", "div in module 'a.b' (Net) made NaN"),
    (finding(of=origin(module="", module_type="Net")), "forward pass", "div in the model (Net) made NaN"),
    (finding(of=origin(module_type="Loss")), "forward pass", "div in Loss, outside of the model, made NaN"),
    (finding(of=origin(), terms=TERMS), "forward pass", f"{DIV}, in the term loss_a"),
    (finding(of=origin("parameter", "w", "")), "forward pass", "the parameter w had NaN before"),
    (finding(of=origin("outside", "a tensor", "")), "forward pass", "a tensor has NaN"),
    (finding("gradient", origin()), "backward pass", f"{DIV}, {FINITE}"),
    (finding("gradient", BACKWARD), "backward pass", f"the gradient of {DIV}, {FINITE}"),
    (finding("gradient"), "backward pass", "the gradient of w is not finite, although the loss is"),
    (finding("weight"), "update", "w became NaN or Inf"),
    (finding(of=origin(phase="hook H at after_val")), "hook H at after_val", DIV),
    (finding("weight", origin(phase="hook H at after_val")), "hook H at after_val", "it made w NaN (div)"),
    (finding(), "forward pass", "the loss became nan, but no operation that was seen made it so"),
]


@pytest.mark.parametrize(("found", "place", "cause"), SENTENCES)
def test_the_sentence_says_the_step_the_pass_and_the_cause(found: dict[str, Any], place: str, cause: str) -> None:
    article = "" if place.startswith("hook") else "the "
    assert Verdict(TASK, found).sentence == f"it began in step 5, in {article}{place}: {cause}"


def test_a_weight_may_be_bad_before_the_step() -> None:
    before = Verdict(TASK, finding("between", origin("buffer", "b", ""), step=1)).sentence
    assert before == "it began in step 1, before the step: the buffer b had NaN at the start"
    assert Verdict(TASK, finding("between", origin())).sentence == f"it began in step 5, before the step: {DIV}"


def test_an_optimizer_may_make_it_of_finite_gradients() -> None:
    text = "in the update: the optimizer made w NaN, although the gradients are finite (mul)"
    assert (
        Verdict(TASK, finding("weight", origin(name="mul", phase="update"))).sentence == f"it began in step 5, {text}"
    )


def test_numbers_that_are_all_finite_are_said_to_be_so() -> None:
    assert Verdict(TASK, None).lines() == ["no NaN or Inf was found in steps 1 to 9"]


def test_the_evidence_follows_the_sentence() -> None:
    of = origin(inputs=["float32 (4,) from 0.0000 to 1.0000"], place="net.py:3, in forward: x / y")
    found = finding("gradient", of, names=["a", "b"], count=7, loss=0.25, overflows=[1, 2], without_compiler=True)
    assert Verdict(TASK, found).lines()[1:] == [
        "  batch 5 of epoch 1",
        "  line: net.py:3, in forward: x / y",
        "  input: float32 (4,) from 0.0000 to 1.0000",
        "  result: 1 of 4 numbers are NaN",
        "  not finite: a, b and 5 more",
        "  the loss of this step: 0.2500",
        "  the gradient scaler skipped 2 steps before, as usual: 1, 2",
        "  compiled code ran without its compiler in this step",
    ]


def test_the_process_is_named_in_which_it_began() -> None:
    received = finding("gradient", origin("outside", "a tensor", ""), rank=0)
    began = finding("loss", origin(), rank=1)
    assert choose([received, began]) is began
    assert choose([finding("gradient", origin(), rank=0), began]) is began
    assert choose([began, finding(of=origin(), step=4, rank=2)]) == finding(of=origin(), step=4, rank=2)
    assert choose([]) is None
