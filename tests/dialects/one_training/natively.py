"""The training as written natively."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.hooks import EMAHook
from tests.dialects.one_training import shared

if TYPE_CHECKING:
    import torch
    from torch import nn


def train(
    folder: Path,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = shared.sgd,
    schedule: Callable[[torch.optim.Optimizer], Sequence[Any]] = lambda optimizer: (),
    **update: Any,
) -> shared.Ended:
    """Train, optionally with schedulers and further options of the update, such as accumulation or clipping."""
    net = shared.Net()
    optimizer = make_optimizer(net)
    ema = EMAHook(momentum=shared.AVERAGED)
    Runner(
        net,
        train=TrainLoop(shared.train_loader(), cross_entropy, max_epochs=shared.EPOCHS),
        val=EvalLoop(shared.val_loader(), predict, metrics={"accuracy": accuracy}),
        optim=Optim(optimizer, schedulers=schedule(optimizer), **update),
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        custom_hooks=[ema],
        work_dir=folder,
        seed=shared.SEED,
        device="cpu",
        quiet=True,
    ).train()
    with ema.average.swapped(net):
        averaged = shared.tensors(dict(net.named_parameters()))
    return shared.Ended(shared.tensors(dict(net.state_dict())), averaged, *saved(folder))


def saved(folder: Path) -> tuple[int, dict[str, dict[str, torch.Tensor]]]:
    """Return the best epoch and the tensors in the checkpoints of a native run."""
    (best,) = folder.glob("best_accuracy_epoch_*.pth")
    names = {str(epoch): f"epoch_{epoch}.pth" for epoch in range(1, shared.EPOCHS + 1)} | {"best": best.name}
    return int(best.stem.rpartition("_")[2]), {key: _read(folder / name) for key, name in names.items()}


def _read(path: Path) -> dict[str, torch.Tensor]:
    found = store.read(path, sealed=True)
    return shared.checkpoint_tensors(found["state_dict"], found["optimizer"], found["hooks"]["EMAHook"], found["rng"])
