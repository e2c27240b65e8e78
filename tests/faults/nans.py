"""Runs that fail because of a planted NaN or Inf. Most causes strike with sample 29, in the module `cause`.

`tests.faults.planted` lists them, and where `hookline replay --triage` has to find that they began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hookline
from hookline import Hook, Optim, Runner, TrainLoop
from hookline.data import ResumableLoader
from hookline.hooks import CheckInvalidLossHook

#: The sample that most causes strike with, and how many samples a batch has.
SAMPLE, SIZE = 29, 4


class Data:
    """32 samples: features, a target and the number of the sample. Sample 29 may be bad."""

    def __init__(self, bad: str = "") -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        features, target = torch.linspace(-1, 1, 6) * (index + 1) / 32, torch.tensor(index / 32)
        if index == SAMPLE and self.bad in ("nan", "inf"):
            features[1] = float(self.bad)
        if index == SAMPLE and self.bad == "target":
            target.fill_(math.nan)
        return features, target, torch.tensor(index)


class Backward(torch.autograd.Function):
    """Has a gradient of NaN where a mask is set."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return inputs * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient / (1 - mask), None


def attention(inputs: Tensor, mask: Tensor) -> Tensor:
    """Attend from each of 8 numbers to those before it; for a masked sample, to none."""
    scores = inputs[:, :, None] * inputs[:, None, :]
    scores = scores.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -math.inf)
    scores = scores.masked_fill(mask[:, :, None] > 0, -math.inf)
    return (scores.softmax(-1) @ inputs[:, :, None])[:, :, 0]


def of_two_heads(inputs: Tensor, mask: Tensor) -> Tensor:
    """Divide by the norm of each half of the numbers, with the halves as samples of their own."""
    heads = (inputs * (1 - mask)).reshape(-1, 4)
    norms: Tensor = heads.norm(dim=1, keepdim=True)
    return (heads / norms).reshape(-1, 8)


def time_first(inputs: Tensor, mask: Tensor) -> Tensor:
    """Take the logarithm, with the batch as the second dimension."""
    steps = (inputs.abs() + 1).t()
    return torch.log(steps * (1 - mask.t())).t().contiguous()


def unused_branch(inputs: Tensor, mask: Tensor) -> Tensor:
    """Divide by 0 in a branch that `where` does not take."""
    return torch.where(mask > 0, torch.zeros_like(inputs), inputs / (1 - mask))


#: What the module does with its inputs and with a mask that is 1 for sample 29.
WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "log": lambda inputs, mask: torch.log((inputs.abs() + 1) * (1 - mask)),
    "divide": lambda inputs, mask: (inputs * (1 - mask)) / (inputs.abs() + 1) / (1 - mask),
    "exp": lambda inputs, mask: torch.exp(inputs.tanh() + 1000 * mask),
    "root of -1": lambda inputs, mask: torch.sqrt((inputs.abs() + 1) * (1 - 2 * mask)),
    "acos": lambda inputs, mask: torch.acos(inputs.tanh() * 0.9 + 2 * mask),
    "attention": attention,
    "heads": of_two_heads,
    "time first": time_first,
    "half": lambda inputs, mask: ((inputs + 1e6 * mask).half() * 1).float(),
    "root of 0": lambda inputs, mask: torch.sqrt(inputs.abs() * (1 - mask)) + inputs,
    "where": unused_branch,
    "function": lambda inputs, mask: Backward.apply(inputs, mask),  # type: ignore[no-untyped-call]
    "recomputed": lambda inputs, mask: checkpoint(
        lambda tensor: torch.sqrt(tensor.abs() * (1 - mask)) + tensor, inputs, use_reentrant=False
    ),
}


class Cause(nn.Module):
    """Does something with its inputs that is bad for sample 29."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, inputs: Tensor, index: Tensor) -> Tensor:
        """Return the inputs, after the way."""
        mask = (index == SAMPLE).float()[:, None].expand(-1, 8)
        return WAYS[self.way](inputs, mask) if self.way and self.training else inputs


class Net(nn.Module):
    """A model with a batch norm before and after the cause, so that one bad row spreads to all."""

    def __init__(self, way: str = "") -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.cause, self.after, self.last = Cause(way), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.table = nn.Embedding(32, 8)

    def forward(self, features: Tensor, index: Tensor) -> Tensor:
        """Return a prediction for each sample."""
        inputs = self.norm(self.first(features)) + self.table(index) / 10
        predicted: Tensor = self.last(self.after(self.cause(inputs, index)))[:, 0]
        return predicted


def mask_of(batch: Any) -> Tensor:
    """Return 1 for sample 29, and 0 for the others."""
    mask: Tensor = (batch[2] == SAMPLE).float()
    return mask


def plain(model: nn.Module, batch: Any) -> Tensor:
    """Return the squared error."""
    loss: Tensor = functional.mse_loss(model(batch[0], batch[2]), batch[1])
    return loss


def large(model: nn.Module, batch: Any) -> Tensor:
    """Return a loss whose gradients overflow in fp16 until the scale is lower."""
    return plain(model, batch) * 1e4


def functional_code(model: nn.Module, batch: Any) -> Tensor:
    """Divide by zero outside of modules."""
    predicted = model(batch[0], batch[2]) * (1 - mask_of(batch))
    return functional.mse_loss(predicted / predicted.abs(), batch[1])


def functional_gradient(model: nn.Module, batch: Any) -> Tensor:
    """Take the square root of 0 outside of modules: the loss is finite, its gradient is not."""
    predicted = model(batch[0], batch[2]) * (1 - mask_of(batch))
    return functional.mse_loss(predicted.abs().sqrt(), batch[1])


def terms(model: nn.Module, batch: Any) -> dict[str, Tensor]:
    """Return two terms of a loss, one of which is bad."""
    predicted = model(batch[0], batch[2])
    return {
        "loss_square": functional.mse_loss(predicted, batch[1]),
        "loss_log": -torch.log(predicted.abs() * (1 - mask_of(batch))).mean(),
    }


def updates_twice(model: nn.Module, batch: Any, optim: Optim) -> dict[str, Tensor]:
    """Update twice in one step; the second loss is bad."""
    optim.update(plain(model, batch))
    second = plain(model, batch) / (1 - mask_of(batch)).min()
    optim.update(second)
    return {"loss": second}


def penalty(model: nn.Module, batch: Any) -> Tensor:
    """Add the norm of a gradient, whose own gradient is not finite at 0."""
    features = batch[0].clone().requires_grad_()
    predicted = model(features, batch[2])
    (gradient,) = torch.autograd.grad(predicted.sum(), features, create_graph=True)
    norms = (gradient * (1 - mask_of(batch))[:, None]).square().sum(dim=1).sqrt()
    loss: Tensor = plain(model, batch) + norms.mean()
    return loss


def masked(model: nn.Module, batch: Any) -> Tensor:
    """Leave out targets of NaN with `where`: the loss is finite, and its gradient is not."""
    errors = (model(batch[0], batch[2]) - batch[1]).square()
    return torch.where(batch[1].isnan(), torch.zeros_like(errors), errors).mean()


STEPS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (plain, large, functional_code, functional_gradient, terms, updates_twice, penalty, masked)
}


class Spoils(Hook):
    """Sets numbers to NaN at a point: of a weight, of one row of the table, of a buffer, or of a gradient."""

    def __init__(self, point: str, at: int, what: str) -> None:
        self.point, self.at, self.what = point, at, what

    def _spoil(self, runner: Runner, point: str, number: int) -> None:
        if point != self.point or number != self.at:
            return
        model: Any = runner.model
        with torch.no_grad():
            if self.what == "table":
                model.table.weight[SAMPLE] = math.nan
            elif self.what == "weight":
                model.last.weight.fill_(math.nan)
            elif self.what == "buffer":
                model.norm.running_mean[2] = math.nan
            elif self.what == "gradient":
                model.last.weight.grad[0, 3] = math.nan

    def before_train(self, runner: Runner) -> None:
        self._spoil(runner, "before_train", runner.iter + 1)

    def after_backward(self, runner: Runner) -> None:
        self._spoil(runner, "after_backward", runner.iter + 1)

    def after_train_iter(self, runner: Runner) -> None:
        self._spoil(runner, "after_train_iter", runner.iter + 1)

    def after_train_epoch(self, runner: Runner) -> None:
        self._spoil(runner, "after_train_epoch", runner.iter + 1)


def build(options: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer, ResumableLoader, list[Hook]]:
    """Return the parts of a run."""
    torch.manual_seed(3)
    model = Net(options.get("way", ""))
    if options.get("compiled"):
        model.compile(backend="aot_eager")
    hooks: list[Hook] = [Spoils(*options["spoil"])] if "spoil" in options else []
    hooks += [CheckInvalidLossHook(policy=options["checked"])] if "checked" in options else []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=options.get("eps", 1e-8))
    return model, optimizer, ResumableLoader(Data(options.get("data", "")), batch_size=SIZE, shuffle=True), hooks


GIVEN: dict[str, Any] = {"device": "cpu", "seed": 5, "quiet": True}


def runner_of(options: dict[str, Any], folder: str | Path = "run") -> Runner:
    """Return the run of a cause."""
    model, optimizer, loader, hooks = build(options)
    loop = TrainLoop(loader, STEPS[options.get("step", "plain")], max_epochs=2)
    optim = Optim(optimizer, accumulate=options.get("accumulate", 1))
    more = {name: options[name] for name in ("precision", "strategy") if name in options}
    return Runner(model, train=loop, optim=optim, custom_hooks=hooks, work_dir=folder, **more, **GIVEN)


def train(options: dict[str, Any]) -> None:
    """Train the run of a cause in the working directory."""
    if options.get("nproc"):
        hookline.launch(train, {**options, "nproc": 0}, nproc=options["nproc"])
    elif options.get("own_loop"):
        model, optimizer, loader, hooks = build(options)
        with hookline.session(model, optimizer, loader, max_epochs=2, hooks=hooks, work_dir="run", **GIVEN) as run:
            for batch in run:
                run.step(plain(run.model, batch))
    else:
        runner_of(options).train()
