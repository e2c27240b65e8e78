"""Count what a run of many processes would exchange, in one process, with torch's fake backend.

The fake backend answers at once and sends nothing, so this counts messages and bytes; it does not measure time. The
counts are those of rank 0. Every process is given the same values, as rank 0 has them.

python benchmarks/many_ranks.py                     for 2, 64 and 1,024 processes
python benchmarks/many_ranks.py --processes 4096
"""

import argparse
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # torch exports it, but not in __all__
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.strategies.ddp import DDP
from hookline.strategies.group import Group

T = TypeVar("T")

STEPS = 200
PHASES = ("start", "steps", "validation", "save", "end")


class Counts:
    """What was exchanged: the number of exchanges, and the bytes that this process sends and receives."""

    def __init__(self) -> None:
        self.phase = "start"
        self.exchanges: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def add(self, sent: int, received: int) -> None:
        """Count one exchange."""
        self.exchanges[self.phase] += 1
        self.sent[self.phase] += sent
        self.received[self.phase] += received


class FakeGroup(Group):
    """The group, with exchanges that are only counted."""

    def __init__(self, timeout: float, counts: Counts) -> None:
        super().__init__(timeout)
        self.counts = counts
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()

    def join(self, device: torch.device) -> None:
        """Create the groups."""
        self.agreement = self.files = distributed.new_group(backend="fake")

    def leave(self) -> None:
        """Do nothing: nobody else is there."""

    def watched(self, locate: Any) -> AbstractContextManager[None]:  # type: ignore[override]  # a context, too
        """Do not watch: nobody else is there."""
        return nullcontext()

    def gather(self, value: T) -> list[T]:
        """Count a value from every process."""
        size = len(pickle.dumps(value))
        self.counts.add(size, size * self.world_size)
        return [value] * self.world_size

    gather_on_main = gather

    def from_main(self, value: T) -> T:
        """Count a value of the main process."""
        size = len(pickle.dumps(value))
        self.counts.add(size, size)
        return value

    def reduce(self, value: Tensor, operation: Any) -> Tensor:
        """Count a sum."""
        self.counts.add(value.nbytes, value.nbytes)
        return value


class FakeDDP(DDP):
    """DDP with gradients that are only counted."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts
        self.group = FakeGroup(300.0, counts)
        self.agreement._group = self._means._group = self.group

    def prepare(self, model: nn.Module, optimizers: Any, device: torch.device) -> nn.Module:
        """Wrap the model, and count its buckets."""
        wrapped = super().prepare(model, optimizers, device)
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.register_comm_hook(self.counts, count_bucket)
        return wrapped

    def agree(self, requests: Any, now: bool = False) -> None:
        """Count the flags that are sent in the background."""
        before = self.agreement._work
        super().agree(requests, now)
        if self.agreement._work is not None and self.agreement._work is not before:
            self.counts.add(4, 4)


def count_bucket(counts: Counts, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Count a bucket of gradients."""
    counts.add(bucket.buffer().nbytes, bucket.buffer().nbytes)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Phases(Hook):
    """Tells where the run is."""

    priority = "HIGHEST"

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def around_train_epoch(self) -> Iterator[None]:
        """The steps of an epoch."""
        self.counts.phase = "steps"
        yield
        self.counts.phase = "save"

    def around_val(self) -> Iterator[None]:
        """A validation."""
        self.counts.phase = "validation"
        yield
        self.counts.phase = "end"


def count(processes: int) -> Counts:
    """Train one epoch as rank 0 of this many processes, with a save and a validation at its end."""
    distributed.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    counts = Counts()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    data = TensorDataset(torch.randn(2 * STEPS * processes, 64), torch.randint(10, (2 * STEPS * processes,)))

    def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    with tempfile.TemporaryDirectory() as folder:
        Runner(
            model,
            train=TrainLoop(DataLoader(data, batch_size=2, shuffle=True), step, max_epochs=1),
            val=EvalLoop(DataLoader(data, batch_size=200), lambda model, batch: model(batch[0]), loss=step),
            optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
            custom_hooks=[Phases(counts)],
            work_dir=folder,
            strategy=FakeDDP(counts),
            device="cpu",
            quiet=True,
        ).train()
    distributed.destroy_process_group()
    return counts


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 64, 1024], help="how many processes")
    for processes in parser.parse_args().processes:
        found = count(processes)
        print(f"{processes} processes: {'exchanges':>20}{'bytes sent':>14}{'bytes received':>18}")
        for phase in PHASES:
            each = STEPS if phase == "steps" else 1
            row = [counter[phase] / each for counter in (found.exchanges, found.sent, found.received)]
            name = "each step" if phase == "steps" else phase
            print(f"  {name:20}{row[0]:>20,.2f}{row[1]:>14,.0f}{row[2]:>18,.0f}")


if __name__ == "__main__":
    main()
