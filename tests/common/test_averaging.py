"""Weight averages by themselves: their values against a plain computation, and how they are swapped and saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hookline.common.averaging import (
    ExponentialMovingAverage,
    MomentumAnnealingEMA,
    StochasticWeightAverage,
    WeightAverage,
)
from hookline.errors import ConfigError, StorageError
from hookline.testing import toy_model


def random_weights(model: nn.Module, steps: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Return random weights for each of a number of steps."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {name: torch.randn(value.shape, generator=generator) for name, value in model.state_dict().items()}
        for _ in range(steps)
    ]


def averaged(average: WeightAverage, model: nn.Module) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = average.state_dict(model)["averaged"]
    return found


def pointers(model: nn.Module) -> list[int]:
    return [parameter.data_ptr() for parameter in model.parameters()]


def fill(module: nn.Module, value: float) -> None:
    for parameter in module.parameters():
        nn.init.constant_(parameter, value)


def plain(history: list[dict[str, torch.Tensor]], weight: Callable[[int, int], float], interval: int) -> Any:
    """Compute the average by hand: in double precision, one tensor at a time."""
    found: dict[str, torch.Tensor] = {}
    taken = 0
    for step, weights in enumerate(history):
        if step % interval == 0:
            for name, value in weights.items():
                much = weight(step, taken) if taken else 1.0
                found[name] = (1 - much) * found.get(name, value.double()) + much * value.double()
            taken += 1
    return found


KINDS: list[tuple[Callable[..., WeightAverage], Callable[[int, int], float]]] = [
    (lambda **more: ExponentialMovingAverage(momentum=0.1, **more), lambda step, taken: 0.1),
    (lambda **more: MomentumAnnealingEMA(momentum=0.6, gamma=4, **more), lambda step, taken: max(0.6, 4 / (4 + step))),
    (lambda **more: StochasticWeightAverage(**more), lambda step, taken: 1 / (taken + 1)),
]


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize(("make", "weight"), KINDS, ids=["ema", "annealing", "swa"])
def test_an_average_equals_the_one_computed_by_hand(make: Any, weight: Any, interval: int) -> None:
    model = toy_model()
    history = random_weights(model, 11)
    average = make(interval=interval)
    for weights in history:
        model.load_state_dict(weights)
        average.update(model)
    expected = plain(history, weight, interval)
    assert average.steps == 11
    assert list(averaged(average, model)) == list(expected)
    for name, value in averaged(average, model).items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("kind", ["ema", "annealing", "swa"])
def test_in_double_precision_the_formula_is_followed_to_the_last_bit(kind: str, interval: int) -> None:
    average: WeightAverage = {
        "ema": ExponentialMovingAverage(momentum=0.1, interval=interval),
        "annealing": MomentumAnnealingEMA(momentum=0.2, gamma=4, interval=interval),
        "swa": StochasticWeightAverage(interval=interval),
    }[kind]
    model = nn.Linear(7, 5, bias=False).double()
    generator = torch.Generator().manual_seed(0)
    mean: list[float] = []
    for step in range(31):
        weights = torch.randn(5, 7, generator=generator, dtype=torch.float64)
        model.load_state_dict({"weight": weights})
        average.update(model)
        if step % interval:
            continue
        new, count = weights.flatten().tolist(), step // interval + 1
        much = {"ema": 0.1, "annealing": max(0.2, 4 / (4 + step)), "swa": 0.0}[kind]
        if not mean:
            mean = new
        elif kind == "swa":
            mean = [e + (x - e) / count for e, x in zip(mean, new, strict=True)]
        else:
            mean = [(1 - much) * e + much * x for e, x in zip(mean, new, strict=True)]
        assert averaged(average, model)["weight"].flatten().tolist() == mean


def test_the_mean_of_all_steps_is_the_mean() -> None:
    model, average = toy_model(), StochasticWeightAverage()
    history = random_weights(model, 5)
    for weights in history:
        model.load_state_dict(weights)
        average.update(model)
    mean = torch.stack([weights["0.weight"] for weights in history]).mean(0)
    torch.testing.assert_close(averaged(average, model)["0.weight"], mean)


def test_the_first_step_is_copied_to_the_bit_and_shares_no_memory() -> None:
    model, average = toy_model(), ExponentialMovingAverage()
    average.update(model)
    for name, value in model.state_dict().items():
        held = averaged(average, model)[name]
        assert held.equal(value)
        assert held.data_ptr() != value.data_ptr()
        assert not held.requires_grad


def test_a_custom_average_only_defines_how_much_a_step_counts() -> None:
    class Half(WeightAverage):
        def weight(self) -> float:
            return 0.5

    model, average = nn.Linear(1, 1, bias=False), Half()
    for value in (0.0, 4.0, 8.0):
        fill(model, value)
        average.update(model)
    assert averaged(average, model)["weight"].item() == 5.0
    nameless = WeightAverage()
    nameless.update(model)
    with pytest.raises(NotImplementedError, match=r"^WeightAverage must define weight\(\), which returns how much"):
        nameless.update(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_averaged_in_single_precision_and_swapped_in_its_own(dtype: torch.dtype) -> None:
    model, average = nn.Linear(1, 1, bias=False).to(dtype), ExponentialMovingAverage(momentum=0.0002)
    fill(model, 1.0)
    average.update(model)
    fill(model, 2.0)
    for _ in range(100):
        average.update(model)
    held = averaged(average, model)["weight"]
    assert held.dtype == torch.float32
    assert held.item() == pytest.approx(2 - 0.9998**100, rel=1e-5)
    with average.swapped(model):
        assert model.weight.dtype == dtype
        assert model.weight.item() == held.to(dtype).item()
    assert model.weight.item() == 2.0


def test_tied_parameters_are_averaged_once_and_saved_under_both_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

    model, average = Tied(), ExponentialMovingAverage(momentum=0.5)
    for value in (1.0, 3.0):
        fill(model.a, value)
        average.update(model)
    found = averaged(average, model)
    assert found["a.weight"] is found["b.weight"]
    assert found["a.weight"].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with average.swapped(model):
        assert model.a.weight is model.b.weight
        assert model.b.weight.data_ptr() == found["a.weight"].data_ptr()


def test_parameters_added_later_start_with_their_own_value_and_frozen_ones_stay() -> None:
    model, average = nn.ModuleDict({"a": nn.Linear(1, 1, bias=False)}), ExponentialMovingAverage(momentum=0.5)
    fill(model["a"], 1.0)
    average.update(model)
    model["a"].requires_grad_(False)
    model["b"] = nn.Linear(1, 1, bias=False)
    fill(model["b"], 7.0)
    with average.swapped(model):  # not averaged yet, so it keeps its own value
        assert model["b"].get_parameter("weight").item() == 7.0
    average.update(model)
    fill(model["b"], 9.0)
    average.update(model)
    assert {name: value.item() for name, value in averaged(average, model).items()} == {"a.weight": 1, "b.weight": 8}
    model["a"].weight = nn.Parameter(torch.full((2, 1), 5.0))  # a parameter with a new shape starts from scratch
    average.update(model)
    assert averaged(average, model)["a.weight"].tolist() == [[5.0], [5.0]]
    del model["b"]
    average.update(model)
    assert list(averaged(average, model)) == ["a.weight"]


class Counts(nn.Module):
    """Assigns a new tensor to a buffer at every step, as many models do. Has an integer and a non-persistent buffer."""

    mean: torch.Tensor
    seen: torch.Tensor
    scratch: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def step(self) -> None:
        self.mean = self.mean + 4
        self.seen += 1
        self.scratch += 1


@pytest.mark.parametrize(("update_buffers", "mean"), [(False, 8.0), (True, 6.0)])
def test_buffers_are_averaged_only_on_request_and_integer_ones_never(update_buffers: bool, mean: float) -> None:
    model, average = Counts(), ExponentialMovingAverage(momentum=0.5, update_buffers=update_buffers)
    for _ in range(2):
        model.step()
        average.update(model)
    found = {name: value.item() for name, value in averaged(average, model).items()}
    assert found == {"weight": 0.0, "mean": mean, "seen": 2}
    with average.swapped(model):
        assert (model.mean.item(), model.seen.item(), model.scratch.item()) == (mean, 2, 2)
    assert (model.mean.item(), model.seen.item(), model.scratch.item()) == (8.0, 2, 2)


def test_swapping_exchanges_tensors_and_restores_them_even_after_a_failure() -> None:
    model, average = toy_model(), ExponentialMovingAverage(momentum=0.5)
    average.update(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    own, parameters = pointers(model), list(model.parameters())
    held = [value.data_ptr() for value in averaged(average, model).values()]
    seen: list[list[int]] = []

    def use(error: BaseException) -> None:
        seen.append(pointers(model))
        raise error

    def swap() -> None:
        with average.swapped(model):
            with pytest.raises(ValueError, match="inner"), average.unswapped():
                use(ValueError("inner"))
            use(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        swap()
    assert seen == [own, held]
    assert pointers(model) == own
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


def test_before_the_first_step_there_is_nothing_to_swap() -> None:
    model, average = toy_model(), ExponentialMovingAverage()
    own = pointers(model)
    with average.swapped(model), average.unswapped():
        assert pointers(model) == own
    assert average.state_dict(model)["steps"] == 0
    assert averaged(average, model)["0.weight"].equal(model.state_dict()["0.weight"])


def test_a_model_that_changes_its_type_is_followed() -> None:
    model, average = nn.Linear(1, 1, bias=False), ExponentialMovingAverage(momentum=0.5)
    fill(model, 1.0)
    average.update(model)
    model.double()
    fill(model, 3.0)
    average.refresh()
    average.update(model)
    held = averaged(average, model)["weight"]
    assert (held.dtype, held.item()) == (torch.float64, 2.0)


def test_a_restored_average_continues_bit_exactly_with_the_model_s_memory_layout() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    history = [
        {name: value if value.is_floating_point() else torch.tensor(step) for name, value in weights.items()}
        for step, weights in enumerate(random_weights(model, 6))
    ]
    whole, first = (
        MomentumAnnealingEMA(gamma=3, update_buffers=True),
        MomentumAnnealingEMA(gamma=3, update_buffers=True),
    )
    for weights in history[:3]:
        model.load_state_dict(weights)
        whole.update(model)
        first.update(model)
    second = MomentumAnnealingEMA(gamma=3, update_buffers=True)
    assert second.load_state_dict(first.state_dict(model), model) == []
    for weights in history[3:]:
        model.load_state_dict(weights)
        whole.update(model)
        second.update(model)
    assert second.steps == 6
    for name, value in averaged(whole, model).items():
        found = averaged(second, model)[name]
        assert found.equal(value), name
        assert found.stride() == value.stride(), name


def test_an_average_of_another_model_is_refused_or_loaded_as_far_as_it_fits() -> None:
    model, average = toy_model(), ExponentialMovingAverage(momentum=0.5)
    average.update(model)
    state = average.state_dict(model)
    old = state["averaged"]
    changed = {
        "0.weight": old["0.weight"] + 1,
        "2.weight": torch.zeros(3, 8),
        "2.bias": True,
        "x": old["2.bias"],
    }
    misfits = [
        *("missing: 0.bias (8,)", "surplus: x", "2.weight: the model has (2, 8), saved (3, 8)"),
        "2.bias: the model has (2,), saved bool",
    ]
    with pytest.raises(StorageError) as refused:
        average.load_state_dict({"averaged": changed, "steps": 4}, model)
    assert str(refused.value).splitlines() == [
        "the averaged weights do not fit the model:",
        *(f"  {line}" for line in misfits),
    ]
    assert average.steps == 1
    assert average.load_state_dict({"averaged": changed, "steps": 4}, model, strict=False) == misfits
    assert average.steps == 4
    found = averaged(average, model)
    assert found["0.weight"].equal(old["0.weight"] + 1)
    assert found["2.weight"].equal(model.state_dict()["2.weight"])
    for other in ({"seen": 3}, [1]):
        with pytest.raises(
            StorageError, match="^this is not the state of a weight average, which has 'averaged' and 'steps'$"
        ):
            average.load_state_dict(other, model)  # type: ignore[arg-type]  # as a changed checkpoint may have it


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExponentialMovingAverage(momentum=0), "momentum must be above 0 and at most 1, not 0"),
        (lambda: ExponentialMovingAverage(momentum=1.5), "momentum must be above 0 and at most 1, not 1.5"),
        (lambda: ExponentialMovingAverage(momentum=True), "momentum must be above 0 and at most 1, not True"),
        (lambda: MomentumAnnealingEMA(gamma=0), "gamma must be above 0, not 0"),
        (lambda: MomentumAnnealingEMA(gamma=float("nan")), "gamma must be above 0, not nan"),
        (lambda: StochasticWeightAverage(interval=0), "interval must be an int of at least 1, not 0"),
        (lambda: StochasticWeightAverage(interval=1.5), "interval must be an int of at least 1, not 1.5"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert str(refused.value) == message
