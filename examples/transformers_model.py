"""A model of the Transformers library: no step is needed, because the model computes its own loss.

A batch is a mapping, so the model is called with it as keywords, and the `loss` of what it returns is the loss. Here, a
small vision transformer with random weights learns the digits. `from_pretrained` works in the same way. A function at a
point keeps the best model as `save_pretrained` writes it, for `from_pretrained` elsewhere.

    pip install transformers
    python examples/transformers_model.py
"""

import torch
from transformers import ViTConfig, ViTForImageClassification

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.data import Digits, ResumableLoader
from hookline.metrics import accuracy


def collate(samples):
    """Return a batch with the names of the model's parameters."""
    images, labels = zip(*samples, strict=True)
    return {"pixel_values": torch.stack(images), "labels": torch.stack(labels)}


def predict(model, batch):
    """Return what the metrics take."""
    return model(**batch).logits, batch["labels"]


torch.manual_seed(0)
model = ViTForImageClassification(
    ViTConfig(
        **{"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10},
        **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    )
)
loader = ResumableLoader(Digits("train"), 64, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters())
cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=10 * len(loader))
runner = Runner(
    model,
    train=TrainLoop(loader, max_epochs=10),
    val=EvalLoop(ResumableLoader(Digits("val"), 256, collate_fn=collate), predict, metrics={"accuracy": accuracy}),
    optim=Optim(optimizer, schedulers=[(cycle, "iter")], clip_norm=1.0),
    default_hooks={"checkpoint": {"save_best": "accuracy", "max_keep_ckpts": 1}},
    work_dir="runs/transformers",
)
best = 0.0


@runner.on("after_val_epoch")
def keep_best(runner, metrics):
    """Save the best model for Transformers, too."""
    global best
    if metrics["accuracy"] > best:
        best = metrics["accuracy"]
        runner.model.save_pretrained(runner.work_dir / "pretrained")


runner.train()
loaded = ViTForImageClassification.from_pretrained(runner.work_dir / "pretrained")
image, label = Digits("test")[0]
print("a digit of the test set:", int(label), "recognized as:", int(loaded(image[None]).logits.argmax()))
