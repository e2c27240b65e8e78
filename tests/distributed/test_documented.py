"""The commands that the pages about several processes show, typed as they stand."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hookline.common.ports import find_free_port
from tests.distributed.processes import ROOT, running

PAGES = ("distributed", "fsdp", "accelerate", "failing-ranks", "many-ranks")
#: A command in a block, or between backticks. Slurm's script has its own test.
COMMAND = re.compile(
    r"^    ((?:hookline train|torchrun|accelerate launch) .*)|`((?:hookline train|torchrun) [^`]*)`", re.MULTILINE
)

DIGITS = """
model: {type: net.Net}
train: {dataloader: {dataset: {type: net.samples}, batch_size: 4}, max_epochs: 1, step: cross_entropy}
val: {dataloader: {dataset: {type: net.samples}, batch_size: 4}, step: predict, metrics: {accuracy: accuracy}}
optim: {optimizer: {type: SGD, lr: 0.1}}
device: cpu
"""
NET = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Block(nn.Linear):
    pass

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(Block(4, 4), nn.ReLU(), Block(4, 2))

def samples():
    return TensorDataset(torch.randn(16, 4, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2)
"""
SCRIPT = """
from hookline import Runner
runner = Runner.from_config("digits.yaml")
runner.train()
print(f"rank {runner.rank} of {runner.world_size} has trained {runner.iter} iterations")
"""


#: The port of the endpoint of several machines.
PORT = find_free_port("127.0.0.1")


def documented() -> dict[str, list[str]]:
    """Return the commands of the pages, each once. Commands that are typed on several machines are together."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for block, inline in COMMAND.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
            text = (block or inline).partition("#")[0].strip()
            if block or text.endswith((" --nproc 2", ".py")):  # between backticks, others are abbreviated
                together = found.setdefault(re.sub(r" --node-rank \d", "", text), [])
                together += [text] if text not in together else []
    return found


COMMANDS = documented()


def project(folder: Path) -> None:
    """Create the files that the commands name."""
    (folder / "net.py").write_text(NET)
    (folder / "digits.yaml").write_text(DIGITS)
    (folder / "train.py").write_text(SCRIPT)
    page = (ROOT / "docs" / "fsdp.md").read_text(encoding="utf-8")
    sharding = re.search(r"^    strategy:\n(?:      .*\n)+", page, re.M)
    assert sharding is not None
    (folder / "config.yaml").write_text(DIGITS + re.sub("^    ", "", sharding[0], flags=re.M))


def test_the_pages_have_these_commands() -> None:
    assert list(COMMANDS) == [
        "hookline train digits.yaml --nproc 2",
        "torchrun --nproc-per-node 2 train.py",
        "hookline train digits.yaml --nproc 2 --nnodes 2 --rdzv-endpoint node1:29400",
        "hookline train digits.yaml --nproc 2 --max-restarts 3",
        "torchrun --nproc-per-node 2 -m hookline train digits.yaml",
        "hookline train config.yaml --nproc 2",
        "accelerate launch --multi_gpu --num_processes 2 train.py",
        "accelerate launch --multi_gpu --num_processes 2 -m hookline train digits.yaml",
        "hookline train digits.yaml strategy=accelerate --nproc 2",
        "hookline train digits.yaml --nproc 2 --resume",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_documented_command_trains_to_the_end(tmp_path: Path, name: str) -> None:
    project(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with ExitStack() as ending:
        runs = [
            ending.enter_context(running("sh", "-c", _local(text), cwd=tmp_path, PATH=path)) for text in COMMANDS[name]
        ]
        codes = [run.wait() for run in runs]
        output = "".join(run.output() for run in runs)
    assert codes == [0] * len(runs), output
    processes = 2 * len(runs)
    if name.endswith("train.py"):
        assert sorted(re.findall(r"rank (\d) of 2 has trained 2 iterations", output)) == ["0", "1"]
    else:
        kind = "fsdp" if "config" in name else "accelerate" if "accelerate" in name else "ddp"
        assert f"seed 0, {processes} processes ({kind})" in output
    ending_of = "dcp" if "config" in name else "pth"
    assert [path.name for path in (tmp_path / "runs").glob(f"*/epoch_*.{ending_of}")] == [f"epoch_1.{ending_of}"]


def _local(text: str) -> str:
    """Return a command with this machine in the place of the first one of several."""
    return text.replace("node1:29400", f"127.0.0.1:{PORT}")
