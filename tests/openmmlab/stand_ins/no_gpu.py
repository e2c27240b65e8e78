"""Lets the real mmengine start several processes without a GPU: it always selects one."""

import torch

if not torch.cuda.is_available():
    torch.cuda.set_device = lambda device: None
