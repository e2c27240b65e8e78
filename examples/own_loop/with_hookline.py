"""The same loop, with hooks, records, checkpoints, and an exact resume after Ctrl-C or kill -9."""

import torch
from torch import nn
from torch.utils.data import DataLoader

import hookline
from hookline.data import Digits

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Digits("train"), batch_size=64, shuffle=True)

with hookline.session(model, optimizer, loader, max_epochs=3, work_dir="runs/own_loop", resume=True) as run:
    for inputs, target in run:
        loss = nn.functional.cross_entropy(model(inputs), target)
        run.step(loss)
print(f"loss {loss.item():.3f}")
