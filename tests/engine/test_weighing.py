"""A batch counts by its weight: in accumulation windows, in means over processes, in losses and in metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.data.loader import Order, ResumableLoader
from hookline.data.weights import Weigher, as_weight, batch_size, own_length
from hookline.errors import ConfigError, DataError, HooklineError
from hookline.optim.weights import WindowWeights
from hookline.strategies import Single


class Slope(nn.Module):
    """A model with one weight, whose gradient is the mean of the values of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        return (self.weight * values).mean() + values.mean()


class Gradients(Hook):
    """Keeps the gradient of every update, and the weight of every batch."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.weights: list[float | None] = []

    def before_optimizer_step(self, runner: Runner) -> None:
        assert isinstance(runner.model, Slope)
        assert runner.model.weight.grad is not None
        self.values.append(runner.model.weight.grad.item())

    def after_train_iter(self, runner: Runner) -> None:
        self.weights.append(runner.batch_weight)


class Graphs:
    """A batch of a user's class, which moves itself and has a length."""

    def __init__(self, values: Tensor) -> None:
        self.nodes, self.edges = values, torch.zeros(2, 7)

    def to(self, device: Any) -> Graphs:
        return self

    def __len__(self) -> int:
        return len(self.nodes)


class Loose:
    """A batch of a user's class without a length."""

    def __init__(self, values: Tensor) -> None:
        self.edges, self.nodes = torch.zeros(2, 7), values


#: Batches of 4, 2, 4 and 2 samples. The mean of the means is 5.5, and the mean over the samples is 4.
UNEVEN = [torch.ones(4), torch.full((2,), 10.0), torch.ones(4), torch.full((2,), 10.0)]


def trained(
    tmp_path: Path, data: Any, accumulate: int = 2, step: Any = None, **options: Any
) -> tuple[Gradients, Runner]:
    """Train the model with one weight for an epoch."""
    model, seen = Slope(), Gradients()
    options = {"max_epochs": 1} | options
    runner = Runner(
        model,
        train=TrainLoop(data, step or (lambda model, batch: model(batch)), **options),
        optim=Optim(SGD(model.parameters(), lr=0.0), accumulate=accumulate),
        custom_hooks=[seen],
        work_dir=tmp_path / "run",
        device="cpu",
        quiet=True,
    )
    runner.train()
    return seen, runner


def of_nodes(model: nn.Module, batch: Any) -> Any:
    return model(batch.nodes)


def test_a_window_is_the_mean_over_its_samples_wherever_it_lies(tmp_path: Path) -> None:
    seen, runner = trained(tmp_path, UNEVEN)
    assert seen.values == [4.0, 4.0]
    assert seen.weights == [None, 0.5, None, 0.5]
    assert runner.hub.get_scalar("train/loss").mean() == 4.0


@pytest.mark.parametrize(
    "wrap",
    [
        lambda values: (values, values),
        lambda values: {"values": values},
        Graphs,
        Loose,
    ],
)
def test_every_kind_of_batch_counts_by_its_samples(tmp_path: Path, wrap: Any) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        if isinstance(batch, tuple):
            return model(batch[0])
        return model(batch["values"] if isinstance(batch, dict) else batch.nodes)

    seen, _ = trained(tmp_path, [wrap(values) for values in UNEVEN], step=step)
    assert seen.values == [4.0, 4.0]


def test_with_equal_batches_nothing_changes_to_the_bit(tmp_path: Path) -> None:
    values = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))
    by_samples, _ = trained(tmp_path / "samples", list(values), accumulate=3)
    by_tokens, _ = trained(tmp_path / "tokens", list(values), accumulate=3, weigh=lambda batch: 4711)

    def said(model: nn.Module, batch: Any, optim: Any) -> dict[str, Tensor]:
        optim.weigh(4711)
        loss = model(batch)
        optim.update(loss)
        return {"loss": loss}

    by_step, _ = trained(tmp_path / "step", list(values), accumulate=3, step=said)
    weight = nn.Parameter(torch.zeros(()))
    expected = []
    for number, batch in enumerate(values, 1):
        ((weight * batch).mean() / 3).backward()
        if number % 3 == 0 and weight.grad is not None:
            expected.append(weight.grad.item())
            weight.grad = None
    assert by_samples.values == by_tokens.values == by_step.values == expected


def test_a_language_model_accumulates_by_tokens(tmp_path: Path) -> None:
    rows = [torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([10.0, 10.0, 0.0, 0.0])]

    def loss_of(model: nn.Module, batch: Tensor) -> Any:
        return model(batch[batch != 0])

    def tokens(batch: Tensor) -> Tensor:
        return (batch != 0).sum()

    by_function, runner = trained(tmp_path / "a", rows * 2, step=loss_of, weigh=tokens)
    assert by_function.values == [4.0, 4.0]
    assert runner.hub.get_scalar("train/loss").mean() == 4.0

    def own(model: nn.Module, batch: Tensor, optim: Any) -> dict[str, Tensor]:
        optim.weigh(tokens(batch))
        loss = loss_of(model, batch)
        optim.update(loss)
        return {"loss": loss}

    in_step, runner = trained(tmp_path / "b", rows * 2, step=own)
    assert in_step.values == [4.0, 4.0]
    assert runner.hub.get_scalar("train/loss").mean() == 4.0
    assert runner.val_loop is None


class Uneven(Order):
    """Batches of 4 and 2 samples, in turn."""

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        yield from [range(4), range(4, 6), range(6, 10), range(10, 12)][start:]

    def __len__(self) -> int:
        return 4


def one_number(samples: list[Tensor]) -> Any:
    """Return a batch that shows nothing of its samples."""

    class Opaque:
        __slots__ = ("nodes",)

        def __init__(self) -> None:
            self.nodes = torch.stack(samples)

    return Opaque()


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_the_loader_knows_how_many_samples_it_put_together(tmp_path: Path, workers: int) -> None:
    samples = torch.cat(UNEVEN)
    loader = ResumableLoader(
        list(samples),
        order=Uneven(samples, 4, False, False, 0),
        collate_fn=one_number if not workers else None,
        num_workers=workers,
    )
    step = of_nodes if not workers else None
    seen, _ = trained(tmp_path, loader, step=step)
    assert seen.values == [4.0, 4.0]


@pytest.mark.parametrize("sampled", [False, True])
def test_a_dataloader_counts_its_last_batch_by_the_samples_in_it(tmp_path: Path, sampled: bool) -> None:
    samples = torch.cat([torch.ones(4), torch.full((2,), 10.0)])
    sampler = [0, 1, 2, 3, 4, 5] if sampled else None
    loader: Any = DataLoader(samples, 4, sampler=sampler, collate_fn=one_number)  # type: ignore[arg-type]
    seen, _ = trained(tmp_path, loader, step=of_nodes)
    assert seen.values == [4.0]


def test_a_stream_counts_by_the_batches_that_come(tmp_path: Path) -> None:
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            yield from UNEVEN

    seen, _ = trained(tmp_path, DataLoader(Stream(), batch_size=None), max_epochs=None, max_iters=4)
    assert seen.values == [4.0, 4.0]


def test_a_batch_that_a_hook_replaces_is_weighed_as_the_step_gets_it(tmp_path: Path) -> None:
    class Halves(Hook):
        def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Tensor) -> None:
            if batch_idx % 2:
                runner.data_batch = data_batch[:2]

    model, seen = Slope(), Gradients()
    data = [torch.ones(4), torch.full((4,), 10.0)]
    Runner(
        model,
        train=TrainLoop(data, lambda model, batch: model(batch), max_epochs=1, weigh=len),
        optim=Optim(SGD(model.parameters(), lr=0.0), accumulate=2),
        custom_hooks=[Halves(), seen],
        work_dir=tmp_path,
        device="cpu",
        quiet=True,
    ).train()
    assert (seen.values, seen.weights) == ([4.0], [None, 0.5])


def evaluated(data: Any, tmp_path: Path, **options: Any) -> dict[str, Any]:
    loop = EvalLoop(data, **options)
    return Runner(Slope(), val=loop, work_dir=tmp_path, device="cpu", quiet=True, trial_batch=False).val()


def mean_of_nodes(model: nn.Module, batch: Any) -> Any:
    return (batch.nodes if hasattr(batch, "nodes") else batch).mean()


@pytest.mark.parametrize("kind", [Graphs, Loose])
def test_the_validation_loss_of_a_custom_batch_is_a_mean_over_samples(tmp_path: Path, kind: Any) -> None:
    data = [kind(torch.ones(8)), kind(torch.full((2,), 10.0))]
    assert evaluated(data, tmp_path, loss=mean_of_nodes) == {"loss": 2.8}


def test_the_perplexity_of_a_validation_by_tokens_is_right(tmp_path: Path) -> None:
    rows = [torch.tensor([0.5, 0.5, 0.5, 0.0]), torch.tensor([2.5, 0.0, 0.0, 0.0])]

    def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
        return batch[batch != 0].mean()

    found = evaluated(rows, tmp_path, loss=loss_of, weigh=lambda batch: (batch != 0).sum())
    every_token = [0.5, 0.5, 0.5, 2.5]
    assert math.exp(found["loss"]) == math.exp(sum(every_token) / 4)


def test_a_function_as_a_metric_is_averaged_by_the_same_weights(tmp_path: Path) -> None:
    def value(outputs: Tensor) -> Tensor:
        return outputs.mean()

    data = [torch.ones(8), torch.full((2,), 10.0)]
    found = evaluated(data, tmp_path, step=mean_of_nodes, metrics={"value": value}, weigh=lambda batch: 10.0)
    assert found == {"value": 5.5}


def test_a_resumed_run_weighs_as_the_uninterrupted_one(tmp_path: Path) -> None:
    class Stops(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 4:
                runner.stop("enough")

    def run(folder: Path, stops: bool, resume: bool) -> Runner:
        torch.manual_seed(0)
        data = [torch.randn(size, generator=torch.Generator().manual_seed(size)) for size in (3, 5, 2, 7, 5, 4)]
        model = Slope()
        runner = Runner(
            model,
            train=TrainLoop(data, lambda model, batch: model(batch) ** 2, max_epochs=2, weigh=lambda batch: len(batch)),
            optim=Optim(SGD(model.parameters(), lr=0.1, momentum=0.9), accumulate=2),
            custom_hooks=[Stops()] if stops else [],
            work_dir=folder,
            device="cpu",
            quiet=True,
            resume=resume,
        )
        runner.train()
        return runner

    whole = run(tmp_path / "whole", stops=False, resume=False)
    run(tmp_path / "cut", stops=True, resume=False)
    resumed = run(tmp_path / "cut", stops=False, resume=True)
    assert isinstance(whole.model, Slope)
    assert isinstance(resumed.model, Slope)
    assert torch.equal(whole.model.weight, resumed.model.weight)
    assert resumed.position.usual_weight == whole.position.usual_weight == 3.0
    assert resumed.hub.get_scalar("train/loss").last() == whole.hub.get_scalar("train/loss").last()
    assert resumed.hub.get_scalar("train/loss").mean() == whole.hub.get_scalar("train/loss").mean()


# -- what is refused, and what is named


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "3", None, torch.ones(2)])
def test_a_weight_that_is_no_number_is_refused(tmp_path: Path, weight: Any) -> None:
    with pytest.raises(ConfigError, match="TrainLoop: weigh must be a number of at least 0 for a batch"):
        trained(tmp_path, UNEVEN, weigh=lambda batch: weight)


def test_a_weigh_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="EvalLoop: weigh must be a function of a batch that .*, not 3"):
        EvalLoop(UNEVEN, weigh=3)  # type: ignore[arg-type]


def test_a_window_without_any_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all batches of this accumulation window have the weight 0"):
        trained(tmp_path, UNEVEN, weigh=lambda batch: 0)


def test_a_batch_without_weight_counts_nothing(tmp_path: Path) -> None:
    seen, _ = trained(tmp_path, UNEVEN, weigh=lambda batch: len(batch) % 4)
    assert seen.values == [10.0, 10.0]


def test_a_guess_that_makes_a_difference_is_named_once(tmp_path: Path) -> None:
    trained(tmp_path, [(values, values) for values in UNEVEN], step=lambda model, batch: model(batch[0]))
    guesses = [line for line in (tmp_path / "run" / "run.log").read_text().splitlines() if "by a guess" in line]
    assert [line.split("  ", 1)[1] for line in guesses] == [
        "warning: TrainLoop: a batch (tuple) is weighed by a guess: 2, the length of its last tensor; set weigh to a "
        "function of a batch, or give the class of the batch a length"
    ]


def test_equal_guesses_and_known_sizes_are_not_named(tmp_path: Path) -> None:
    trained(tmp_path / "equal", [(values, values) for values in [torch.ones(4)] * 4], step=lambda m, b: m(b[0]))
    trained(tmp_path / "length", [Graphs(values) for values in UNEVEN], step=of_nodes)
    for name in ("equal", "length"):
        assert "by a guess" not in (tmp_path / name / "run" / "run.log").read_text()


@pytest.mark.parametrize("pair", [(torch.ones(()), torch.ones(())), (0.5, torch.ones(())), (torch.ones(()), 0.5)])
def test_a_pair_of_two_numbers_is_refused(tmp_path: Path, pair: Any) -> None:
    with pytest.raises(HooklineError) as refused:
        trained(tmp_path, UNEVEN, step=lambda model, batch: (model(batch) + pair[0], pair[1]))
    assert str(refused.value) == (
        "the step returned a pair of two single numbers, but only one of them can be the loss; return them by name: "
        '{"loss": loss, "aux": aux}'
    )


# -- the rule itself


def test_the_length_of_a_class_counts_but_not_of_a_collection() -> None:
    found = [own_length(each) for each in (Graphs(torch.ones(3)), torch.ones(5, 2), (1, 2), {"a": 1}, "abc", 1.0)]
    assert found == [3, 5, None, None, None, None]
    assert own_length(torch.ones(())) is None


def test_a_guess_is_the_length_of_the_last_tensor() -> None:
    found = [batch_size(each) for each in ((torch.ones(3), torch.ones(5)), {"a": torch.ones(4)}, ["a", "b"], object())]
    assert found == [5, 4, 2, 1]


def test_a_weight_may_be_any_single_number() -> None:
    assert [as_weight(given, "it") for given in (3, 2.5, torch.tensor(7), torch.tensor([8.0]))] == [3.0, 2.5, 7.0, 8.0]
    assert Weigher(None, "TrainLoop").function is None


# -- several processes


class Ranks(Single):
    """Stands for one of two processes. The other one has the numbers that it is given."""

    def __init__(self, others: list[float]) -> None:
        super().__init__()
        self.others, self.exchanges = others, 0

    @property
    def world_size(self) -> int:
        return 2

    def reduce_sum(self, value: Tensor) -> Tensor:
        self.exchanges += 1
        return value + self.others.pop(0)


def test_a_window_of_several_processes_is_exchanged_once() -> None:
    here, there = Ranks([4.0]), Ranks([2.0])
    first, second = WindowWeights(here), WindowWeights(there)
    first.follow(vary=True)
    second.follow(vary=True)
    for weights, said in ((first, (0.5, 1.5)), (second, (3.0, 1.0))):
        factors = []
        for number, weight in enumerate(said):
            weights.say(weight)
            factors.append(weights.factor(2, is_first=number == 0))
            weights.add()
        assert factors == list(said)
    # Gradients are averaged over the processes: 2 samples here, 4 there, of 6.
    assert [first.correction(2), second.correction(2)] == [2 / 3, 2 / 3]
    assert (here.exchanges, there.exchanges) == (1, 1)


def test_a_window_of_one_batch_depends_on_the_share_of_the_process() -> None:
    weights = WindowWeights(Ranks([3.0]))
    weights.say(1.0)
    assert weights.factor(1, is_first=True) == 0.5
    weights.add()
    assert weights.correction(1) == 1.0


def test_every_update_on_the_last_batch_is_weighed() -> None:
    weights = WindowWeights(Ranks([3.0, 3.0]))
    weights.follow(vary=False)
    weights.expect_difference()
    found = []
    for _ in range(2):
        found.append((weights.differ, weights.factor(1, is_first=True)))
        weights.add()
    assert found == [(True, 0.5), (True, 0.5)]


def test_full_batches_of_several_processes_need_no_exchange() -> None:
    strategy = Ranks([])
    weights = WindowWeights(strategy)
    weights.follow(vary=False)
    for number in range(2):
        assert weights.factor(2, is_first=number == 0) == 1.0
        weights.add()
    assert (weights.correction(2), weights.differ, strategy.exchanges) == (1.0, False, 0)


def test_the_first_batch_is_weighed_as_the_step_gets_it(tmp_path: Path) -> None:
    class Names(Hook):
        """Replaces every batch by a mapping."""

        def before_train_iter(self, runner: Runner) -> None:
            runner.data_batch = {"values": runner.data_batch, "tokens": len(runner.data_batch)}

    model, seen = Slope(), Gradients()
    loop = TrainLoop(
        UNEVEN, lambda model, batch: model(batch["values"]), max_epochs=1, weigh=lambda batch: batch["tokens"]
    )
    optim = Optim(SGD(model.parameters(), lr=0.0), accumulate=2)
    Runner(
        model, train=loop, optim=optim, custom_hooks=[Names(), seen], work_dir=tmp_path, device="cpu", quiet=True
    ).train()
    assert (seen.values, seen.weights) == ([4.0, 4.0], [None, 0.5, None, 0.5])


@pytest.mark.parametrize(("accumulate", "empty"), [(1, 0), (1, 2), (3, 3)])
@pytest.mark.parametrize("by_step", [False, True])
def test_a_window_of_one_batch_without_weight_is_refused(
    tmp_path: Path, accumulate: int, empty: int, by_step: bool
) -> None:
    def weight_of(batch: Any) -> int:
        return int(batch is not UNEVEN[empty])

    def says(model: nn.Module, batch: Any, optim: Any) -> dict[str, Tensor]:
        loss = model(batch)
        optim.weigh(weight_of(batch))
        optim.update(loss)
        return {"loss": loss}

    options: dict[str, Any] = {"step": says} if by_step else {"weigh": weight_of}
    with pytest.raises(DataError, match="have the weight 0, in all processes, so it has no mean") as refused:
        trained(tmp_path, UNEVEN, accumulate, **options)
    assert refused.value.__notes__ == [f"in the step, epoch=0 iter={empty} rank=0"]


def test_a_batch_without_weight_is_left_out_of_a_validation_even_if_its_loss_is_nan(tmp_path: Path) -> None:
    model = Slope()
    data = [torch.ones(2), torch.ones(0), torch.full((1,), 4.0)]
    loop = EvalLoop(
        data,
        lambda model, batch: (model(batch), batch),
        loss=lambda model, batch: model(batch),
        metrics={"mean": lambda preds, target: target.mean()},
        weigh=len,
    )
    runner = Runner(model, val=loop, work_dir=tmp_path, device="cpu", quiet=True)
    assert runner.val() == {"loss": 2.0, "mean": 2.0}


def test_a_weight_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="weigh must be a number of at least 0"):
        as_weight(10**400, "weigh")
