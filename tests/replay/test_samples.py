"""The samples of a step, computed from the data of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner, TrainLoop
from hookline.data import ResumableLoader
from hookline.data.sources import fingerprint
from hookline.errors import ConfigError, DataError
from hookline.replay.samples import Batch, Lookup, look_up
from hookline.testing import toy_runner
from tests.faults import children

PROJECT = '''
import json
import sys

import torch

import hookline
from hookline import Hook, Optim, Runner, TrainLoop
from hookline.data import ResumableLoader


class Data:
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.tensor(index % 2)

    def describe(self, index):
        return f"image {index}.png"


class Sees(Hook):
    """Writes the samples of every step into a file of its process."""

    def before_train_iter(self, runner, data_batch):
        with open(f"seen-{runner.rank}", "a") as file:
            file.write(json.dumps([int(value) for value in data_batch[0][:, 0]]) + "\\n")


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(processes):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    loop = TrainLoop(ResumableLoader(Data(), batch_size=4, shuffle=True), loss_of, max_epochs=3)
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
    Runner(model, train=loop, optim=optim, custom_hooks=[Sees()], work_dir="run", device="cpu", quiet=True).train()


if __name__ == "__main__":
    if int(sys.argv[1]) > 1:
        hookline.launch(train, 2, nproc=int(sys.argv[1]))
    else:
        train(1)
'''


def run_project(folder: str, processes: int) -> None:
    """Run the project as a script; called in a child."""
    import os
    import runpy
    import sys

    os.chdir(folder)
    sys.argv, sys.path[:0] = ["project.py", str(processes)], [folder]
    runpy.run_path("project.py", run_name="__main__")


@pytest.mark.processes
@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_shows_the_samples_that_each_process_has_read(tmp_path: Path, processes: int) -> None:
    (tmp_path / "project.py").write_text(PROJECT)
    with children.running(run_project, str(tmp_path), processes) as child:
        assert child.wait() == 0, child.output()
    for rank, step in [(0, 1), (processes - 1, 9), (0, 16)]:
        seen = json.loads((tmp_path / f"seen-{rank}").read_text().splitlines()[step - 1])
        words = ["batch", "run", "--step", str(step), "--rank", str(rank), "--json"]
        code, printed = children.command(*words, cwd=tmp_path)
        assert code == 0, printed
        found = json.loads(printed)
        assert (found["ids"], found["step"], found["rank"]) == (seen, step, rank)
    code, printed = children.command("batch", "run", "--step", "1", cwd=tmp_path)
    seen = json.loads((tmp_path / "seen-0").read_text().splitlines()[0])
    where = "" if processes == 1 else ", rank 0 of 2"
    length = 13 if processes == 1 else 7
    lines = [f"step 1 (epoch 1, batch 1 of {length}{where}):", *(f"  {index}  image {index}.png" for index in seen)]
    assert printed == "\n".join([*lines, ""])
    (tmp_path / "project.py").write_text(PROJECT.replace("return 50", "return 40"))
    code, printed = children.command("batch", "run", "--step", "1", cwd=tmp_path)
    assert (code, "is not as it was when the run began: samples 50 then, 40 now" in printed) == (3, True), printed


def runner_of(loader: Any, **length: Any) -> Runner:
    runner = toy_runner()
    runner._host.replace_training(TrainLoop(loader, runner.train_loop.step, **(length or {"max_epochs": 1000})))
    return runner


class Numbers:
    """Samples that are their own numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


def test_content_that_has_changed_is_named() -> None:
    data = Numbers(50)
    loader = ResumableLoader(data, 4)
    lookup = Lookup(Batch(Path("run"), 1, 0, 1), Path("answer"), fingerprint(loader))
    lookup._compare_data(loader)
    assert lookup.batch.warning == ""
    then = lookup.data["hash"]
    data.length, data.scale = 50, 2.0  # type: ignore[attr-defined]  # another attribute
    lookup._compare_data(loader)
    changes = f"hash {then} then, {fingerprint(loader)['hash']} now"
    assert lookup.batch.lines()[-1] == f"warning: the data is not as it was when the run began: {changes}"


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize(("samples", "size", "drop_last"), [(50, 4, False), (37, 5, True), (7, 3, False)])
def test_1000_samples_are_the_ones_that_the_loader_reads(
    processes: int, samples: int, size: int, drop_last: bool
) -> None:
    compared = 0
    for rank in range(processes):
        read: list[list[int]] = []
        loader = ResumableLoader(Numbers(samples), size, shuffle=True, drop_last=drop_last, seed=0)
        loader.share(rank, processes, pad=True)
        for epoch in range(200):
            read += [batch.tolist() for batch in loader.iterate(epoch)]
            if sum(map(len, read)) >= 1000 / processes:
                break
        host = runner_of(ResumableLoader(Numbers(samples), size, shuffle=True, drop_last=drop_last))._host
        for step, expected in enumerate(read, 1):
            batch = Batch(Path(), step, rank, processes)
            look_up(host, batch)
            assert batch.ids == expected, (rank, step)
            compared += len(expected)
    assert compared >= 1000 - processes * 200


def test_of_a_list_of_batches_the_place_is_shown() -> None:
    batch = Batch(Path(), 6, 1, 2)
    look_up(runner_of([torch.zeros(1)] * 8)._host, batch)
    assert (batch.kind, batch.ids, batch.epoch, batch.number) == ("batches", [3], 1, 1)


def test_a_loader_with_its_own_order_is_named() -> None:
    class Own:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter([1, 2, 3])

    with pytest.raises(DataError, match="the Own controls its own order, so the samples of a step are not known"):
        look_up(runner_of(Own())._host, Batch(Path(), 1, 0, 1))


def test_the_position_is_shown_where_batches_are_left_out() -> None:
    batch = Batch(Path("run"), 3, 0, 1)
    look_up(runner_of([torch.zeros(1)] * 4, max_epochs=2, skip=[2])._host, batch)
    assert batch.lines() == ["step 3 (epoch 1, batch 4 of 4, position 4): batches 3"]


def test_a_step_after_the_end_of_the_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="step 9 is after the end of the run, which has 8 steps"):
        look_up(runner_of([torch.zeros(1)] * 4, max_epochs=2)._host, Batch(Path(), 9, 0, 1))


def test_nothing_of_a_run_is_read_to_look_a_batch_up() -> None:
    class Unread(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise AssertionError("no sample is read")

    class Never(Hook):
        def before_run(self) -> None:
            raise AssertionError("nothing is trained")

    runner = runner_of(ResumableLoader(Unread(10), 2, shuffle=True))
    runner.register_hook(Never())
    batch = Batch(Path(), 3, 0, 1)
    look_up(runner._host, batch)
    assert len(batch.ids) == 2
