"""The kinds of runs that are killed: each has something that a resume could get wrong.

workers       by epochs, two loader workers
persistent    by iterations, workers that live as long as the run
async         by iterations, saves in the background
plain         by epochs, torch's own DataLoader
stale         a hook leaves gradients after every validation; an update must not contain them
counting      a module counts its forward passes in eval mode, in a buffer; only validations count
memory        a metric counts validations; the count must survive a kill, and the trial batch must not count
window        persistent workers, saves in the background, and a window of 3, which ends with no epoch
gan           two optims with windows of 2 and 3, and a step that updates both: a save finds open windows
registered    a hook joins in the middle of the run; a resumed run registers it before states are restored
replaced      a hook replaces the dataset and the batch size at epochs; a resumed run must do it again
custom        batches of 4 and 2 samples of a class of the user, in windows of 3
tokens        batches that count by their tokens, in windows of 3, with a validation loss by tokens
frozen        a hook freezes the first layer once, in the middle of the run
modes         a hook puts the batch norm into evaluation mode once, in the middle of the run
groups        a hook unfreezes a layer in the middle of the run, and adds it to the optimizer with its own rate
flat          a loop of the user over all batches
epochs        a loop of the user by epochs, with code between them that draws random numbers
uneven        a loop of the user with a window of 3, which ends with no epoch
reports       a loop of the user with its own validation: best checkpoints, early stopping, averaged weights
stepped       a loop of the user that accumulates gradients and steps its optimizer itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import ConcatDataset

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.common.rng import mix
from hookline.data.loader import Order, ResumableLoader
from hookline.engine import steps
from hookline.engine.metrics import accuracy
from hookline.engine.steps import predict
from hookline.integrations.own_loop import Session
from hookline.testing import toy_data


@dataclass(frozen=True)
class Kind:
    """The options of one kind of run."""

    by_epoch: bool = False
    workers: int = 0
    #: True for torch's own DataLoader.
    plain: bool = False
    persistent: bool = False
    async_save: bool = False
    accumulate: int = 2
    make_model: Callable[[], nn.Module] = lambda: classifier()
    #: Returns more arguments of the runner. Its hooks are added to those of every kind. `step`, `weigh` and `loader`
    #: (a function of the dataset) are for the training loop.
    more: Callable[[nn.Module], Mapping[str, Any]] = lambda model: {}
    #: Trains a runner.
    train: Callable[[Runner], Any] = lambda runner: runner.train()


def classifier(*more: nn.Module) -> nn.Sequential:
    """Return the usual model: dropout and batch norm depend on the mode and on random numbers."""
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), *more, nn.Linear(16, 2))


def optim_of(parameters: Any, accumulate: int) -> Optim:
    """Return an optim with momentum, a schedule and clipping."""
    optimizer: Optimizer = SGD(parameters, lr=0.1, momentum=0.9)
    return Optim(optimizer, [(CosineAnnealingLR(optimizer, 60), "iter")], accumulate=accumulate, clip_norm=1.0)


class LeavesGradients(Hook):
    """Runs a backward pass after every validation, as a hook that measures sensitivity would, and then saves."""

    def after_val_epoch(self, runner: Any) -> None:
        inputs, target = toy_data(1)[0]
        with torch.enable_grad():
            torch.autograd.backward(cross_entropy(runner.model(inputs), target))
        runner.request_save()  # so that a resume begins between the gradients and the next update


class CountsEvaluations(nn.Module):
    """Counts its forward passes in eval mode, in a buffer, and passes its inputs on."""

    evaluations: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("evaluations", torch.zeros((), dtype=torch.long))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            self.evaluations += 1
        return inputs


class Remembering:
    """A metric with a memory: the accuracy, and the number of validations so far."""

    def __init__(self) -> None:
        self.validations = 0
        self.reset()

    def reset(self) -> None:
        self.values: list[float] = []

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.values.append(float(accuracy(preds, target)))

    def compute(self) -> dict[str, float]:
        self.validations += 1
        return {"mean": sum(self.values) / len(self.values), "validations": float(self.validations)}

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self.validations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.validations = state["validations"]


class ChecksMemory(Hook):
    """Ends the run if the metric has counted anything but validations."""

    def after_val_epoch(self, runner: Any, metrics: dict[str, Any]) -> None:
        counted, validations = metrics["remembering/validations"], runner.position.validations + 1
        assert counted == validations, f"the metric counted {counted:.0f} of {validations} validations"


class Joins(Hook):
    """A hook with a state that is registered during the run."""

    def __init__(self) -> None:
        self.total = torch.zeros(())

    def after_train_iter(self, runner: Any, outputs: dict[str, Any]) -> None:
        self.total = self.total + outputs["loss"]

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Registers(Hook):
    """Registers the hook above before iteration 11. States are restored after `before_train`, so it must be there."""

    def before_train(self, runner: Any) -> None:
        if runner.iter > 10:
            runner.register_hook(Joins())

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 10:
            runner.register_hook(Joins())


class Once(Hook):
    """Changes the model or the optimizer once, before iteration 12, and leaves no other trace."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 12:
            self.change(runner)


def add_last_layer(runner: Any) -> None:
    """Unfreeze the last layer, and train it with a rate of its own."""
    runner.model[-1].requires_grad_(True)
    runner.optim.optimizer.add_param_group({"params": list(runner.model[-1].parameters()), "lr": 0.03})


class Pair(nn.Module):
    """A generator and a critic, which is also the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 4))
        self.critic = classifier()

    def forward(self, inputs: Tensor) -> Any:
        return self.critic(inputs)


def update_both(model: Any, batch: Any, optim: Any) -> dict[str, Tensor]:
    """Update the critic and the generator. The generator's backward pass also reaches the critic."""
    inputs, target = batch
    made = model.generator(torch.randn_like(inputs))
    critic = cross_entropy(model(inputs), target) + cross_entropy(model(made.detach()), target)
    optim["critic"].update(critic)
    generator = -cross_entropy(model(made), target)
    optim["generator"].update(generator)
    return {"loss": critic.detach(), "generator_loss": generator.detach()}


def _two_optims(model: Any) -> dict[str, Any]:
    optims = {"critic": optim_of(model.critic.parameters(), 2), "generator": optim_of(model.generator.parameters(), 3)}
    return {"optim": optims, "step": update_both}


def _with_memory(model: nn.Module) -> dict[str, Any]:
    val = EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy, "remembering": Remembering()})
    return {"val": val, "custom_hooks": [ChecksMemory()]}


class Grows(Hook):
    """Replaces the dataset and the batch size as functions of the epoch."""

    def before_train(self, runner: Any) -> None:
        self.first = runner.train_loop.dataloader.dataset

    def before_train_epoch(self, runner: Any) -> None:
        if runner.epoch >= 2:
            runner.train_loop.dataloader.dataset = ConcatDataset([self.first] * 2)
            runner.train_loop.dataloader.batch_size = 4 + runner.epoch


class Own:
    """A batch of a class of the user."""

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.inputs, self.target = (torch.stack(part) for part in zip(*samples, strict=True))

    def __len__(self) -> int:
        return len(self.inputs)


class Uneven(Order):
    """Batches of 4 and 2 samples, in turn, in an order that depends on the epoch."""

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        samples = len(self.dataset)
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(mix(seed, epoch))).tolist()
        ends = list(accumulate([0, *([4, 2] * samples)]))
        for begin, end in list(pairwise(end for end in ends if end <= samples))[start:]:
            yield order[begin:end]

    def __len__(self) -> int:
        return 2 * (len(self.dataset) // 6) + (len(self.dataset) % 6 >= 4)


def of_own(model: nn.Module, batch: Own) -> Tensor:
    """Return the loss of a batch of the class above."""
    return cross_entropy(model(batch.inputs), batch.target)


def _uneven(model: nn.Module) -> dict[str, Any]:
    def loader(data: Any) -> ResumableLoader:
        return ResumableLoader(data, order=Uneven(data, 4, False, False, 0), collate_fn=Own, num_workers=1)

    return {"loader": loader, "step": of_own}


def tokens(batch: Any) -> Any:
    """Return how many numbers of a batch are positive, as if these were its tokens."""
    return (batch[0] > 0).sum()


def _by_tokens(model: nn.Module) -> dict[str, Any]:
    val = EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy}, loss=steps.cross_entropy, weigh=tokens)
    return {"weigh": tokens, "val": val}


def _without_last_layer(model: Any) -> dict[str, Any]:
    model[-1].requires_grad_(False)
    first = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return {"optim": optim_of(first, 2), "custom_hooks": [Once(add_last_layer)]}


def train_flat(runner: Runner) -> None:
    """Train with a loop of the user over all batches."""
    with Session(runner) as run:
        for batch in run:
            run.step(steps.cross_entropy(run.model, batch))


def train_by_epochs(runner: Runner) -> None:
    """Train with a loop of the user that draws random numbers between epochs."""
    with Session(runner) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(steps.cross_entropy(run.model, batch))
            torch.rand(epoch.number)


def train_and_report(runner: Runner) -> None:
    """Train with a loop of the user that validates itself: inside an epoch, and after it."""

    def validate(run: Session) -> None:
        with run.evaluating() as model:
            correct = [accuracy(model(inputs), target) for inputs, target in toy_data(2)]
            torch.rand(3)
        run.report({"accuracy": float(sum(correct)) / len(correct)})

    with Session(runner) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(steps.cross_entropy(run.model, batch))
                if runner.position.batch == 5 and not runner.accumulating:
                    validate(run)
            validate(run)


def train_with_own_steps(runner: Runner) -> None:
    """Train with a loop of the user that steps its optimizer after every third batch."""
    optimizer = runner.optims.sole.optimizer
    with Session(runner) as run:
        for batch in run:
            loss = steps.cross_entropy(run.model, batch)
            (loss / 3).backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
            if runner.iter % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
            run.stepped(loss)


KINDS: dict[str, Kind] = {
    "workers": Kind(by_epoch=True, workers=2),
    "persistent": Kind(workers=2, persistent=True),
    "async": Kind(async_save=True),
    "plain": Kind(by_epoch=True, plain=True),
    "stale": Kind(more=lambda model: {"custom_hooks": [LeavesGradients()]}),
    "counting": Kind(make_model=lambda: classifier(CountsEvaluations())),
    "memory": Kind(more=_with_memory),
    "window": Kind(workers=2, persistent=True, async_save=True, accumulate=3),
    "gan": Kind(by_epoch=True, make_model=Pair, more=_two_optims),
    "registered": Kind(more=lambda model: {"custom_hooks": [Registers()]}),
    "replaced": Kind(by_epoch=True, workers=1, persistent=True, more=lambda model: {"custom_hooks": [Grows()]}),
    "custom": Kind(by_epoch=True, accumulate=3, more=_uneven),
    "tokens": Kind(accumulate=3, more=_by_tokens),
    "frozen": Kind(more=lambda model: {"custom_hooks": [Once(lambda runner: runner.model[0].requires_grad_(False))]}),
    "modes": Kind(by_epoch=True, more=lambda model: {"custom_hooks": [Once(lambda runner: runner.model[1].eval())]}),
    "groups": Kind(by_epoch=True, more=_without_last_layer),
    "flat": Kind(workers=1, train=train_flat),
    "epochs": Kind(by_epoch=True, train=train_by_epochs),
    "uneven": Kind(by_epoch=True, accumulate=3, plain=True, train=train_flat),
    "reports": Kind(by_epoch=True, more=lambda model: {"val": None}, train=train_and_report),
    "stepped": Kind(accumulate=1, more=lambda model: {"precision": "bf16"}, train=train_with_own_steps),
}
