"""ActivationStatsHook: numbers as computed by hand, at exactly the requested iterations, and no effect on training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, HookError
from hookline.hooks import ActivationStatsHook, EMAHook
from hookline.hooks.activation_stats import statistics
from hookline.testing import toy_data, toy_model, toy_runner

NAMES = ("mean", "std", "absmax", "norm", "zeros", "nonfinite")


def by_hand(tensor: Tensor) -> dict[str, float]:
    values = tensor.double().flatten().tolist()
    finite = [value for value in values if abs(value) < float("inf")]
    mean = sum(values) / len(values)
    return {
        "mean": mean,
        "std": (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5,
        "absmax": max(map(abs, values)),
        "norm": sum(value**2 for value in values) ** 0.5,
        "zeros": values.count(0.0) / len(values),
        "nonfinite": float(len(values) - len(finite)),
    }


def recorded(runner: Runner) -> dict[str, list[float]]:
    return {
        name: history.last()
        for name, history in runner.hub.scalars.items()
        if name.startswith(("train/activations/", "train/gradients/"))
    }


class ByHand(nn.Module):
    """Keeps the outputs of a layer and the gradients of these, with the means of torch alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.outputs: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        if self.training:
            self.outputs.append(y.detach().clone())
            y.register_hook(lambda gradient: self.gradients.append(gradient.clone()))  # type: ignore[no-untyped-call]
        return y


@pytest.mark.parametrize(("accumulate", "precision"), [(1, "fp32"), (2, "fp32"), (1, "bf16"), (2, "fp16")])
def test_the_numbers_are_those_by_hand(accumulate: int, precision: str) -> None:
    first, _, last = toy_model()
    model = nn.Sequential(first, ByHand(nn.ReLU()), last)
    runner = toy_runner(
        model=model, accumulate=accumulate, precision=precision, custom_hooks=[ActivationStatsHook("1", interval=3)]
    )
    scales: list[float] = []

    @runner.on("before_backward")
    def note(runner: Runner) -> None:
        scaler = runner.optims.sole.scaler
        scales.append(1.0 if scaler is None else scaler.get_scale())

    runner.train()
    hand: Any = model[1]
    assert len(hand.outputs) == len(hand.gradients) == 8
    expected: dict[str, Any] = {}
    for kind, tensors in (("activations", hand.outputs), ("gradients", hand.gradients)):
        for name in NAMES:
            values = []
            for iteration in (2, 5):
                scale = scales[iteration] if kind == "gradients" and name in NAMES[:4] else 1.0
                values.append(by_hand(tensors[iteration])[name] / scale)
            expected[f"train/{kind}/1/{name}"] = pytest.approx(values, rel=1e-5)
    assert recorded(runner) == expected


def test_numbers_that_are_not_finite_are_counted() -> None:
    numbers = statistics(torch.tensor([0.0, float("nan"), float("inf"), -float("inf"), 2.0], dtype=torch.bfloat16))
    assert [numbers["nonfinite"].item(), numbers["zeros"].item()] == pytest.approx([3.0, 0.2])
    half = statistics(torch.full((70_000,), 6e4, dtype=torch.float16))
    assert [half["absmax"].item(), half["mean"].item()] == pytest.approx([6e4, 6e4])


class Several(nn.Module):
    """Calls a layer twice, and returns several tensors, one of them empty and one of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.cell = nn.LSTM(4, 2)

    def forward(self, x: Tensor) -> Any:
        x = self.layer(self.layer(x))
        outputs, (hidden, _) = self.cell(x)
        return {"logits": outputs, "empty": x[:0], "count": torch.ones(3, dtype=torch.int64), "hidden": hidden}


def step_of_several(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0])["logits"], batch[1])


def test_further_calls_and_outputs_have_names_of_their_own() -> None:
    runner = toy_runner(
        model=Several(),
        step=step_of_several,
        val=None,
        max_iters=2,
        custom_hooks=[ActivationStatsHook(["*", ""], interval=2)],
    )
    runner.train()
    found = recorded(runner)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, 1)
    prefixes = list(dict.fromkeys(name.rpartition("/")[0] for name in found))
    assert prefixes == [
        "train/activations/layer",
        "train/activations/layer/call_1",
        "train/activations/cell",
        "train/activations/cell/output_1",
        "train/activations/cell/output_2",
        "train/activations/model",
        "train/activations/model/output_3",
        "train/gradients/cell",
        "train/gradients/model",
        "train/gradients/layer/call_1",
        "train/gradients/layer",
    ]
    assert [name.rpartition("/")[2] for name in found] == list(NAMES) * len(prefixes)


def test_either_kind_can_be_left_out() -> None:
    for given, kind in (({"gradients": False}, "activations"), ({"activations": False}, "gradients")):
        runner = toy_runner(max_iters=2, custom_hooks=[ActivationStatsHook("0", interval=2, **given)])
        runner.train()
        assert list(recorded(runner)) == [f"train/{kind}/0/{name}" for name in NAMES]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"activations": False, "gradients": False},
            "ActivationStatsHook: nothing is recorded without activations and gradients; set one",
        ),
        ({"interval": 0}, "ActivationStatsHook: interval must be an int of at least 1, not 0"),
    ],
)
def test_parameters_without_a_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ActivationStatsHook("*", **given)
    assert str(refused.value) == message


def test_an_unknown_module_is_refused_before_training() -> None:
    with pytest.raises(
        HookError, match=r"^ActivationStatsHook: '9' matches no module of the model; available: 0, 1, 2$"
    ):
        toy_runner(custom_hooks=[ActivationStatsHook("9")]).train()


def test_an_interval_that_is_never_reached_is_reported_once() -> None:
    runner = toy_runner(custom_hooks=[ActivationStatsHook("*")])
    runner.train()
    found = [line for line in (runner.work_dir / "run.log").read_text().splitlines() if "ActivationStatsHook" in line]
    assert [line.partition("warning: ")[2] for line in found] == [
        "ActivationStatsHook: interval=50 needs 50 iterations, but this run has 8, so nothing is recorded; set "
        "interval to at most 8, or train longer"
    ]


# ------------------------------------------------------------------------------------------------ no effect


class Draws(Hook):
    """Keeps the state of the random generator after every iteration."""

    def __init__(self) -> None:
        self.states: list[Tensor] = []

    def after_train_iter(self) -> None:
        self.states.append(torch.get_rng_state())


def train(folder: Path, *hooks: Any, epochs: int = 3, stop_at: int = -1, **parts: Any) -> tuple[Runner, Draws]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 2))
    draws = Draws()
    runner = Runner(
        model,
        train=TrainLoop(toy_data(6), cross_entropy, max_epochs=epochs),
        val=EvalLoop(toy_data(2, seed=1), predict, metrics={"accuracy": accuracy}),
        optim=Optim(torch.optim.Adam(model.parameters(), lr=0.01), accumulate=2, clip_norm=1.0),
        custom_hooks=[*hooks, draws, EMAHook()],
        default_hooks={"checkpoint": {"interval": 1, "by_epoch": False}, "logger": {"interval": 1}},
        work_dir=folder,
        device="cpu",
        quiet=True,
        **parts,
    )

    @runner.on("after_train_iter")
    def stop(runner: Runner) -> None:
        if runner.iter == stop_at:
            raise KeyboardInterrupt

    if stop_at < 0:
        runner.train()
    else:
        with pytest.raises(KeyboardInterrupt):
            runner.train()
    return runner, draws


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_has_the_same_bits_with_and_without_it(tmp_path: Path, precision: str) -> None:
    plain, without = train(tmp_path / "without", precision=precision)
    watched, given = train(tmp_path / "with", ActivationStatsHook(["*", ""], interval=2), precision=precision)
    assert len(recorded(watched)) == 6 * 2 * len(NAMES)
    weights = plain.model.state_dict()
    assert [name for name, value in watched.model.state_dict().items() if not value.equal(weights[name])] == []
    assert [one.equal(other) for one, other in zip(without.states, given.states, strict=True)] == [True] * 18
    losses = [runner.hub.get_scalar("train/loss").last() for runner in (plain, watched)]
    assert losses[0] == losses[1]


def records(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if not name.endswith("time")} for record in found]


@pytest.mark.parametrize("stop_at", [7, 8, 11])
def test_a_resumed_run_records_exactly_the_same_numbers(tmp_path: Path, stop_at: int) -> None:
    hook = {"type": "ActivationStatsHook", "modules": "*", "interval": 4}
    whole, _ = train(tmp_path / "whole", hook)
    train(tmp_path / "broken", hook, stop_at=stop_at)
    resumed, _ = train(tmp_path / "broken", hook, resume=True)
    assert recorded(resumed) == recorded(whole)
    assert records(tmp_path / "broken") == records(tmp_path / "whole")
    steps = [record["step"] for record in records(tmp_path / "whole") if "train/activations/0/mean" in record]
    assert steps == [4, 8, 12, 16]


def test_it_never_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "numpy"):
        monkeypatch.setattr(Tensor, name, lambda *_, name=name: waits.append(name))
    numbers = statistics(torch.ones(3))
    monkeypatch.undo()
    assert (waits, len(numbers)) == ([], 6)
