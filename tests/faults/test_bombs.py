"""BOMBS: a small checkpoint that claims enormous contents is refused everywhere, with little memory and time.

`cases.run` limits both, so a command that follows the claims fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoint import bombs
from tests.faults.cases import Case, run
from tests.faults.hostile_checkpoints import PLACES
from tests.faults.project import put_run

COMMANDS = {
    **PLACES,
    "inspect": ("inspect", "runs/run/epoch_1.pth"),
    "export": ("export", "runs/run/epoch_1.pth"),
}

UNREADABLE = "cannot be read as a checkpoint: "
BOMBS: dict[str, tuple[Callable[[], Any], str]] = {
    "shared_lists": (bombs.shared_lists, UNREADABLE + "it repeats the same lists or dicts, to more than N entries"),
    "slow_key": (bombs.slow_key, UNREADABLE + "it repeats the same lists or dicts, to more than N entries"),
    "cyclic": (bombs.cyclic, UNREADABLE + "a list or dict in it contains itself"),
    "compressed": (bombs.compressed, UNREADABLE + "its archive is compressed, which torch never does"),
    "expanded": (bombs.expanded, UNREADABLE + "its tensors claim N bytes, but the file has only N"),
    "repeated": (bombs.repeated_tensor, UNREADABLE + "its tensors claim N bytes, but the file has only N"),
    "quantized": (bombs.quantized, UNREADABLE + "its tensors claim N bytes, but the file has only N"),
    "meta": (
        lambda: bombs.in_state_dict(torch.ones(2, device="meta")),
        UNREADABLE + "it holds a tensor on the device 'meta', which has no data",
    ),
    "list": (
        lambda: {"state_dict": [1]},
        "cannot be used: its 'state_dict' must be a dict of names and tensors, not list",
    ),
}


@pytest.mark.parametrize("place", COMMANDS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_every_command_refuses_a_checkpoint_that_claims_too_much(bomb: str, place: str, tmp_path: Path) -> None:
    make, expected = BOMBS[bomb]
    made = make()
    content = bombs.sealed(made if isinstance(made, bytes) else bombs.saved(made))
    case = Case(bomb, 5, words=COMMANDS[place], prepare=lambda project: put_run(project, epoch_1=content))
    outcome = run(case, tmp_path)
    assert outcome.code == 5, outcome.output
    assert re.sub("[0-9]+(,[0-9]+)*(?= |$)", "N", outcome.message) == f"runs/run/epoch_1.pth {expected}"
    assert "Traceback" not in outcome.output
