"""One model, one data set and one training, in every host: Runner, Lightning, Transformers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer as TransformersTrainer
from transformers import TrainingArguments

from hookline import EvalLoop, Optim, Runner, TrainLoop

EPOCHS, BATCH, SAMPLES = 2, 4, 18  # five batches per epoch, of which the last one is smaller
RATE = 0.05


class Rows(Dataset[dict[str, Tensor]]):
    """Random rows with labels, always the same."""

    def __init__(self, samples: int = SAMPLES, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(samples, 6, generator=generator)
        self.labels = torch.randint(0, 3, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


class Net(nn.Module):
    """A small net with dropout and batch norm, called as models of Transformers are."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.body(inputs))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def new_net(dropout: float = 0.0) -> Net:
    torch.manual_seed(7)
    return Net(dropout)


def loaders(samples: int = SAMPLES) -> tuple[DataLoader[Any], DataLoader[Any]]:
    return DataLoader(Rows(samples), BATCH), DataLoader(Rows(8, seed=1), BATCH)


def accuracy(preds: Tensor, labels: Tensor) -> float:
    return float((preds.argmax(-1) == labels).double().mean())


# ------------------------------------------------------------------------------------------------------------ Runner


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(**batch)["loss"]
    return loss


def predict(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return model(**batch)["logits"], batch["labels"]


def run_in_runner(
    folder: Path, hooks: list[Any], default_hooks: Mapping[str, Any], accumulate: int = 1, samples: int = SAMPLES
) -> nn.Module:
    train, val = loaders(samples)
    net = new_net()
    runner = Runner(
        net,
        train=TrainLoop(train, loss_of, max_epochs=EPOCHS),
        val=EvalLoop(val, predict, metrics={"accuracy": accuracy}),
        optim=Optim(torch.optim.SGD(net.parameters(), RATE), accumulate=accumulate),
        custom_hooks=hooks,
        default_hooks={"checkpoint": None, **default_hooks},
        work_dir=folder,
        device="cpu",
        quiet=True,
    )
    return runner.train()


# --------------------------------------------------------------------------------------------------------- Lightning


class Module(Net, LightningModule):
    """The net in Lightning, with the same names."""

    def __init__(self, dropout: float = 0.0, fail_at: int = -1) -> None:
        torch.manual_seed(7)
        super().__init__(dropout)
        self.losses: list[float] = []
        self._fail_at = fail_at

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        if len(self.losses) == self._fail_at:
            raise RuntimeError("out of luck")
        loss: Tensor = self(**batch)["loss"]
        self.losses.append(loss.item())
        self.log("train_loss", loss, on_step=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> Any:
        logits = self(**batch)["logits"]
        self.log("val_accuracy", accuracy(logits, batch["labels"]), on_epoch=True, batch_size=len(batch["labels"]))
        return logits, batch["labels"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), RATE)


def run_in_lightning(
    callbacks: list[Any],
    accumulate: int = 1,
    dropout: float = 0.0,
    fail_at: int = -1,
    samples: int = SAMPLES,
    resume: str | None = None,
    **options: Any,
) -> Module:
    module, (train, val) = Module(dropout, fail_at), loaders(samples)
    seed_everything(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning: few workers, few batches
        trainer = Trainer(
            **{"max_epochs": EPOCHS, "enable_checkpointing": False, **options},
            accelerator="cpu",
            accumulate_grad_batches=accumulate,
            callbacks=callbacks,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, train, val, ckpt_path=resume)
    return module


# ------------------------------------------------------------------------------------------------------ Transformers


class Recorded(TransformersTrainer):
    """A Trainer that keeps its losses, and reads the rows in order."""

    fail_at = -1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.losses: list[float] = []
        super().__init__(*arguments, **options)

    def training_step(self, *arguments: Any, **options: Any) -> Tensor:
        if len(self.losses) == self.fail_at:
            raise RuntimeError("out of luck")
        loss: Tensor = super().training_step(*arguments, **options)
        self.losses.append(loss.item())
        return loss

    def _get_train_sampler(self, *arguments: Any) -> Any:
        return torch.utils.data.SequentialSampler(range(len(self.train_dataset)))  # type: ignore[arg-type]  # it has a length


def run_in_transformers(
    folder: Path,
    callbacks: list[Any],
    accumulate: int = 1,
    dropout: float = 0.0,
    samples: int = SAMPLES,
    fail_at: int = -1,
    resume: str | None = None,
    **options: Any,
) -> Recorded:
    net = new_net(dropout)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Recorded(
            net,
            TrainingArguments(
                **{
                    "output_dir": str(folder / "theirs"),
                    "num_train_epochs": EPOCHS,
                    "per_device_train_batch_size": BATCH,
                    "per_device_eval_batch_size": BATCH,
                    "learning_rate": RATE,
                    "lr_scheduler_type": "constant",
                    "max_grad_norm": 0.0,
                    "eval_strategy": "epoch",
                    "save_strategy": "no",
                    "report_to": "none",
                    "disable_tqdm": True,
                    "use_cpu": True,
                    "remove_unused_columns": False,
                    "gradient_accumulation_steps": accumulate,
                    "seed": 3,
                    **options,
                }
            ),
            train_dataset=Rows(samples),
            eval_dataset=Rows(8, seed=1),
            compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
            optimizers=(torch.optim.SGD(net.parameters(), RATE), None),
            callbacks=callbacks,
        )
        trainer.fail_at = fail_at
        trainer.train(resume_from_checkpoint=resume)
    return trainer
