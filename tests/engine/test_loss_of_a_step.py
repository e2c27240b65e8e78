"""The loss of a step: the mean over the samples of its window, however the window is cut into batches."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import Optim, Runner, TrainLoop
from hookline.record.hub import MessageHub
from hookline.testing import MemoryWriter

X, Y = torch.randn(21, 4, generator=torch.Generator().manual_seed(0)), torch.arange(21.0).reshape(21, 1)


def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def train(accumulate: int, interval: int, **parts: Any) -> tuple[Runner, list[float]]:
    """Train two epochs in windows of eight samples, the last one of five. Return the losses in the records, too."""
    model, writer = nn.Linear(4, 1), MemoryWriter()
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    runner = Runner(
        model,
        train=TrainLoop(DataLoader(TensorDataset(X, Y), batch_size=8 // accumulate), step, max_epochs=2),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01), accumulate=accumulate),
        default_hooks={"logger": {"interval": interval, "ignore_last": False, **parts}},
        writers=[writer],
        quiet=True,
    )
    runner.train()
    return runner, [value for record in writer.records for name, value in record.items() if "loss" in name]


def by_hand() -> list[float]:
    """Return the loss of each window, from a plain loop."""
    weight, bias, found = torch.zeros(1, 4, requires_grad=True), torch.zeros(1, requires_grad=True), []
    for _ in range(2):
        for x, y in zip(torch.split(X, 8), torch.split(Y, 8), strict=True):
            loss = nn.functional.mse_loss(x @ weight.T + bias, y)
            found.append(loss.item())
            for parameter, gradient in zip((weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True):
                parameter.data -= 0.01 * gradient
    return found


@pytest.mark.parametrize("accumulate", [1, 2, 4, 8])
def test_a_record_has_the_mean_over_the_samples_of_its_window(accumulate: int) -> None:
    assert train(accumulate, accumulate)[1] == pytest.approx(by_hand(), rel=1e-6)


@pytest.mark.parametrize("smoothing", [(), ({"match": "train/loss", "window_size": "epoch"},)])
@pytest.mark.parametrize("accumulate", [1, 2, 4, 8])
def test_a_record_over_several_windows_has_the_mean_over_all_their_samples(accumulate: int, smoothing: Any) -> None:
    one, two, three, four, five, six = by_hand()
    epochs = [(8 * one + 8 * two + 5 * three) / 21, (8 * four + 8 * five + 5 * six) / 21]
    assert train(accumulate, 100, smoothing=smoothing)[1] == pytest.approx(epochs, rel=1e-6)


def test_the_weights_of_recorded_losses_are_saved() -> None:
    runner, _ = train(2, 100)
    history = runner.hub.get_scalar("train/loss")
    mean, state = history.mean(6), runner.hub.state_dict()
    assert state["scalars"]["train/loss"]["weights"] == {5: 0.25, 11: 0.25}
    again = MessageHub()
    again.load_state_dict(torch.load(saved(state), weights_only=True))
    assert again.get_scalar("train/loss").mean(6) == mean != sum(history.last(6)) / 6


def saved(state: dict[str, Any]) -> BytesIO:
    file = BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file
