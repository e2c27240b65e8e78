"""A custom point: your step gets points of its own, and hooks plug into them like into any other.

The step trains on attacked images (each pixel is moved a little in the direction that hurts most). It calls the point
`after_attack` with both images. One hook measures there how many attacks succeed, and another one stops training when
there are few of them. The step knows neither hook.

    python examples/custom_point.py
"""

import torch

from hookline import EvalLoop, Hook, Runner, TrainLoop, every
from hookline.data import Digits, DigitsNet, ResumableLoader
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict


def attack(model, batch, strength):
    """Return images that are harder for the model."""
    images, target = batch
    images = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(model, (images, target)), images)
    return (images + strength * slope.sign()).clamp(0, 1).detach()


def step(model, batch):
    """Train on attacked images."""
    images, target = batch
    attacked = attack(model, batch, strength=0.1)
    runner.call_hook("after_attack", images=images, attacked=attacked, target=target)
    return cross_entropy(model, (attacked, target))


def predict_attacked(model, batch):
    """Predict attacked images."""
    with torch.enable_grad():
        return model(attack(model, batch, strength=0.1)), batch[1]


class Robustness(Hook):
    """Records the share of recognized images that an attack makes wrong."""

    role = "observer"

    @every(5)
    @torch.no_grad()
    def after_attack(self, runner, images, attacked, target):  # any of the point's arguments, by name
        right = runner.model(images).argmax(1) == target
        fooled = right & (runner.model(attacked).argmax(1) != target)
        runner.hub.update_scalar("train/attacks_succeeded", fooled.sum() / right.sum().clamp(min=1))


class Enough(Hook):
    """Stops training when fewer than a fifth of the attacks succeed."""

    def after_train_epoch(self, runner):
        if runner.hub.get_scalar("train/attacks_succeeded").mean(3) < 0.2:
            runner.stop("fewer than a fifth of the attacks succeed", when="epoch")


torch.manual_seed(0)
model = DigitsNet(width=8)
digits = ResumableLoader(Digits("val"), 256)
runner = Runner(
    model,
    train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), step, max_epochs=20),
    val={
        "clean": EvalLoop(digits, predict, metrics={"accuracy": accuracy}),
        "attacked": EvalLoop(digits, predict_attacked, metrics={"accuracy": accuracy}),
    },
    optim=torch.optim.AdamW(model.parameters(), lr=5e-3),
    points={"after_attack": ("images", "attacked", "target")},
    custom_hooks=[Robustness(), Enough()],
    default_hooks={"logger": {"interval": 17}},
    work_dir="runs/custom_point",
)
runner.train()
print("who runs at the new point:", *str(runner.hooks).splitlines()[-2:], sep="\n")
