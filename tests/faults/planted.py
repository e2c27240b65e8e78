"""The planted causes of NaN and Inf, and what a triage has to say about each. The figure TRIAGE counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hookline.data import ResumableLoader
from hookline.data.batches import identify
from hookline.data.sources import shared
from tests.faults.nans import GIVEN, SAMPLE, SIZE, Data


@dataclass(frozen=True)
class Planted:
    """A cause, and what a triage has to say.

    Args:
        options: How the run is built; see `build`.
        direction: The pass, or the hook.
        module: The name of the module; None outside of the model.
        samples: True if it began with sample 29 alone.
        step: The step; 0 for the first step with sample 29.
        text: A part of the sentence.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    direction: str = "forward"
    module: str | None = None
    samples: bool = True
    step: int = 0
    text: str = ""


def _of_module(name: str, way: str, direction: str = "forward", text: str = "", **options: Any) -> Planted:
    return Planted(name, {"way": way, **options}, direction, "cause", text=text or "module 'cause' (Cause)")


def _of_hook(name: str, point: str, step: int, what: str, text: str) -> Planted:
    return Planted(name, {"spoil": [point, step, what]}, f"hook Spoils at {point}", step=step, samples=False, text=text)


PLANTED = [
    Planted("a feature is NaN", {"data": "nan"}, text="the data: batch[0] has NaN for sample 29"),
    Planted("a feature is Inf", {"data": "inf"}, text="the data: batch[0] has Inf for sample 29"),
    Planted("a target is NaN", {"data": "target"}, text="the data: batch[1] has NaN for sample 29"),
    _of_module("the logarithm of 0", "log", text="log in module 'cause' (Cause) made Inf for sample 29"),
    _of_module("0 divided by 0", "divide", text="div in module"),
    _of_module("exp overflows", "exp", text="exp in module"),
    _of_module("the square root of -1", "root of -1", text="sqrt in module"),
    _of_module("the arc cosine of 2", "acos", text="acos in module"),
    _of_module("a row of attention is masked", "attention", text="softmax in module"),
    _of_module("the halves of a sample are rows", "heads", text="div in module"),
    _of_module("the batch is the second dimension", "time first", text="log in module"),
    _of_module("fp16 overflows, with a scaler", "half", precision="fp16", checked="raise", text="_to_copy in module"),
    _of_module("the logarithm of 0 in bf16", "log", precision="bf16", text="log in module"),
    _of_module("the logarithm of 0 in compiled code", "log", compiled=True, text="log in module"),
    _of_module("the logarithm of 0 in a loop of the user", "log", own_loop=True, text="log in module"),
    Planted("0 divided by 0 outside of modules", {"step": "functional_code"}, text="div, outside of modules, made NaN"),
    Planted(
        "a term of the loss",
        {"step": "terms"},
        text="log, outside of modules, made Inf for sample 29, in the term loss_log",
    ),
    Planted(
        "the second loss of a step", {"step": "updates_twice"}, samples=False, text="div, outside of modules, made"
    ),
    _of_module("the gradient of a square root", "root of 0", "backward"),
    _of_module("a square root while gradients accumulate", "root of 0", "backward", accumulate=4),
    _of_module("a square root that is computed again", "recomputed", "backward"),
    _of_module("a branch that is not taken", "where", "backward"),
    _of_module("a function with its own gradient", "function", "backward"),
    Planted("a square root outside of modules", {"step": "functional_gradient"}, "backward"),
    Planted("the gradient of a gradient", {"step": "penalty"}, "backward"),
    Planted(
        "a target of NaN behind where",
        {"data": "target", "step": "masked"},
        "backward",
        text="the data: batch[1] has NaN for sample 29, although the loss is finite",
    ),
    Planted(
        "a hook has skipped a batch, but not its statistics",
        {"data": "nan", "checked": "skip"},
        text="the data: batch[0] has NaN for sample 29",
    ),
    Planted(
        "a scaler has skipped steps before",
        {"data": "nan", "precision": "fp16", "checked": "raise", "step": "large"},
        text="the data: batch[0] has NaN for sample 29",
    ),
    Planted(
        "a hook has skipped a batch before",
        {"data": "target", "checked": "skip", "spoil": ["after_train_iter", 9, "weight"]},
        *("hook Spoils at after_train_iter", None, False, 9, "it made last.weight NaN"),
    ),
    Planted(
        "Adam divides 0 by 0",
        {"eps": 0.0},
        "update",
        step=1,
        samples=False,
        text="the optimizer made first.bias, table.weight NaN",
    ),
    _of_hook("a hook spoils a gradient", "after_backward", 3, "gradient", "it made the gradient of last.weight NaN"),
    _of_hook("a hook spoils a weight", "after_train_iter", 3, "weight", "it made last.weight NaN"),
    _of_hook("a hook spoils a buffer", "after_train_iter", 3, "buffer", "it made norm.running_mean NaN"),
    _of_hook("a hook spoils a row that is used later", "after_train_iter", 1, "table", "it made table.weight NaN"),
    _of_hook("a hook spoils a weight between epochs", "after_train_epoch", 9, "weight", "it made last.weight NaN"),
    _of_hook("a hook spoils a weight before training", "before_train", 1, "weight", "it made last.weight NaN"),
]


#: The same in two processes, of which one has sample 29.
OF_TWO = [
    _of_module("the logarithm of 0 in one of two processes", "log", text="log in module", nproc=2),
    _of_module("a square root in one of two processes", "root of 0", "backward", nproc=2),
    _of_module("a square root in a sharded model", "root of 0", "backward", nproc=2, strategy="fsdp"),
]


def step_of_sample(processes: int = 1) -> int:
    """Return the first step in which a process has sample 29."""
    steps = []
    for rank in range(processes):
        loader = ResumableLoader(Data(), batch_size=SIZE, shuffle=True)
        loader.seed = GIVEN["seed"]
        order = shared(loader, rank, processes, True)
        steps += [n + 1 for n in range(8) if (found := identify(order, 0, n)) is not None and SAMPLE in found[1]]
    return min(steps)


def problems(cause: Planted, found: dict[str, Any]) -> str:
    """Return what is wrong with the result of a triage; empty if nothing is."""
    expected = {
        "step": cause.step or step_of_sample(cause.options.get("nproc", 1)),
        "direction": cause.direction,
        "module": cause.module,
        "ids": [SAMPLE] if cause.samples else None,
    }
    wrong = [
        f"{name} {found.get(name)!r} instead of {value!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    wrong += [f"the sentence is: {found['sentence']}"] * (bool(wrong) or cause.text not in found["sentence"])
    return "; ".join(wrong)
