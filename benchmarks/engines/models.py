"""The models: a small MLP, a CNN and a transformer, with steps of about 0.25, 2 and 20 ms on one thread."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from engines.task import Model


class Classifier(nn.Module):
    """A small transformer that reads 32 tokens and classifies them."""

    def __init__(self, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores."""
        scores: Tensor = self.head(self.encoder(self.tokens(tokens)).mean(1))
        return scores


def mlp() -> nn.Module:
    """Return three linear layers."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    """Return two convolutions with batch norms, and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )


def vectors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch for the MLP."""
    return torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch for the CNN."""
    return torch.randn(16, 1, 16, 16, generator=generator), torch.randint(10, (16,), generator=generator)


def texts(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch for the transformer."""
    return torch.randint(100, (8, 32), generator=generator), torch.randint(10, (8,), generator=generator)


SGD = partial(torch.optim.SGD, lr=0.01)
MODELS = (
    Model("MLP", mlp, vectors, SGD, steps=2000),
    Model("CNN", cnn, images, partial(SGD, momentum=0.9), steps=250),
    Model("transformer", Classifier, texts, partial(torch.optim.AdamW, lr=1e-4), steps=30),
)
