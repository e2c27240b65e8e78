"""The training as written for iMIX: an engine, with everything else in its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hookline.checkpoint import store
from hookline.dialects.imix.engine.imix_engine import imixEngine
from tests.dialects.one_training import shared


def evaluate(model: nn.Module) -> dict[str, Tensor]:
    return {"accuracy": shared.measure(model)}


def train(folder: Path, **changes: Any) -> shared.Ended:
    """Train. Keyword arguments replace parts of the config."""
    cfg = {
        "total_epochs": shared.EPOCHS,
        "work_dir": str(folder),
        "seed": shared.SEED,
        "model_device": "cpu",
        "quiet": True,
        "optimizer": {"type": "SGD", "lr": shared.RATE, "momentum": shared.MOMENTUM},
        "checkpoint_config": {"epoch_period": 1},
        "custom_hooks": [
            {"type": "EMAIterHook", "momentum": shared.AVERAGED},
            {"type": "EvaluateHook", "eval_function": evaluate},
        ],
    }
    net = shared.Net()
    engine = imixEngine(cfg | changes, model=net, data_loader=shared.train_loader(), loss_fn=nn.CrossEntropyLoss())
    engine.train()
    (ema,) = (hook for hook in engine.hooks if type(hook).__name__ == "EMAIterHook")
    with ema.average.swapped(net):
        averaged = shared.tensors(dict(net.named_parameters()))
    (best,) = (hook.best for hook in engine.hooks if type(hook).__name__ == "EvaluateHook")
    names = {str(epoch + 1): f"Net_epoch{epoch}_model.pth" for epoch in range(shared.EPOCHS)}
    checkpoints = {key: _read(folder / name) for key, name in (names | {"best": "best_result.pth"}).items()}
    return shared.Ended(shared.tensors(dict(net.state_dict())), averaged, best["epoch"] + 1, checkpoints)


def _read(path: Path) -> dict[str, Tensor]:
    found = store.read(path, sealed=True)
    return shared.checkpoint_tensors(
        found["state_dict"], found["optimizer"], found["hooks"]["EMAIterHook"], found["rng"]
    )
