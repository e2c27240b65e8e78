"""An MLP in ten lines: a model, two loops, an optimizer. Logging, checkpoints and exact resume are already there."""

import torch
from torch import nn

from hookline import EvalLoop, Runner, TrainLoop
from hookline.data import Digits, ResumableLoader
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
train = TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), cross_entropy, max_epochs=10)
val = EvalLoop(ResumableLoader(Digits("val"), 256), predict, metrics={"accuracy": accuracy})
Runner(model, train=train, val=val, optim=torch.optim.Adam(model.parameters(), lr=3e-3), work_dir="runs/mlp").train()
