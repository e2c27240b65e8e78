"""A plain training loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from hookline.data import Digits

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Digits("train"), batch_size=64, shuffle=True)

for _ in range(3):
    for inputs, target in loader:
        loss = nn.functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
