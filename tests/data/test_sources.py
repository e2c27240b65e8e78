from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.data.loader import ResumableLoader
from hookline.data.sources import as_resumable, iterator
from hookline.testing import toy_data, toy_runner


class Noisy(Dataset[Tensor]):
    """A dataset whose samples draw from all three generators."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, torch.rand(()).item(), random.random(), np.random.rand()])


def drawing_collate(samples: list[Tensor]) -> Tensor:
    return torch.stack(samples) + torch.rand(()) + random.random() + float(np.random.rand())


def batches(loader: Any, epoch: int = 0, start: int = 0, seed: int | None = 7) -> list[list[list[float]]]:
    return [batch.tolist() for batch in iterator(loader, seed=seed, epoch=epoch, start=start, state=None)]


# ---------------------------------------------------------------------------------------------- plain loaders


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 5},
        {"batch_size": 5, "shuffle": True},
        {"batch_size": 5, "shuffle": True, "drop_last": True},
        {"batch_size": 5, "shuffle": True, "num_workers": 2},
        {"batch_size": 5, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 1},
        {"batch_size": 5, "shuffle": True, "collate_fn": drawing_collate, "num_workers": 2},
        {"batch_size": 5, "shuffle": True, "collate_fn": drawing_collate},
        {"batch_sampler": BatchSampler(RandomSampler(Noisy()), 5, False)},
    ],
)
def test_a_plain_dataloader_starts_anywhere_and_is_a_function_of_seed_and_epoch(settings: dict[str, Any]) -> None:
    loader = DataLoader(Noisy(), **settings)
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    first = batches(loader, epoch=1)
    drawn = torch.rand(()).item(), random.random(), np.random.rand()
    assert batches(loader, epoch=1, start=1) == first[1:]
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert drawn == (torch.rand(()).item(), random.random(), np.random.rand())  # reading left them alone
    assert batches(loader, epoch=2) != first
    assert batches(loader, epoch=1, seed=8) != first
    assert len(first) == len(loader)


def test_the_number_of_workers_does_not_change_what_a_collate_function_draws() -> None:
    found = [
        batches(DataLoader(Noisy(), 5, shuffle=True, collate_fn=drawing_collate, num_workers=workers))
        for workers in (0, 1, 2)
    ]
    assert found[0] == found[1] == found[2]


def test_a_worker_init_fn_of_the_user_is_called(tmp_path: Path) -> None:
    def init(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        (tmp_path / f"{worker} {type(info.dataset).__name__}").touch()

    batches(DataLoader(Noisy(), 5, num_workers=2, worker_init_fn=init))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0 Noisy", "1 Noisy"]


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Noisy(), 5, sampler=WeightedRandomSampler([1.0] * 12, 12)),
        DataLoader(Noisy(), 5, sampler=RandomSampler(Noisy(), replacement=True)),
        DataLoader(Noisy(), 5, sampler=RandomSampler(Noisy(), num_samples=7)),
        DataLoader(Noisy(), batch_size=None),
    ],
)
def test_a_loader_with_another_sampler_is_not_replaced(loader: Any) -> None:
    assert as_resumable(loader) is None


def test_the_loader_of_the_user_stays_the_one_that_hooks_see() -> None:
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8).long()), batch_size=4)
    runner = toy_runner(max_epochs=1)
    runner.train_loop.dataloader = loader
    seen: list[Any] = []
    runner.on("before_train")(lambda runner: seen.append(runner.train_loop.dataloader))
    runner.train()
    assert seen == [loader]
    assert runner.iter == 2


# ------------------------------------------------------------------------------------------------ other loaders


class Stream(IterableDataset[Tensor]):
    """A dataset without a length that draws its samples at random."""

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.rand(4) for _ in range(12))


def mean_square(model: nn.Module, batch: Tensor) -> Tensor:
    squares: Tensor = model(batch).pow(2)
    return squares.mean()


class Dies(Hook):
    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter == self.at - 1:
            runner.request_save()
        if runner.iter == self.at + 1:
            raise KeyboardInterrupt


def stream_runner(folder: Path, loader: Any, **parts: Any) -> Runner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 1))
    return Runner(
        model,
        train=TrainLoop(loader, mean_square, max_epochs=3),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.001)),
        work_dir=folder,
        device="cpu",
        quiet=True,
        **parts,
    )


@pytest.mark.parametrize(
    ("make", "warned", "exact"),
    [
        (lambda: DataLoader(Stream(), batch_size=3), True, False),
        (lambda: DataLoader(Stream(), batch_size=3, num_workers=1), True, True),
        (lambda: DataLoader(Noisy(), 3, sampler=WeightedRandomSampler([1.0] * 12, 12)), True, True),
        (lambda: DataLoader(Noisy(), 3, shuffle=True), False, True),
        (lambda: [torch.full((3, 4), float(index)) for index in range(4)], False, True),
    ],
    ids=["stream", "stream in a worker", "weighted", "shuffled", "list"],
)
@pytest.mark.parametrize("at", [2, 6])
def test_any_loader_resumes_in_the_middle_and_reading_it_again_is_reported(
    tmp_path: Path, make: Any, warned: bool, exact: bool, at: int
) -> None:
    whole = stream_runner(tmp_path / "whole", make())
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        stream_runner(tmp_path / "broken", make(), custom_hooks=[Dies(at)]).train()
    resumed = stream_runner(tmp_path / "broken", make(), resume=True)
    resumed.train()
    assert (str(resumed.model.state_dict()) == str(whole.model.state_dict())) is exact
    assert resumed.position == whole.position
    text = (tmp_path / "broken" / "run.log").read_text()
    assert text.count("cannot start in the middle, so it is read again up to batch 2.") == warned
    assert text.count("may return other batches than in the interrupted run") == warned


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize(
    ("dataset", "settings", "at"),
    [
        (Noisy(), {"shuffle": True}, 5),
        (Noisy(), {"shuffle": True}, 6),
        (list(range(12)), {}, 5),
        (list(range(12)), {}, 6),
        # Only one case: torchdata may wait half a minute for the workers of a loader that was not read to its end.
        (Noisy(), {"shuffle": True, "num_workers": 2}, 6),
    ],
)
def test_a_stateful_loader_gets_its_saved_state(tmp_path: Path, dataset: Any, settings: Any, at: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    read: list[Any] = []

    def collate(samples: list[Any]) -> Tensor:
        return torch.stack([torch.as_tensor(sample).float().reshape(-1)[:1].expand(4) for sample in samples])

    def make(seed: int) -> Any:
        torch.manual_seed(seed)  # such a loader draws its order when it is created
        return StatefulDataLoader(dataset, batch_size=3, collate_fn=collate, **settings)

    class Reads(Hook):
        def before_train_iter(self, runner: Any, data_batch: Tensor) -> None:
            read.append((runner.iter, data_batch[:, 0].tolist()))

    stream_runner(tmp_path / "whole", make(1), custom_hooks=[Reads()]).train()
    expected, read = dict(read), []
    with pytest.raises(KeyboardInterrupt):
        stream_runner(tmp_path / "broken", make(1), custom_hooks=[Dies(at)]).train()
    stream_runner(tmp_path / "broken", make(2), resume=True, custom_hooks=[Reads()]).train()
    assert dict(read) == {iteration: batch for iteration, batch in expected.items() if iteration >= at}
    assert "is read again" not in (tmp_path / "broken" / "run.log").read_text()


class Counting:
    """A stateful loader without a length: it counts."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Tensor]:
        begin, self.at = self.at, self.at
        for number in range(begin, 4):
            self.at = number + 1
            yield torch.full((2, 4), float(number))
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def test_the_state_is_that_before_the_batch_that_was_read_ahead(tmp_path: Path) -> None:
    seen: list[float] = []

    class Reads(Hook):
        def before_train_iter(self, runner: Any, data_batch: Tensor) -> None:
            seen.append(data_batch[0, 0].item())

    with pytest.raises(KeyboardInterrupt):
        stream_runner(tmp_path, Counting(), custom_hooks=[Dies(6)]).train()
    stream_runner(tmp_path, Counting(), resume=True, custom_hooks=[Reads()]).train()
    assert seen == [2, 3, 0, 1, 2, 3]


class Shuffling:
    """A stateful loader with a length and its own generator."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)
        self.begun, self.given = self.generator.get_state(), 4

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Tensor]:
        if self.given >= 4:
            self.begun, self.given = self.generator.get_state(), 0
        for number in torch.randperm(4, generator=self.generator)[self.given :]:
            self.given += 1
            yield torch.full((2, 4), float(number))

    def state_dict(self) -> dict[str, Any]:
        return {"begun": self.begun, "given": self.given, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begun, self.given = state["begun"], state["given"]
        self.generator.set_state(self.begun if self.given < 4 else state["generator"])


@pytest.mark.parametrize("at", [3, 4, 6, 8])
@pytest.mark.parametrize("length", ["max_epochs", "max_iters"])
def test_a_state_is_restored_also_between_two_passes(tmp_path: Path, at: int, length: str) -> None:
    def make(folder: Path, **parts: Any) -> Runner:
        runner = stream_runner(folder, Shuffling(), **parts)
        if length == "max_iters":
            runner._host.replace_training(TrainLoop(runner.train_loop.dataloader, mean_square, max_iters=12))
        return runner

    whole = make(tmp_path / "whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "broken", custom_hooks=[Dies(at)]).train()
    resumed = make(tmp_path / "broken", resume=True)
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())


def test_a_dataset_may_grow_between_two_epochs() -> None:
    data = [(torch.ones(4), torch.tensor(1))] * 8
    runner = toy_runner(max_epochs=2, default_hooks={"checkpoint": None})
    loader: Any = DataLoader(data, batch_size=4)  # type: ignore[arg-type]  # a list is a dataset as well
    runner.train_loop.dataloader = loader
    runner.on("after_train_epoch")(lambda runner: data.extend(data[:4]))
    runner.train()
    assert runner.iter == 2 + 3


# ------------------------------------------------------------------------------------------------------ workers


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_may_be_started_in_any_way(method: str) -> None:
    loader = ResumableLoader(TensorDataset(torch.arange(6.0)), 3, num_workers=1, multiprocessing_context=method)
    assert [batch[0].tolist() for batch in loader.iterate(0)] == [[0, 1, 2], [3, 4, 5]]


class ReportsProcess(Dataset[list[Any]]):
    """A dataset that returns the parent and the ignored signals of the process that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> list[Any]:
        with open("/proc/self/status") as file:
            ignored = int(next(line for line in file if line.startswith("SigIgn")).split()[1], 16)
        return [os.getppid(), *(bool(ignored >> (number - 1) & 1) for number in (signal.SIGINT, signal.SIGHUP))]


def test_a_worker_leaves_interrupts_to_the_training_process() -> None:
    def report() -> list[Any]:
        loader = DataLoader(ReportsProcess(), 1, num_workers=1, collate_fn=lambda samples: samples[0])
        found: list[Any] = next(iterator(loader, seed=0, epoch=0, start=0, state=None))
        return found

    assert report() == [os.getpid(), True, True]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(report()))
    thread.start()
    thread.join(60)
    assert found == [[os.getpid(), True, True]]


def test_going_through_a_list_reads_only_what_is_needed() -> None:
    assert list(itertools.islice(iterator([1, 2, 3], seed=0, epoch=0, start=1, state=None), 5)) == [2, 3]
    assert json.dumps(batches([torch.zeros(1)])) == "[[0.0]]"


def test_every_pass_has_its_own_order_also_when_its_last_batch_is_skipped() -> None:
    epochs: list[int] = []

    class Loader(list[Any]):
        def set_epoch(self, epoch: int) -> None:
            epochs.append(epoch)

    runner = toy_runner(max_iters=4, val=None)
    runner.train_loop.dataloader = Loader(toy_data(2))

    @runner.on("before_train_iter")
    def skip(runner: Runner) -> None:
        if runner.iter == 1:
            runner.skip_step("bad")

    runner.train()
    assert epochs == [0, 1, 2]


class Leftovers:
    """A batch sampler that groups samples, and clears its group after the last batch of a pass."""

    def __init__(self, samples: int, length: int) -> None:
        self.samples, self.length = samples, length
        self.group: list[int] = []
        self.passes = 0

    def __iter__(self) -> Iterator[list[int]]:
        for index in range(self.samples):
            self.group.append(index)
            if len(self.group) == 2:
                yield list(self.group)
                self.group.clear()
        self.passes += 1

    def __len__(self) -> int:
        return self.length


def batches_of(sampler: Any, folder: Path, epochs: int = 2, limit: int | None = None) -> list[list[float]]:
    """Train on a loader with this batch sampler, and return the batches that training saw."""
    seen: list[list[float]] = []
    model = nn.Linear(1, 1)

    def step(model: nn.Module, batch: Tensor) -> Tensor:
        seen.append(batch.flatten().tolist())
        loss: Tensor = model(batch).mean()
        return loss

    samples: Any = torch.arange(6.0).reshape(6, 1)
    loader: DataLoader[Any] = DataLoader(samples, batch_sampler=sampler)
    loop = TrainLoop(loader, step=step, max_epochs=epochs, limit_batches=limit)
    Runner(
        model, train=loop, optim=torch.optim.SGD(model.parameters(), lr=0.1), work_dir=folder, writers=(), quiet=True
    ).train()
    return seen


def test_a_sampler_runs_its_code_after_the_last_batch_of_every_pass(tmp_path: Path) -> None:
    sampler = Leftovers(samples=6, length=3)
    assert batches_of(sampler, tmp_path) == [[0, 1], [2, 3], [4, 5]] * 2
    assert sampler.passes == 2


def test_a_loader_that_is_longer_than_its_length_is_reported_once(tmp_path: Path) -> None:
    class Longer(list[list[int]]):
        def __len__(self) -> int:
            return 2

    assert batches_of(Longer([[0], [1], [2]]), tmp_path) == [[0], [1]] * 2
    warnings = [line for line in (tmp_path / "run.log").read_text().splitlines() if "returns more" in line]
    assert [line.split("WARNING ")[-1].split("warning: ")[-1] for line in warnings] == [
        "the DataLoader has a length of 2 batches but returns more; each pass uses only the first 2. Correct its "
        "length, or set limit_batches."
    ]


def test_a_limit_leaves_the_sampler_where_it_is_and_says_nothing(tmp_path: Path) -> None:
    sampler = Leftovers(samples=6, length=3)
    batches_of(sampler, tmp_path, epochs=1, limit=2)
    assert sampler.passes == 0
    assert "returns more" not in (tmp_path / "run.log").read_text()


def test_an_iterator_with_a_length_continues_where_the_last_pass_ended(tmp_path: Path) -> None:
    class Numbers:
        """An endless stream that counts as two batches per epoch."""

        def __init__(self) -> None:
            self.numbers = itertools.count()

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            return torch.full((1, 4), float(next(self.numbers))), torch.zeros(1, dtype=torch.long)

    seen: list[int] = []
    model = nn.Linear(4, 2)

    def step(model: nn.Module, batch: Any) -> Tensor:
        seen.append(int(batch[0][0, 0]))
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    train = TrainLoop(Numbers(), step, max_epochs=3)
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
    Runner(model, train=train, optim=optim, device="cpu", work_dir=tmp_path, quiet=True).train()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert "returns more" not in (tmp_path / "run.log").read_text()
