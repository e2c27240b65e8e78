"""The module `parts` of the tests about nested objects: classes and functions that take objects in every way."""

PARTS = """
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import system
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import torch
from torch import nn
from torch.utils.data import Dataset, Sampler

from hookline import Hook, Writer

if TYPE_CHECKING:
    from somewhere import Unknown

MADE = []


class Net(nn.Module):
    def __init__(self, width: int = 8, scale: tuple[float, float] = (1.0, 1.0)):
        super().__init__()
        if width < 1:
            raise ValueError("width must be positive")
        MADE.append(("Net", width))
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 3)
        self.scale = scale

    def forward(self, x):
        return self.outer(self.inner(x).relu())


@dataclass
class Size:
    width: int


@dataclass
class Typed:
    type: str
    width: int


class Options(TypedDict):
    type: str


class Transform(Protocol):
    def __call__(self, x: Any) -> Any: ...


class Flip:
    def __init__(self, p: float = 0.5):
        self.p = p

    def __call__(self, x):
        return -x


class Wrap(nn.Module):
    def __init__(
        self,
        backbone: nn.Module | None = None,
        cfg: dict | None = None,
        table: dict[str, Any] | None = None,
        options: Options | None = None,
        heads: Sequence[nn.Module] = (),
        named: Mapping[str, nn.Module] | None = None,
        pair: tuple[nn.Module, int] | None = None,
        either: dict[str, int] | Flip | None = None,
        described: nn.Module | dict[str, Any] | None = None,
        metrics: Flip | dict[str, Flip] | None = None,
        text: str | Flip | None = None,
        flip: Flip | None = None,
        size: Size | None = None,
        typed: Typed | None = None,
        function: Callable[[Any], Any] | None = None,
        functions: list[Callable] | None = None,
        protocol: Transform | None = None,
        kind: type[nn.Module] | None = None,
        device: torch.device | None = None,
        count: int = 1,
        listed: list | None = None,
        unknown: Unknown | None = None,
        anything=None,
        **rest,
    ):
        super().__init__()
        MADE.append(("Wrap",))
        self.given = {name: value for name, value in locals().items() if name not in ("self", "__class__", "rest")}
        self.rest = rest
        self.net = backbone or Net(2)

    def forward(self, x):
        return self.net(x)


class Data(Dataset):
    def __init__(self, n: int = 8):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3


class Mapped(Dataset):
    def __init__(self, inner: Dataset[Any], transform=None, more: Iterable[Dataset] = ()):
        self.inner, self.transform, self.more = inner, transform, more

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        x, y = self.inner[index]
        return self.transform(x) if self.transform else x, y


class Every(Sampler):
    def __init__(self, dataset: Data, step: int):
        self.indices = range(0, len(dataset), step)

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class Collate:
    def __init__(self, pad: int):
        self.pad = pad

    def __call__(self, samples):
        return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


def collate(samples, pad):
    return Collate(pad)(samples)


class Watch(Hook):
    def __init__(self, net: nn.Module, transforms: list[Transform] = ()):
        self.net, self.transforms = net, transforms


class Forward(Writer):
    def __init__(self, to: Writer):
        self.to = to

    def write_scalar(self, *record):
        self.to.write_scalar(*record)

    def write_image(self, *record):
        self.to.write_image(*record)

    def write_config(self, *record):
        self.to.write_config(*record)


def make_net(width: int = 3) -> nn.Module:
    return Net(width)


def make_flip(p) -> Callable:
    return Flip(p)


def scale(x, by=2.0):
    return by * x


def add(x, y, by) -> float:
    return x + y + by


def unclear(p=0.5, q=1.0):
    return p + q


def not_a_net():
    return 3


def loss_of(model, batch):
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)


def predict(model, batch):
    inputs, target = batch
    return model(inputs), target
"""
