"""Data that is replaced during a run: loader, dataset and batch size, also in a resumed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.data.batches import is_malformed
from hookline.data.loader import ResumableLoader
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, DataError
from hookline.schedules import Linear
from hookline.testing import toy_data, toy_model
from tests.data.test_loader import Backwards
from tests.state.stopping import StopsAt


def data_of(samples: int) -> TensorDataset:
    """Return a dataset of the toy problem."""
    inputs = torch.randn(samples, 4, generator=torch.Generator().manual_seed(samples))
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def sizes(loader: ResumableLoader, epoch: int = 0) -> list[int]:
    return [len(batch[0]) for batch in loader.iterate(epoch)]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_a_new_batch_size_or_dataset_counts_from_the_next_pass_on(workers: int) -> None:
    loader = ResumableLoader(data_of(10), batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    running = loader.iterate(0)
    next(running)
    loader.batch_size = 5
    assert [len(batch[0]) for batch in running] == [4, 2]
    assert (sizes(loader), len(loader), loader.batch_size, loader.samples(0)) == ([5, 5], 2, 5, 5)
    running = loader.iterate(0)
    next(running)
    loader.dataset = data_of(7)
    assert [len(batch[0]) for batch in running] == [5]
    assert (sizes(loader), len(loader), len(loader.dataset)) == ([5, 2], 2, 7)
    assert torch.equal(next(loader.iterate(0))[0], data_of(7).tensors[0][:5])
    assert loader.replaced == {"batch_size": 5, "samples": 7}


def test_a_part_that_cannot_be_replaced_is_refused() -> None:
    loader = ResumableLoader(data_of(10), batch_size=4)
    with pytest.raises(ConfigError, match="batch_size must be an int of at least 1"):
        loader.batch_size = 0
    with pytest.raises(ConfigError, match="a ResumableLoader needs a dataset with a length"):
        loader.dataset = object()
    own = ResumableLoader(data_of(6), order=Backwards(data_of(6), 3, False, False, 0))
    for name, value in (("batch_size", 2), ("dataset", data_of(3))):
        with pytest.raises(ConfigError, match=rf"^loader.{name} has no effect on the batches of Backwards"):
            setattr(own, name, value)


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "num_workers", "collate_fn"])
def test_an_option_of_a_loader_is_refused_after_it_was_created(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        setattr(ResumableLoader(data_of(10)), name, True)
    assert str(refused.value) == (
        f"a ResumableLoader has no '{name}', so setting it has no effect; create a new ResumableLoader with it"
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("loader", "set dataloader"),
        ("data_loader", "set dataloader"),
        ("batch_size", "set dataloader.batch_size"),
        ("weigh", "create a new {} with it"),
        ("dataloder", "set dataloader"),
        ("limit_batch", "set limit_batches"),
    ],
)
def test_a_name_that_a_loop_does_not_have_cannot_be_set(name: str, advice: str) -> None:
    for loop in (TrainLoop(toy_data(), max_epochs=1), EvalLoop(toy_data())):
        with pytest.raises(ConfigError) as refused:
            setattr(loop, name, None)
        kind = type(loop).__name__
        assert str(refused.value) == f"a {kind} has no '{name}', so setting it has no effect; {advice.format(kind)}"


def test_a_loop_accepts_other_names_and_a_subclass_similar_ones() -> None:
    class Own(TrainLoop):
        def __init__(self) -> None:
            super().__init__(toy_data(), max_epochs=1)
            self.steps = 3

    loop: Any = TrainLoop(toy_data(), max_epochs=1)
    loop.note = "of mine"
    assert (loop.note, Own().steps) == ("of mine", 3)


class Grows(Hook):
    """Replaces the data as a function of the epoch."""

    def __init__(self, what: str) -> None:
        self.what = what

    def before_train_epoch(self, runner: Runner) -> None:
        if runner.epoch < 1:
            return
        loader: Any = runner.train_loop.dataloader
        if self.what == "batch_size":
            loader.batch_size = 4 * (1 + runner.epoch)
        elif self.what == "dataset":
            loader.dataset = data_of(20 + 12 * runner.epoch)
        else:
            runner.train_loop.dataloader = ResumableLoader(data_of(24), batch_size=3, shuffle=True)


class Once(Grows):
    """Replaces the data once, so that a resumed run does not."""

    def before_train_epoch(self, runner: Runner) -> None:
        if runner.epoch == 1:
            super().before_train_epoch(runner)


class Watches(Hook):
    """Keeps the sizes of all batches, and stops after some iterations."""

    def __init__(self, stops_after: int) -> None:
        self.stops_after, self.sizes = stops_after, []  # type: ignore[var-annotated]

    def after_train_iter(self, runner: Runner, data_batch: Any) -> None:
        self.sizes.append((runner.epoch, len(data_batch[0])))
        if runner.iter + 1 == self.stops_after:
            runner.stop("enough")


def trained(folder: Path, hook: Hook, stops_after: int = 0, resume: bool = False) -> tuple[Runner, Watches]:
    model, watches = toy_model(), Watches(stops_after)
    runner = Runner(
        model,
        train=TrainLoop(
            ResumableLoader(data_of(20), batch_size=4, shuffle=True),
            lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
            max_epochs=3,
        ),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), accumulate=2),
        custom_hooks=[hook, watches],
        work_dir=folder,
        device="cpu",
        quiet=True,
        resume=resume,
    )
    runner.train()
    return runner, watches


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("batch_size", [(0, 4)] * 5 + [(1, 8)] * 2 + [(1, 4), (2, 12), (2, 8)]),
        ("dataset", [(0, 4)] * 5 + [(1, 4)] * 8 + [(2, 4)] * 11),
        ("dataloader", [(0, 4)] * 5 + [(1, 3)] * 8 + [(2, 3)] * 8),
    ],
)
@pytest.mark.parametrize("stops_after", [7, 8])
def test_a_run_whose_data_is_replaced_resumes_exactly(
    tmp_path: Path, what: str, expected: list[Any], stops_after: int
) -> None:
    whole, seen = trained(tmp_path / "whole", Grows(what))
    assert seen.sizes == expected
    _, first = trained(tmp_path / "cut", Grows(what), stops_after)
    resumed, second = trained(tmp_path / "cut", Grows(what), resume=True)
    assert first.sizes + second.sizes == expected
    assert all(map(torch.equal, whole.model.state_dict().values(), resumed.model.state_dict().values()))
    assert resumed.hub.get_scalar("train/loss").last() == whole.hub.get_scalar("train/loss").last()


@pytest.mark.parametrize("stops_after", [0, 6, 8, 15])
def test_a_schedule_with_auto_keeps_its_length_and_the_log_says_so(tmp_path: Path, stops_after: int) -> None:
    def run(stops_after: int = 0, **options: Any) -> list[tuple[int, float]]:
        class Watches(Hook):
            def after_train_iter(self, runner: Runner) -> None:
                rates.append((runner.iter, runner.optims.sole.optimizer.param_groups[0]["lr"]))

        model, rates = toy_model(), list[tuple[int, float]]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = ResumableLoader(data_of(20), batch_size=4, shuffle=True)
        Runner(
            model,
            train=TrainLoop(loader, cross_entropy, max_epochs=3),
            optim=Optim(optimizer, [Linear(optimizer)]),
            custom_hooks=[Grows("dataset"), Watches(), *([StopsAt(stops_after)] if stops_after else [])],
            **{"work_dir": tmp_path, "device": "cpu", "quiet": True, **options},
        ).train()
        return rates

    rates = run(stops_after) + (run(resume=True) if stops_after else [])
    # 5 + 8 + 11 iterations, and a curve over 3 epochs of 5.
    assert [number for number, _ in rates] == list(range(24))
    assert [rate for _, rate in rates] == [pytest.approx(max(0.1 * (1 - number / 15), 0)) for number in range(24)]
    warnings = [line for line in (tmp_path / "run.log").read_text().splitlines() if "the data was replaced" in line]
    assert warnings[0].endswith(
        "the data was replaced: an epoch has 8 batches now, and 5 when training began. The length of Linear is 'auto', "
        "and stays as it was when training began; set it to the number of iterations of the whole training"
    )
    assert len(warnings) == 1 + (stops_after > 0)


@pytest.mark.parametrize(
    ("what", "name", "size"),
    [
        ("batch_size", "loader.batch_size", "batch_size: 8"),
        ("dataset", "loader.dataset", "samples: 32"),
        ("dataloader", "train_loop.dataloader", "batches: 8"),
    ],
)
def test_a_resumed_run_refuses_to_go_on_with_the_old_data(tmp_path: Path, what: str, name: str, size: str) -> None:
    trained(tmp_path, Once(what), stops_after=7)
    with pytest.raises(DataError) as refused:
        trained(tmp_path, Hook(), resume=True)
    assert str(refused.value) == (
        f"the checkpoint was saved after {name} was replaced ({size}), but here it is not replaced; a resumed run "
        "begins with the data that it is built with, so replace the data in before_train_epoch, as a function of "
        "runner.epoch"
    )


class ByIteration(Hook):
    """Replaces the data as a function of the iteration, at the beginning of an epoch or in the middle of it."""

    def __init__(self, what: str, point: str) -> None:
        self.what, self.point = what, point

    def before_train_epoch(self, runner: Runner) -> None:
        if self.point == "epoch" and runner.iter >= 6:
            self.replace(runner)

    def before_train_iter(self, runner: Runner) -> None:
        if self.point == "iter" and runner.iter >= 6:
            self.replace(runner)
        if self.point == "once" and runner.iter == 6:
            self.replace(runner)

    def replace(self, runner: Runner) -> None:
        loader: Any = runner.train_loop.dataloader
        if self.what == "batch_size":
            loader.batch_size = 3
        elif self.what == "dataset":
            loader.dataset = data_of(16)
        elif len(loader) == 5:
            runner.train_loop.dataloader = ResumableLoader(data_of(16), batch_size=4, shuffle=True)


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("batch_size", "loader.batch_size was replaced, but here it is replaced (batch_size: 3)"),
        ("dataset", "loader.dataset was replaced, but here it is replaced (samples: 16)"),
        ("dataloader", "train_loop.dataloader was replaced, but here it is replaced (batches: 4)"),
    ],
)
def test_a_resumed_run_refuses_the_data_of_a_later_epoch_inside_an_epoch(tmp_path: Path, what: str, found: str) -> None:
    trained(tmp_path, ByIteration(what, "epoch"), stops_after=7)
    with pytest.raises(DataError) as refused:
        trained(tmp_path, ByIteration(what, "epoch"), resume=True)
    assert str(refused.value).startswith(
        f"the checkpoint is inside an epoch that began before {found}, so the rest of the epoch would be other data; "
    )


@pytest.mark.parametrize("what", ["batch_size", "dataset", "dataloader"])
def test_data_that_was_replaced_inside_an_epoch_is_expected_in_the_next_one(tmp_path: Path, what: str) -> None:
    whole, _ = trained(tmp_path / "whole", ByIteration(what, "iter"))
    trained(tmp_path / "cut", ByIteration(what, "iter"), stops_after=7)
    resumed, _ = trained(tmp_path / "cut", ByIteration(what, "iter"), resume=True)
    assert all(map(torch.equal, whole.model.state_dict().values(), resumed.model.state_dict().values()))
    trained(tmp_path / "once", ByIteration(what, "once"), stops_after=7)
    trained(tmp_path / "once", ByIteration(what, "once"), stops_after=9, resume=True)
    with pytest.raises(DataError, match=r"was replaced .*, but here it is not replaced"):
        trained(tmp_path / "once", ByIteration(what, "once"), resume=True)


def test_a_damaged_description_of_replaced_data_is_found() -> None:
    states: list[Any] = [{}, {"batch_size": 3}, {"batch_size": -1}, {"other": 1}, []]
    assert [is_malformed(state) for state in states] == [False, False, True, True, True]


# -- streams without a length


class Policy:
    """Data that the model makes: a stream without a length whose batches depend on the weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __iter__(self) -> Any:
        while True:
            inputs = torch.randn(8, 4)
            with torch.no_grad():
                actions = self.model(inputs).argmax(dim=1)
            yield inputs, actions


def improve(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    inputs, actions = batch
    return torch.nn.functional.cross_entropy(model(inputs), actions)


def on_policy(folder: Path, stops_after: int = 0, resume: bool = False) -> dict[str, torch.Tensor]:
    model = toy_model()
    runner = Runner(
        model,
        train=TrainLoop(Policy(model), improve, max_iters=9),
        optim=torch.optim.SGD(model.parameters(), lr=0.5),
        custom_hooks=[Watches(stops_after)],
        work_dir=folder,
        device="cpu",
        quiet=True,
        resume=resume,
    )
    runner.train()
    return model.state_dict()


def test_a_batch_that_the_model_makes_is_never_one_update_old(tmp_path: Path) -> None:
    class Fresh(Hook):
        """Compares the weights that made a batch with the weights that train on it."""

        def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
            inputs, actions = data_batch
            with torch.no_grad():
                assert torch.equal(runner.model(inputs).argmax(dim=1), actions)

    model = toy_model()
    loop = TrainLoop(Policy(model), improve, max_iters=9)
    optim = torch.optim.SGD(model.parameters(), lr=5.0)
    Runner(model, train=loop, optim=optim, custom_hooks=[Fresh()], work_dir=tmp_path, device="cpu", quiet=True).train()
    assert "read one step ahead" not in (tmp_path / "run.log").read_text()


def test_a_run_on_data_that_the_model_makes_resumes_exactly(tmp_path: Path) -> None:
    whole = on_policy(tmp_path / "whole")
    on_policy(tmp_path / "cut", stops_after=4)
    resumed = on_policy(tmp_path / "cut", resume=True)
    assert all(map(torch.equal, whole.values(), resumed.values()))


def test_a_stream_by_epochs_says_before_training_that_it_is_read_ahead(tmp_path: Path) -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(toy_data(3))

    model = toy_model()
    loop = TrainLoop(Stream(), improve, max_epochs=2)
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    Runner(model, train=loop, optim=optim, work_dir=tmp_path, device="cpu", quiet=True).train()
    said = [line for line in (tmp_path / "run.log").read_text().splitlines() if "ahead" in line]
    assert [line.split("  ", 1)[1] for line in said] == [
        "the Stream has no length, so each batch is read one step ahead, to know which is the last; if the model makes "
        "the data, train by max_iters, which reads no batch ahead"
    ]


def test_a_dataloader_of_torch_refuses_to_be_changed_itself() -> None:
    loader: Any = DataLoader(data_of(8), 4)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 8
