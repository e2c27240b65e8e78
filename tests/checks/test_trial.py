"""The trial before training: one batch of every evaluation loop. What fails there, how it is shown, what it costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset
from torchmetrics import PearsonCorrCoef
from torchmetrics.classification import MulticlassAccuracy

from hookline import EvalLoop, Hook, Runner
from hookline.checks.evaluations import stages_to_try
from hookline.checks.trial import trial
from hookline.data import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, DataError, exit_code_of
from hookline.testing import Recorder, toy_data, toy_model, toy_runner

SKIP = (
    "one batch of every validation and test set is tried before the first step; to train without this trial, set "
    "trial_batch: false (in Python: Runner(..., trial_batch=False))"
)
BAD: Any = lambda model, batch: 1 // 0  # noqa: E731  # a step that fails


def in_trial(label: str) -> str:
    return f"in the trial of {label} before training, batch 0, epoch=0 iter=0 rank=0"


def failure(runner: Runner, kind: type[Exception]) -> Exception:
    """Return the error that training ends with before its first step."""
    with pytest.raises(kind) as failed:
        runner.train()
    assert (runner.iter, runner.validations) == (0, 0)
    return failed.value


def warnings_of(runner: Runner) -> list[str]:
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    return [line.partition("warning: ")[2] for line in lines if "warning: " in line]


def loop(step: Any = predict, **parts: Any) -> EvalLoop:
    return EvalLoop(toy_data(2, seed=1), step, **({"metrics": {"accuracy": accuracy}} | parts))


# -- errors


@pytest.mark.parametrize(
    ("parts", "label"),
    [
        ({"val": loop(BAD)}, "val"),
        ({"val": {"clean": loop(), "noisy": loop(BAD)}}, "val noisy"),
        ({"test": loop(BAD)}, "test"),
        ({"test": {"easy": loop(), "hard": loop(BAD)}}, "test hard"),
    ],
)
def test_a_wrong_step_of_any_evaluation_is_an_error_before_the_first_step(parts: dict[str, Any], label: str) -> None:
    error = failure(toy_runner(**parts), ZeroDivisionError)
    assert error.__notes__ == [in_trial(label), SKIP]
    assert exit_code_of(error) == 1
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-2:] == ["_evaluate", "<lambda>"]


def test_a_wrong_loss_of_an_evaluation_is_an_error_before_the_first_step() -> None:
    error = failure(toy_runner(val=EvalLoop(toy_data(2), loss=BAD)), ZeroDivisionError)
    assert error.__notes__ == [in_trial("val"), SKIP]
    shown = failure(toy_runner(val=loop(loss=predict)), Exception)
    assert str(shown).startswith("the loss of the step is a tensor of shape (8,)")


def test_a_metric_whose_update_fails_is_an_error_before_the_first_step() -> None:
    error = failure(toy_runner(test=loop(metrics={"accuracy": MulticlassAccuracy(5)})), ValueError)
    note = "in the metric 'accuracy', called with the result of the evaluation step"
    assert error.__notes__ == [note, in_trial("test"), SKIP]


def test_a_metric_that_returns_no_number_is_an_error_before_the_first_step() -> None:
    def names(preds: Tensor, target: Tensor) -> str:
        return "ok"

    error = failure(toy_runner(val=loop(metrics={"names": names})), ConfigError)
    assert str(error) == "the metric 'names' must return a number, or a tensor of numbers, for a batch, not a str"
    assert error.__notes__ == [in_trial("val"), SKIP]
    assert exit_code_of(error) == 2


def test_a_metric_with_one_number_per_class_is_an_error_before_the_first_step() -> None:
    def per_class(preds: Tensor, target: Tensor) -> Tensor:
        return preds.mean(0)

    error = failure(toy_runner(val=loop(metrics={"per_class": per_class})), ConfigError)
    assert str(error) == (
        "the metric 'per_class' is a function and must return one number for a batch, or one per sample, but returned "
        "a tensor of shape (2,) for 8 samples; return its mean, or another single number"
    )
    assert error.__notes__ == [in_trial("val"), SKIP]


@pytest.mark.parametrize(
    "metric",
    [
        lambda preds, target: (preds.argmax(-1) == target).float(),
        lambda preds, target: (preds.argmax(-1) == target).tolist(),
        lambda preds, target: preds.softmax(-1).flatten(),
        lambda preds, target: preds.mean(0)[:1],
        lambda preds, target: 0.5,
    ],
)
def test_a_metric_with_one_number_per_sample_or_element_is_averaged(metric: Any) -> None:
    runner = toy_runner(val=loop(metrics={"mean": metric}), max_epochs=1)
    runner.train()
    assert list(runner.val()) == ["mean"]


NO_RESULT = (
    "{} has neither metrics nor a loss, so its validations have no result. Set metrics, for example {}, or remove the "
    "validation"
)


def test_a_validation_without_a_result_is_reported(tmp_path: Path) -> None:
    def run(name: str, **parts: Any) -> list[str]:
        runner = toy_runner(max_epochs=1, work_dir=tmp_path / name, **parts)
        runner.train()
        return warnings_of(runner)

    python, config = "metrics={'accuracy': accuracy}", "'metrics: {accuracy: accuracy}'"
    empty = loop(metrics=None)
    assert run("a", val=empty) == [NO_RESULT.format("val", python)]
    assert run("b", val=empty, config={"seed": 0}) == [NO_RESULT.format("val", config)]
    assert run("c", val={"clean": loop(), "noisy": empty}) == [NO_RESULT.format("val noisy", python)]
    assert run("d", val=loop(metrics=None, loss=cross_entropy)) == []
    assert run("e", val=empty, custom_hooks=[Looks()]) == []


class Looks(Hook):
    """Computes something from the outputs of a validation."""

    def after_val_iter(self, runner: Runner, outputs: Any) -> None:
        self.last = outputs


class Broken(Dataset[Any]):
    """A dataset that cannot be read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        raise FileNotFoundError("images/0.png")


def test_fault_24_a_dataset_that_cannot_be_read_is_an_error_before_the_first_step() -> None:
    error = failure(toy_runner(test=EvalLoop(DataLoader(Broken(), batch_size=2), predict)), FileNotFoundError)
    assert str(error) == "images/0.png"
    assert error.__notes__ == [
        "reading sample 0 of epoch 0 in the training process",
        "in the DataLoader, at batch 0 of epoch 0",
        in_trial("test"),
        SKIP,
    ]
    assert exit_code_of(error) == 3


def test_fault_23_an_empty_test_set_is_refused_before_the_first_step() -> None:
    error = failure(toy_runner(test={"hard": EvalLoop([], predict)}), DataError)
    assert str(error) == "the loader of 'test hard' is empty: it has no batch"
    assert exit_code_of(error) == 3


def test_an_empty_stream_is_refused_before_the_first_step() -> None:
    class Nothing:
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    error = failure(toy_runner(test=EvalLoop(Nothing(), predict)), DataError)
    assert str(error) == "the Nothing is empty: it returned no batch in epoch 0"
    assert error.__notes__ == [in_trial("test"), SKIP]


def test_the_trial_can_be_turned_off() -> None:
    runner = toy_runner(test=loop(BAD), trial_batch=False)
    runner.train()
    assert (runner.iter, warnings_of(runner)) == (8, [])
    toy_runner(test=EvalLoop([], predict), trial_batch=False).train()


# -- warnings


def test_a_metric_that_needs_more_than_one_batch_is_a_warning_and_the_other_names_are_checked() -> None:
    def pair(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch[0])[:1, 0], batch[1][:1].float()

    class Fits:
        """A metric that cannot be computed from one batch."""

        def __init__(self) -> None:
            self.batches = 0

        def reset(self) -> None:
            """Start from scratch."""
            self.batches = 0

        def update(self, preds: Tensor, target: Tensor) -> None:
            """Count the batch."""
            self.batches += 1

        def compute(self) -> dict[str, float]:
            """Return two numbers."""
            if self.batches < 2:
                raise ValueError("needs two batches")
            return {"slope": 1.0, "offset": 0.0}

    def run(best: str) -> Runner:
        metrics = {"fit": Fits(), "pearson": PearsonCorrCoef()}
        saving = {"save_best": best, "rule": "greater"}
        return toy_runner(val=loop(pair, metrics=metrics), default_hooks={"checkpoint": saving}, max_epochs=1)

    runner = run("fit/slope")
    runner.train()
    assert runner.hub.get_scalar("val/fit/slope").last() == [1.0]
    assert warnings_of(runner) == [
        "the metric 'fit' of val cannot be computed from one batch, so its name is not checked before training: "
        "ValueError: needs two batches"
    ]
    error = failure(run("fits/slope"), ConfigError)
    assert str(error) == "CheckpointHook: validation returns no metric 'fits/slope'; available: pearson"


class Prepares(Hook):
    """Prepares the model, so that it can be evaluated."""

    def _prepare(self, runner: Runner) -> None:
        runner.model.scale = torch.ones(())

    def _around(self, runner: Runner) -> Iterator[None]:
        self._prepare(runner)
        yield


def scaled(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    scale: Any = model.scale
    return model(batch[0]) * scale, batch[1]


def preparing(point: str, **attributes: Any) -> Hook:
    method = Prepares._around if point.startswith("around_") else Prepares._prepare
    kind: Callable[[], Hook] = type("Preparing", (Prepares,), {point: method, **attributes})
    return kind()


@pytest.mark.parametrize(
    "point",
    [
        *("before_train", "around_train", "before_val", "around_val", "before_val_epoch", "around_val_epoch"),
        *("before_val_iter", "around_val_iter", "around_forward"),
    ],
)
def test_a_failure_that_a_hook_may_prevent_is_a_warning(point: str) -> None:
    runner = toy_runner(val=loop(scaled), test=None, custom_hooks=[preparing(point)], max_epochs=1)
    runner.train()
    assert runner.validations == 1
    assert warnings_of(runner) == [
        "the trial of val before training was not possible: AttributeError: 'Sequential' object has no attribute "
        "'scale'"
    ]
    log = (runner.work_dir / "run.log").read_text()
    assert f"\n  it may work later, because no hook is called here: Preparing at {point}\n" in log


@pytest.mark.parametrize(
    ("point", "attributes"),
    [("before_test_iter", {}), ("after_val_iter", {}), ("before_val_iter", {"role": "observer"})],
)
def test_other_hooks_do_not_excuse_a_failure(point: str, attributes: dict[str, Any]) -> None:
    hooks = [preparing(point, **attributes), Recorder()]
    error = failure(toy_runner(val=loop(scaled), custom_hooks=hooks), AttributeError)
    assert error.__notes__ == [in_trial("val"), SKIP]


def test_a_hook_of_the_batch_does_not_excuse_a_dataset_that_cannot_be_read() -> None:
    val = EvalLoop(DataLoader(Broken()), predict)
    error = failure(toy_runner(val=val, custom_hooks=[preparing("before_val_iter")]), FileNotFoundError)
    assert exit_code_of(error) == 3
    runner = toy_runner(val=val, custom_hooks=[preparing("before_val")])
    with pytest.raises(FileNotFoundError):
        runner.train()
    assert runner.iter == 4  # it may have prepared the data


# -- what is tried


def test_an_iterator_is_not_tried_because_it_yields_each_batch_once() -> None:
    seen: list[int] = []

    def count(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        seen.append(runner.iter)
        return predict(model, batch)

    val = EvalLoop(iter(toy_data(4, seed=1)), count, metrics={"accuracy": accuracy}, limit_batches=2)
    runner = toy_runner(val=val, test=None)
    runner.train()
    assert seen == [4, 4, 8, 8]


def test_each_loop_costs_one_batch_and_no_point_is_called() -> None:
    seen: list[str] = []

    def count(name: str) -> EvalLoop:
        def step(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            seen.append(f"{name} {model.training} {torch.is_grad_enabled()}")
            return predict(model, batch)

        def loss(model: nn.Module, batch: Any) -> Tensor:
            seen.append(f"{name} loss")
            return cross_entropy(model, batch)

        return EvalLoop(toy_data(3), step, metrics={"accuracy": accuracy}, loss=loss)

    recorder = Recorder()
    runner = toy_runner(
        val={"a": count("a"), "b": count("b")}, test=count("test"), custom_hooks=[recorder], max_epochs=1
    )
    runner.on("before_train")(lambda runner: seen.append("train"))
    runner.train()
    tried = ["a loss", "a False False", "b loss", "b False False", "test loss", "test False False"]
    assert seen[: seen.index("train")] == tried
    assert recorder.names[:4] == ["enter run", "before_run", "enter train", "before_train"]


def test_a_run_that_is_over_tries_nothing(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    runner = toy_runner(max_epochs=1, work_dir=tmp_path, resume=True, test=loop(BAD))
    runner.train()
    assert stages_to_try(runner._host) == ()


def test_the_loss_of_an_evaluation_is_computed_in_the_trial() -> None:
    known: list[dict[str, Any]] = []

    class Knows(Hook):
        def know_metrics(self, metrics: Any) -> None:
            """Keep the metrics of the trial."""
            known.append(dict(metrics))

    data = toy_data(2, seed=1)
    toy_runner(val=EvalLoop(data, loss=cross_entropy), custom_hooks=[Knows()], max_epochs=1).train()
    assert known == [{"loss": cross_entropy(toy_model(), data[0]).item()}]


# -- what is restored


class Draws(nn.Module):
    """A model that draws numbers, changes buffers, and computes gradients in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = toy_model()
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Any:
        """Do all of that."""
        if not self.training:
            self.seen += torch.rand(())
            with torch.enable_grad():
                self.body(inputs).sum().backward()
        return self.body(inputs + 0.1 * torch.rand(4))


def states_of(runner: Runner) -> str:
    parts = {name: part.state_dict() for name, part in runner._host.contents.parts.items() if name != "writers"}
    return str([parts, [(each.grad, each.requires_grad) for each in runner.model.parameters()]])


def test_gradients_are_hidden_from_an_evaluation_and_restored() -> None:
    model = Draws()
    model(torch.ones(2, 4)).sum().backward()
    before = [(each.grad, each.grad.clone()) for each in model.parameters() if each.grad is not None]
    with trial(model):
        assert [each.grad for each in model.parameters()] == [None] * 4
        model(torch.ones(2, 4))
    after = [each.grad for each in model.parameters()]
    assert len(before) == 4
    assert all(now is kept and now.equal(value) for now, (kept, value) in zip(after, before, strict=True))


class Shuffles(SequentialSampler):
    """A sampler with a generator of its own."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(16, generator=self.generator).tolist()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_with_and_without_the_trial_is_bit_identical(tmp_path: Path, accumulate: int) -> None:
    def run(name: str, tried: bool, epochs: int = 2, resume: bool = False) -> Runner:
        torch.manual_seed(0)
        inputs = torch.randn(16, 4)
        data = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
        val = {
            "plain": EvalLoop(DataLoader(data, batch_size=8, shuffle=True), predict, metrics={"accuracy": accuracy}),
            "own": EvalLoop(DataLoader(data, sampler=Shuffles(data), batch_size=8), predict, loss=cross_entropy),
        }
        runner = toy_runner(
            model=Draws(), val=val, max_epochs=epochs, accumulate=accumulate, trial_batch=tried, resume=resume,
            default_hooks={"timer": None}, work_dir=tmp_path / name,
        )  # fmt: skip
        runner.train()
        return runner

    without, tried = run("without", tried=False), run("tried", tried=True)
    assert states_of(tried) == states_of(without)
    run("resumed", tried=True, epochs=1)
    resumed = [run("resumed", tried=True, resume=True)]
    run("resumed again", tried=False, epochs=1)
    resumed.append(run("resumed again", tried=False, resume=True))
    assert states_of(resumed[0]) == states_of(resumed[1])


# -- loaders with workers


class Notes(Dataset[Any]):
    """Notes in a file which process reads which sample."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        with open(self.path, "a") as file:
            file.write(f"{os.getpid()} {index}\n")
        return torch.ones(4), 1


@pytest.mark.processes
@pytest.mark.parametrize("persistent", [False, True])
def test_a_single_worker_reads_the_trial_batch_and_nothing_else(tmp_path: Path, persistent: bool) -> None:
    data = Notes(tmp_path / "read")
    loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=persistent)
    runner = toy_runner(val=EvalLoop(loader, predict, metrics={"accuracy": accuracy}), test=None)

    runner.on("before_train")(lambda: 1 // 0)  # nothing but the trial has read a batch until here
    with pytest.raises(ZeroDivisionError):
        runner.train()
    read = [line.split() for line in data.path.read_text().splitlines()]
    assert [index for _, index in read] == ["0", "1", "2", "3"]
    (reader,) = {process for process, _ in read}
    assert reader != str(os.getpid())


def test_reading_once_leaves_other_iterators_and_the_order_alone() -> None:
    loader = ResumableLoader(list(range(10)), batch_size=2, shuffle=True, seed=4)
    whole = [batch.tolist() for batch in loader.iterate(3)]
    passing = loader.iterate(3, start=1)
    first = next(passing).tolist()
    assert [batch.tolist() for batch in loader.iterate_once(3)] == whole[:1]
    assert [first, *(batch.tolist() for batch in passing)] == whole[1:]
    assert (loader.order.epoch, loader.order.start) == (3, 1)


class Stream(IterableDataset[Any]):
    """A stream without a length."""

    def __iter__(self) -> Iterator[Any]:
        yield from toy_data(3)


def test_streams_and_samplers_of_other_kinds_are_tried_too() -> None:
    data = TensorDataset(*[torch.cat(parts) for parts in zip(*toy_data(3), strict=True)])
    batches = BatchSampler(SequentialSampler(data), 8, drop_last=False)

    class Other(BatchSampler):
        pass

    loaders: list[Any] = [
        DataLoader(Stream(), batch_size=None),
        DataLoader(data, batch_sampler=Other(batches.sampler, 8, False)),
    ]
    for loader in loaders:
        error = failure(toy_runner(val=EvalLoop(loader, BAD)), ZeroDivisionError)
        assert error.__notes__ == [in_trial("val"), SKIP]


class Counted(IterableDataset[Any]):
    """Scales its images by the number of the pass."""

    def __init__(self, items: Any = None) -> None:
        self.passes, self.items = 0, items

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for images, target in zip(*toy_data(1)[0], strict=True):
            yield images * self.passes, target


def test_data_that_counts_its_passes_gives_the_same_results_with_and_without_the_trial() -> None:
    results = []
    for tried in (True, False):
        val = EvalLoop(DataLoader(Counted(), 4), predict, metrics={"sum": lambda preds, target: float(preds.sum())})
        runner = toy_runner(val=val, test=None, trial_batch=tried)
        runner.train()
        results.append(runner.hub.get_scalar("val/sum").last())
    assert results[0] == results[1]
    assert len(results[0]) == 2


def test_data_that_yields_once_is_not_tried(tmp_path: Path) -> None:
    data = DataLoader(Counted(items=(number for number in range(3))), 4)
    val = EvalLoop(data, predict, metrics={"accuracy": accuracy})
    runner = toy_runner(val=val, test=None, work_dir=tmp_path)
    runner.train()
    assert warnings_of(runner) == [
        "the trial of val before training was not possible: Counted.items is a generator, which yields data once, and "
        "the evaluation needs all of it"
    ]


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (lambda model, batch: model(batch[0]), "a tensor of shape (8, 2)"),
        (lambda model, batch: (model(batch[0]), batch[1], batch[1]), "3 values"),
        (lambda model, batch: {"logits": model(batch[0])}, "a mapping with the keys logits"),
    ],
)
def test_a_step_whose_result_a_metric_cannot_take_is_refused_and_the_earlier_run_stays(
    tmp_path: Path, outputs: Any, found: str
) -> None:
    def takes_two(preds: Any, target: Any) -> float:
        return 1.0

    toy_runner(work_dir=tmp_path).train()
    val = EvalLoop(toy_data(2), outputs, metrics={"mine": takes_two})
    with pytest.raises(ConfigError) as refused:
        toy_runner(work_dir=tmp_path, val=val).train()
    assert str(refused.value) == (
        f"the metric 'mine' takes (preds, target), but the evaluation step returned {found}; let the step return "
        "(preds, target)"
    )
    assert (tmp_path / "epoch_2.pth").exists()


def test_an_error_in_the_trial_leaves_the_earlier_run_where_it_was(tmp_path: Path) -> None:
    def fails(model: Any, batch: Any) -> Any:
        raise KeyError("labels")

    toy_runner(work_dir=tmp_path).train()
    before = (tmp_path / "epoch_2.pth").read_bytes()
    with pytest.raises(KeyError):
        toy_runner(work_dir=tmp_path, val=EvalLoop(toy_data(2), fails)).train()
    assert (tmp_path / "epoch_2.pth").read_bytes() == before
    assert not (tmp_path / "old-1").exists()
