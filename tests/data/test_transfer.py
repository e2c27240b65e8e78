from __future__ import annotations

import torch
from torch import nn

from hookline.data.transfer import to_device


def test_a_packed_sequence_moves_itself() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)])
    moved = to_device([packed], torch.device("cpu"))[0]
    assert isinstance(moved, nn.utils.rnn.PackedSequence)
