"""A GAN: two optimizers and a step that updates both.

A step with a parameter named `optim` decides itself when it updates what. Everything else stays: hooks, clipping,
records, checkpoints of both optimizers, exact resume. A function at a point sends a picture of the fakes to TensorBoard
every 200 iterations. At the end, the terminal shows them.

    python examples/gan.py [--iters 1600] [--resume]
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from hookline import Optim, Runner, TrainLoop
from hookline.data import Digits, ResumableLoader

NOISE = 16
SHADES = " .:-=+*#%@"

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=1600)
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
generator = nn.Sequential(
    *(nn.Linear(NOISE, 128), nn.BatchNorm1d(128), nn.ReLU()),
    *(nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU()),
    *(nn.Linear(128, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8))),
)
critic = nn.Sequential(
    *(nn.Flatten(), nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3)),
    *(nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(128, 1)),
)


def loss_of_critic(model, real, fake):
    """Return how badly the critic tells real digits from fakes; real ones count 0.9, so that it is never too sure."""
    scores = model["critic"](real), model["critic"](fake)
    return bce(scores[0], torch.full_like(scores[0], 0.9)) + bce(scores[1], torch.zeros_like(scores[1]))


def step(model, batch, optim):
    """Update the critic, then the generator."""
    real, _ = batch
    fake = model["generator"](torch.randn(len(real), NOISE, device=real.device))
    critic_loss = loss_of_critic(model, real, fake.detach())
    optim["critic"].update(critic_loss)
    scores = model["critic"](fake)
    generator_loss = bce(scores, torch.ones_like(scores))
    optim["generator"].update(generator_loss)
    return {"critic_loss": critic_loss.detach(), "generator_loss": generator_loss.detach()}


model = nn.ModuleDict({"generator": generator, "critic": critic})
runner = Runner(
    model,
    train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True, drop_last=True), step, max_iters=options.iters),
    optim={
        name: Optim(torch.optim.Adam(part.parameters(), lr=1e-3, betas=(0.5, 0.999)), clip_norm=5.0)
        for name, part in model.items()
    },
    default_hooks={"logger": {"interval": 200}, "checkpoint": {"interval": 400, "max_keep_ckpts": 2}},
    writers=["jsonl", "tensorboard"],
    work_dir="runs/gan",
    resume=options.resume,
)
same_noise = torch.randn(6, NOISE, generator=torch.Generator().manual_seed(1)).to(runner.device)


@torch.no_grad()
def fakes(model):
    """Return six digits, always from the same noise."""
    model["generator"].eval()
    images = model["generator"](same_noise)
    model["generator"].train()
    return images


@runner.on("after_train_iter", every=200)
def write_fakes(runner):
    """Write the fakes to TensorBoard."""
    runner.writers.write_image("fakes", fakes(runner.model), runner.iter + 1)


for row in fakes(runner.train()).squeeze(1).permute(1, 0, 2).tolist():  # eight rows of six digits
    print("  ".join("".join(SHADES[int(9.99 * pixel)] * 2 for pixel in digit) for digit in row))
