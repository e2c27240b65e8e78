"""Batches that a run leaves out by their absolute position."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader

import hookline
from hookline import Hook, Optim, Runner, TrainLoop
from hookline.data import ResumableLoader
from hookline.data.batches import Batches
from hookline.data.skipping import Skip, parse_skip
from hookline.errors import ConfigError, DataError
from hookline.replay.samples import Batch, look_up
from hookline.rundir import capsule, loss_bits

#: Batches of 3 epochs of 5: the first and the last of an epoch, two in a row, and one in the middle.
SKIPPED = ["4-6", 8, "15"]
LEFT_OUT = {3, 4, 5, 7, 14}


class Data:
    """20 samples with augmentation."""

    draws = True

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((2,), index / 20) + torch.randn(2) / 10, torch.tensor(index % 2)


class OwnOrder:
    """A loader whose order nobody knows: it only counts its passes."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for number in range(5):
            value = float(5 * self.passes + number)
            yield torch.full((4, 2), value / 20), torch.arange(4) % 2


class Stateful(OwnOrder):
    """A loader that saves where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self._goes_on = 0, False

    def __iter__(self) -> Iterator[Any]:
        if not self._goes_on:
            self.passes, self.at = self.passes + 1, 0
        self._goes_on = False
        while self.at < 5:
            self.at += 1
            yield torch.full((4, 2), (5 * self.passes + self.at) / 20), torch.arange(4) % 2

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes, "at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes, self.at, self._goes_on = state["passes"], state["at"], True


def resumable() -> Any:
    return ResumableLoader(Data(), 4, shuffle=True)


def plain() -> Any:
    return DataLoader(Data(), 4, shuffle=True)  # type: ignore[arg-type]  # it has items and a length


def in_a_list() -> Any:
    return [(torch.full((4, 2), number / 5), torch.arange(4) % 2) for number in range(5)]


LOADERS = [resumable, plain, in_a_list, OwnOrder, Stateful]
RESUMING = [resumable, plain, in_a_list, Stateful]


class Recorded:
    """The batches of another run, pass by pass."""

    def __init__(self, passes: list[list[Any]]) -> None:
        self.passes, self.begun = passes, 0

    def __len__(self) -> int:
        return len(self.passes[min(self.begun, len(self.passes) - 1)])

    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        return iter(self.passes[self.begun - 1])


class Records(Hook):
    """Keeps every batch, or raises after a step."""

    def __init__(self, fails_at: int = 0) -> None:
        self.batches: list[Any] = []
        self.fails_at = fails_at

    def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
        if self.fails_at and runner.iter >= self.fails_at:
            raise RuntimeError("planned")
        self.batches.append(data_batch)


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def run(
    folder: Path, loader: Any, *hooks: Hook, accumulate: int = 1, saves: bool = False, resume: bool = False, **loop: Any
) -> Runner:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    runner = Runner(
        model,
        train=TrainLoop(loader, loss_of, **({"max_epochs": 3} | loop)),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=accumulate),
        custom_hooks=hooks,
        default_hooks={"checkpoint": {"interval": 1, "by_epoch": False, "max_keep_ckpts": 1} if saves else None},
        work_dir=folder,
        seed=3,
        device="cpu",
        quiet=True,
        resume=resume,
    )
    runner.train()
    return runner


def bits(folder: Path) -> list[int]:
    return loss_bits.read(folder)


def without(folder: Path, make: Callable[[], Any], places: set[int]) -> Recorded:
    """Return the batches of 3 epochs of a loader, as a run gets them, without some of them."""
    everything = Records()
    run(folder / "all", make(), everything)
    kept = [range(5 * epoch, 5 * epoch + 5) for epoch in range(3)]
    return Recorded([[everything.batches[place] for place in epoch if place not in places] for epoch in kept])


@pytest.mark.parametrize(("make", "accumulate"), [*((make, 1) for make in LOADERS), (resumable, 2), (OwnOrder, 3)])
def test_a_run_equals_a_run_on_data_without_these_batches(
    tmp_path: Path, make: Callable[[], Any], accumulate: int
) -> None:
    one = run(tmp_path / "skip", make(), accumulate=accumulate, skip=SKIPPED)
    other = run(tmp_path / "without", without(tmp_path, make, LEFT_OUT), accumulate=accumulate)
    assert (one.iter, one._host.train_loop.total_iters) == (10, 10)
    assert bits(tmp_path / "skip") == bits(tmp_path / "without")
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("make", RESUMING)
def test_a_run_by_iterations_goes_further_into_the_data(tmp_path: Path, make: Callable[[], Any]) -> None:
    everything, left = Records(), Records()
    run(tmp_path / "all", make(), everything, max_epochs=None, max_iters=12)
    runner = run(tmp_path / "skip", make(), left, max_epochs=None, max_iters=8, skip=["4-6", 8])
    kept = [batch for place, batch in enumerate(everything.batches) if place not in {3, 4, 5, 7}]
    assert [batch[0].tolist() for batch in left.batches] == [batch[0].tolist() for batch in kept]
    assert (runner.epoch, runner._host.train_loop.total_passes) == (2, 3)


@pytest.mark.parametrize("make", RESUMING)
def test_it_is_exact_over_interruptions(tmp_path: Path, make: Callable[[], Any]) -> None:
    whole = run(tmp_path / "whole", make(), skip=SKIPPED)
    for step in (3, 4, 9):  # before a range, at the end of an epoch, and in the last step
        with pytest.raises(RuntimeError, match="planned"):
            run(tmp_path / f"{step}", make(), Records(fails_at=step), saves=True, skip=SKIPPED)
        resumed = run(tmp_path / f"{step}", make(), Records(), skip=SKIPPED, resume=True)
        assert bits(tmp_path / f"{step}") == bits(tmp_path / "whole"), step
        assert resumed.position.state_dict() == whole.position.state_dict(), step


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_read_no_batch_that_is_left_out(workers: int) -> None:
    class Fails(Data):
        def __getitem__(self, index: int) -> Any:
            assert index not in range(12, 16), "this sample is left out"
            return super().__getitem__(index)

    loader = ResumableLoader(Fails(), 4, num_workers=workers)
    batches = Batches(loader, seed=0, skip=parse_skip([4]))
    assert [(last, batches.identify(number)) for number, (_, last) in enumerate(batches)] == [
        (last, ("samples", list(range(4 * place, 4 * place + 4))))
        for last, place in zip([0, 0, 0, 1], (0, 1, 2, 4), strict=True)
    ]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_together_leave_out_the_same_samples(processes: int) -> None:
    read: list[list[int]] = [[] for _ in range(4)]
    for rank in range(processes):
        loader = ResumableLoader(range(60), 12 // processes, shuffle=True, seed=1)
        loader.share(rank, processes, pad=True)
        for number, (batch, _) in enumerate(Batches(loader, seed=1, skip=parse_skip("2"))):
            read[number] += batch.tolist()
    alone = ResumableLoader(range(60), 12, shuffle=True, seed=1)
    assert read == [batch.tolist() for number, batch in enumerate(alone.iterate(0)) if number != 1]


def test_a_short_last_batch_that_is_left_out_does_not_count(tmp_path: Path) -> None:
    short = ResumableLoader(Data(), 6, shuffle=True)
    runner = run(tmp_path / "run", short, accumulate=2, max_epochs=2, skip=[4])
    assert (runner.iter, runner._host.train_loop.updates(2), runner._host.optims.sole.updates) == (7, 4, 4)


def test_the_samples_of_a_step_are_found_with_their_position(tmp_path: Path) -> None:
    class Numbered(Data):
        def __getitem__(self, index: int) -> Any:
            return torch.full((2,), float(index)), torch.tensor(index % 2)

    left = Records()
    runner = run(tmp_path, ResumableLoader(Numbered(), 4, shuffle=True), left, skip=SKIPPED)
    positions = []
    for step in range(1, 11):
        look_up(runner._host, batch := Batch(Path(), step, 0, 1))
        positions.append(batch.position)
        assert batch.ids == [int(value) for value in left.batches[step - 1][0][:, 0]]
    assert positions == [1, 2, 3, 7, 9, 10, 11, 12, 13, 14]


def test_a_dry_run_uses_as_many_batches_and_leaves_out_the_same() -> None:
    loop = TrainLoop(resumable(), loss_of, max_epochs=3, skip=["1-3"])
    loop.shorten(2)
    assert (loop.limit_batches, loop.length_of_pass(0), loop.total_iters) == (5, 2, 2)
    assert (loop.planned.total_iters, loop.planned.updates(2)) == (12, 7)


def test_a_capsule_names_the_position_of_its_batch(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="planned"):
        run(tmp_path, resumable(), Records(fails_at=4), skip=SKIPPED)
    batch = capsule.read(tmp_path / "capsule.json").data["batch"]
    assert (batch["epoch"], batch["number"], batch["position"]) == (1, 1, 9)


def test_a_session_of_an_own_loop_takes_it(tmp_path: Path) -> None:
    run(tmp_path / "runner", resumable(), skip=SKIPPED)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given: dict[str, Any] = {"work_dir": tmp_path / "own", "seed": 3, "device": "cpu", "quiet": True}
    with hookline.session(model, optimizer, resumable(), max_epochs=3, skip=SKIPPED, **given) as own:
        assert len(own) == 10
        for batch in own:
            own.step(loss_of(model, batch))
    assert bits(tmp_path / "own") == bits(tmp_path / "runner")


# -- what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["8120..8130"], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not '8120..8130'"),
        ([0], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not 0"),
        ("a-b", "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not 'a-b'"),
        ([1.5], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not 1.5"),
        ([True], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not True"),
        (["-3"], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not '-3'"),
        ([[1, 2]], "skip must have numbers of batches, from 1, or ranges such as 8120-8130, not [1, 2]"),
        (["30-20"], "skip: 30-20 ends before it begins; write 20-30"),
        (["8-10", 9], "skip: 8-10 and 9 overlap; name each batch once"),
        ([5, 5], "skip: 5 and 5 overlap; name each batch once"),
    ],
)
def test_an_entry_that_is_no_batch_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainLoop([1], loss_of, max_epochs=1, skip=given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        ({"skip": ["10-16"]}, "skip: there is no batch 16, because the run ends with batch 15"),
        (
            {"skip": [9], "max_epochs": None, "max_iters": 8},
            "skip: there is no batch 9, because the run ends with batch 8",
        ),
        ({"skip": ["6-10"]}, "skip leaves out all batches of epoch 2 (6-10), and an epoch needs at least one"),
        ({"skip": ["1-14"]}, "skip leaves out all batches of epoch 1 (1-5), and an epoch needs at least one"),
        (
            {"skip": [3], "limit_batches": 1},
            "skip leaves out all batches of epoch 3 (3-3), and an epoch needs at least one",
        ),
    ],
)
def test_batches_that_the_run_cannot_leave_out_are_refused(tmp_path: Path, loop: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, resumable(), **loop)
    assert str(caught.value) == message


def test_a_loader_without_a_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="but the generator has no length; leave the samples out of the data"):
        run(tmp_path, (batch for batch in in_a_list()), max_epochs=1, skip=[2])


def test_data_that_is_replaced_is_refused(tmp_path: Path) -> None:
    class Grows(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            if runner.epoch == 1:
                cast("Any", runner.train_loop.dataloader).batch_size = 2

    with pytest.raises(DataError, match="skip counts the batches of all passes, so it does not work with data that is"):
        run(tmp_path, resumable(), Grows(), skip=[2])


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ([2], [], "the checkpoint is after batch 7 of the data, and the run left out batch 2 before; add it to skip"),
        ([2], [2, 4], "so the run has trained with batch 4 already, and cannot leave it out; remove it from skip, or"),
        ([2], [2, "6-9"], "so the run has trained with batch 6-7 already, and cannot leave it out"),
        ([2, 12], [2], ""),
        ([2], [2, "8-9"], ""),
    ],
)
def test_a_resume_keeps_what_was_left_out_before(tmp_path: Path, then: Any, now: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match="planned"):
        run(tmp_path, resumable(), Records(fails_at=6), saves=True, skip=then)
    if message:
        with pytest.raises(ConfigError, match=re.escape(message)):
            run(tmp_path, resumable(), skip=now, resume=True)
        return
    run(tmp_path, resumable(), skip=now, resume=True)
    saved = json.loads((tmp_path / "resume.json").read_text())["differences"]
    assert [
        (each["key"], each["checkpoint"], each["config"], each["winner"]) for each in saved if each["key"] != "hooks"
    ] == [("skip", parse_skip(then).words, parse_skip(now).words, "config")]


def test_a_resume_with_passes_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="planned"):
        run(tmp_path, resumable(), Records(fails_at=5), saves=True, skip=[2], max_epochs=3)
    with pytest.raises(ConfigError, match="but a pass has 4 batches here, and had 5 when the checkpoint was saved"):
        run(tmp_path, resumable(), skip=[2], resume=True, limit_batches=4)


def test_parts_of_ranges() -> None:
    skip = parse_skip("3-5")
    assert skip.without(Skip([(3, 3)])).words == ["3", "5"]
    assert skip.without(skip).words == []
    assert (skip == parse_skip([3, 4, 5]), skip == parse_skip([3]), bool(Skip())) == (True, False, False)
