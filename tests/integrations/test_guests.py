"""Guests of Lightning and Transformers: the engine's training stays the same, and everything ends in order."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint

from hookline import Hook, Runner, TrainLoop
from hookline.checkpoint import seal
from hookline.checkpoint.export import export
from hookline.errors import ConfigError, HookError, StorageError
from hookline.integrations import guest
from hookline.testing import Recorder
from tests.integrations.engines import (
    EPOCHS,
    Net,
    Recorded,
    loaders,
    loss_of,
    new_net,
    run_in_lightning,
    run_in_runner,
    run_in_transformers,
)
from tests.integrations.hosts import CALLBACKS, HOSTS, NAMES, find_refusal, given


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_lightning(callbacks: list[Any], **options: Any) -> Any:
    return run_in_lightning(callbacks, **options)


def run_transformers(callbacks: list[Any], **options: Any) -> Any:
    return run_in_transformers(Path(), callbacks, **options)


#: Trains with callbacks, and returns an object with the losses.
TRAIN: dict[str, Callable[..., Any]] = {"Lightning": run_lightning, "Transformers": run_transformers}


def model_of(trained: Any) -> torch.nn.Module:
    found: torch.nn.Module = getattr(trained, "model", None) or trained
    return found


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class Looks(Recorder):
    """Records the points."""

    role = "observer"


# ------------------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_training_of_the_engine_is_the_same_bit_by_bit_with_all_hooks(host: str, accumulate: int) -> None:
    """Weights, losses and random numbers, with dropout, batch norm, validations and windows that end early."""
    hooks = [given(name)[0] for name in NAMES if not find_refusal(name, host) and name not in ("EarlyStoppingHook",)]
    found = []
    for callbacks in ([], [CALLBACKS[host]([hook for each in hooks for hook in each], "run")]):
        trained = TRAIN[host](callbacks, accumulate=accumulate, dropout=0.5)
        weights = [value.clone() for value in model_of(trained).state_dict().values()]
        found.append((trained.losses, weights, torch.get_rng_state()))
    (losses, weights, numbers), (their_losses, their_weights, their_numbers) = found
    assert len(losses) == 10
    assert losses == their_losses
    assert all(one.equal(other) for one, other in zip(weights, their_weights, strict=True))
    assert numbers.equal(their_numbers)


class DrawsNumbers(Hook):
    """Draws random numbers, which an observer may do."""

    role = "observer"

    def before_train_iter(self) -> None:
        torch.rand(3)


@pytest.mark.parametrize("host", HOSTS)
def test_an_observer_that_draws_random_numbers_changes_nothing(host: str) -> None:
    plain = TRAIN[host]([], dropout=0.5)
    watched = TRAIN[host]([CALLBACKS[host]([DrawsNumbers()], "run")], dropout=0.5)
    assert plain.losses == watched.losses


# ----------------------------------------------------------------------------------------------------------- the points


@pytest.mark.parametrize("host", HOSTS)
def test_a_guest_goes_through_the_points_of_a_runner(host: str) -> None:
    theirs, ours = Looks(), Looks()
    TRAIN[host]([CALLBACKS[host]([theirs], "theirs")])
    run_in_runner(Path("ours"), [ours], {})
    expected = ours.names if host == "Lightning" else without_batches_of_validations(ours.names)
    assert theirs.names == expected
    forwards = 14 if host == "Lightning" else 10
    assert (expected.count("after_train_iter"), expected.count("enter forward")) == (10, forwards)


def without_batches_of_validations(names: list[str]) -> list[str]:
    """Return the names of the points without those between a batch of a validation and its end."""
    found: list[str] = []
    inside = False
    for name in names:
        inside = inside or name == "enter val_iter"
        if not inside:
            found.append(name)
        inside = inside and name != "leave val_iter"
    return found


class LooksAtValidations(Hook):
    """Looks at batches of validations."""

    role = "observer"

    def after_val_iter(self) -> None:
        raise AssertionError("Transformers does not call it")


def test_a_method_that_transformers_never_calls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    CALLBACKS["Transformers"]([LooksAtValidations()], "run")
    assert caplog.messages == [
        "LooksAtValidations.after_val_iter is never called inside Transformers: it shows no batches of a validation to "
        "callbacks; use compute_metrics of the Trainer"
    ]
    caplog.clear()
    CALLBACKS["Lightning"]([LooksAtValidations()], "run")
    assert caplog.messages == []


@pytest.mark.parametrize("host", HOSTS)
def test_the_folder_has_the_files_of_a_run(host: str) -> None:
    TRAIN[host]([CALLBACKS[host](work_dir="run")])
    files = {path.name for path in Path("run").iterdir()}
    records = {"loss_bits.bin", "metrics.jsonl"}
    assert files == {"events.jsonl", "hooks.json", "plan.txt", "report.html", "run.log"} | records
    assert [event["kind"] for event in lines("run/events.jsonl")].count("validation") == EPOCHS
    assert lines("run/events.jsonl")[-1]["kind"] == "end"
    assert "LoggerHook" in Path("run/hooks.json").read_text()


def recorded(name: str) -> list[Any]:
    return [line[name] for line in lines("run/metrics.jsonl") if name in line]


EVERY: dict[str, Any] = {"logger": {"interval": 1}}


def test_the_losses_are_whole_if_lightning_begins_to_accumulate_in_a_later_epoch() -> None:
    callback = CALLBACKS["Lightning"]([], "run", EVERY)
    trained = run_lightning([callback, GradientAccumulationScheduler({0: 1, 1: 2})])
    assert recorded("train/loss") == trained.losses


class Tokens(Net):
    """A model that divides the sum of its losses by all labels of the step, as language models of Transformers do."""

    accepts_loss_kwargs = True

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, **options: Any) -> dict[str, torch.Tensor]:
        outputs = super().forward(inputs, labels)
        labels_of_step = options.get("num_items_in_batch")
        share = 1 if labels_of_step is None else len(labels) / labels_of_step
        return {**outputs, "loss": outputs["loss"] * share}


def test_the_losses_are_whole_if_a_model_of_transformers_returns_its_share_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.integrations.engines.Net", Tokens)
    callback = CALLBACKS["Transformers"]([], "run", EVERY)
    trained = run_transformers([callback], accumulate=2, samples=20)
    shares = [2, 2, 2, 2, 1] * 2  # five batches, so the last step of an epoch has one
    assert recorded("train/loss") == [loss * share for loss, share in zip(trained.losses, shares, strict=True)]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_guest_counts_on_when_lightning_resumes_in_an_epoch(accumulate: int) -> None:
    saves = ModelCheckpoint("theirs", "{step}", every_n_train_steps=1, save_top_k=-1)
    options: dict[str, Any] = {"accumulate": accumulate, "samples": 20, "limit_val_batches": 0}
    run_lightning([saves], enable_checkpointing=True, **options)
    step = {1: 7, 2: 4}[accumulate]  # after the second batch of epoch 2
    callback = CALLBACKS["Lightning"]([], "run", EVERY)
    run_lightning([callback], resume=f"theirs/step={step}.ckpt", **options)
    assert (callback.runner.epoch, callback.runner.iter) == (2, 10)
    assert (recorded("step"), set(recorded("epoch"))) == ([8, 9, 10], {2})


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_guest_counts_on_when_transformers_resumes_in_an_epoch(accumulate: int) -> None:
    options: dict[str, Any] = {"accumulate": accumulate, "samples": 20, "eval_strategy": "no"}
    run_transformers([], save_strategy="steps", save_steps=1, **options)
    step = {1: 7, 2: 4}[accumulate]
    callback = CALLBACKS["Transformers"]([], "run", EVERY)
    run_transformers([callback], resume=f"theirs/checkpoint-{step}", **options)
    assert (callback.runner.epoch, callback.runner.iter) == (2, 10)
    assert (recorded("step"), set(recorded("epoch"))) == ([8, 9, 10], {2})


def test_the_length_is_limited_by_the_steps_of_lightning() -> None:
    callback = CALLBACKS["Lightning"]([], "run", EVERY)
    run_lightning([callback], max_epochs=9, max_steps=7)
    assert (callback.runner.train_loop.max_epochs, callback.runner.iter) == (2, 7)


# ------------------------------------------------------------------------------------------------- stops and failures


class StopsAt(Hook):
    """Stops at an iteration."""

    role = "observer"

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter == 2:
            runner.stop("enough")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("accumulate", "iterations"), [(1, 3), (2, 4)])
def test_a_stop_is_passed_on_to_the_engine_at_the_end_of_the_window(
    host: str, accumulate: int, iterations: int
) -> None:
    callback = CALLBACKS[host]([StopsAt()], "run")
    trained = TRAIN[host]([callback], accumulate=accumulate)
    assert len(trained.losses) == iterations
    assert (callback.runner.iter, callback.runner.stopped.reason) == (iterations, "enough")
    assert lines("run/events.jsonl")[-1]["kind"] == "end"


def test_a_failure_in_lightning_leaves_all_scopes_and_ends_the_run() -> None:
    recorder = Looks()
    callback = CALLBACKS["Lightning"]([recorder], "run")
    with pytest.raises(RuntimeError, match="out of luck"):
        run_lightning([callback], fail_at=6)
    left = [name.split()[1] for name in recorder.names if name.startswith("fail")]
    assert left == ["forward", "train_iter", "train_epoch", "train", "run"]
    assert "out of luck" in Path("run/run.log").read_text()
    assert callback.runner.running is None
    again = CALLBACKS["Lightning"]([], "run")  # the folder is free
    run_lightning([again])
    assert again.runner.iter == 10


def test_a_failure_in_transformers_ends_the_run_when_the_callback_is_closed() -> None:
    recorder = Looks()
    callback = CALLBACKS["Transformers"]([recorder], "run")
    with pytest.raises(RuntimeError, match="out of luck") as failed:
        run_transformers([callback], fail_at=6)
    callback.close(failed.value)
    left = [name.split()[1] for name in recorder.names if name.startswith("fail")]
    assert left == ["train_epoch", "train", "run"]
    assert "out of luck" in Path("run/run.log").read_text()
    callback.close()  # nothing is left
    again = CALLBACKS["Transformers"]([], "run")
    run_transformers([again])
    assert again.runner.iter == 10


@pytest.mark.parametrize("host", HOSTS)
def test_a_loss_of_nan_does_not_end_a_training_that_the_engine_continues(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integrations.engines.RATE", 1e30)
    trained = TRAIN[host]([CALLBACKS[host](work_dir="run", default_hooks={"logger": {"interval": 1}})])
    assert len(trained.losses) == 10
    assert trained.losses[-1] != trained.losses[-1]


class WithoutLoss(Recorded):
    """A Trainer that computes the loss itself, from a model that returns none."""

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(inputs["inputs"])["logits"], inputs["labels"])


class Silent(Net):
    """A model that returns no loss."""

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.body(inputs))}


def test_a_loss_that_transformers_does_not_show_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tests.integrations.engines.Recorded", WithoutLoss)
    monkeypatch.setattr("tests.integrations.engines.Net", Silent)
    caplog.set_level("WARNING", "hookline")
    callback = CALLBACKS["Transformers"]([], "run")
    run_transformers([callback], eval_strategy="no")
    assert callback.runner.iter == 10
    text = "the model returns no loss, and compute_loss of the Trainer computes it where callbacks see nothing"
    log = Path("run/run.log").read_text()
    assert log.count(f"{text}: train/loss is not recorded; let the model return its loss") == 1
    with pytest.raises(ConfigError, match=f"CheckInvalidLossHook cannot check the loss: {text}; let the model return"):
        run_transformers([CALLBACKS["Transformers"](["CheckInvalidLossHook"], "checked")], eval_strategy="no")


# --------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("host", HOSTS)
def test_a_checkpoint_has_the_weights_and_cannot_be_resumed(host: str) -> None:
    trained = TRAIN[host]([CALLBACKS[host](["CheckpointHook"], "run")])
    path = Path("run/epoch_2.pth")
    note = seal.read_note(path)
    assert note is not None
    assert not note.complete
    assert not Path("run/last_checkpoint").exists()
    net = new_net()
    options: dict[str, Any] = {
        "train": TrainLoop(loaders()[0], loss_of, max_epochs=3),
        "optim": torch.optim.SGD(net.parameters(), 0.0),
        "quiet": True,
        "device": "cpu",
    }
    with pytest.raises(StorageError, match="has no param_schedulers, rng, so a run cannot resume from it"):
        Runner(net, work_dir="run", resume=str(path), **options).train()
    exported = export(path, Path("weights.safetensors"))
    assert Path("weights.safetensors").is_file(), exported
    runner = Runner(net, work_dir="next", load_from=path, **options)
    runner.train()  # at a rate of 0
    theirs = model_of(trained).state_dict()
    assert all(net.state_dict()[name].equal(theirs[name]) for name, _ in net.named_parameters())


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("host", HOSTS)
def test_a_callback_given_to_two_trainers_is_refused(host: str) -> None:
    callback = CALLBACKS[host](work_dir="run")
    TRAIN[host]([callback])
    with pytest.raises(ConfigError) as refused:
        TRAIN[host]([callback])
    assert str(refused.value) == (
        f"this HooklineCallback was given to two trainers of {host}, and its folder and records belong to the first "
        "one; create one for each"
    )


@pytest.mark.parametrize(
    ("name", "library", "command"),
    [
        ("lightning", "lightning.pytorch", "pip install lightning"),
        ("transformers", "transformers", "pip install 'transformers[torch]'"),
    ],
)
def test_a_missing_library_is_named(name: str, library: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"hookline.integrations.{name}")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as missing:
        importlib.import_module(f"hookline.integrations.{name}")
    assert str(missing.value) == f"hookline.integrations.{name} needs {name}, which is not installed: {command}"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("version", "age"), [("1.0.0", "older"), ("99.1", "newer")])
def test_another_version_is_one_warning(
    host: str, version: str, age: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guest, "version", lambda package: version)
    with caplog.at_level(logging.WARNING, "hookline"):
        TRAIN[host]([CALLBACKS[host](work_dir="run")])
    package = host.lower()
    tested = {"Lightning": "2.6.6", "Transformers": "5.23.0"}[host]
    assert [record.getMessage() for record in caplog.records if record.name == "hookline"] == [
        f"{package} {version} is {age} than {tested}, which hookline is tested with; if something fails, install that "
        "version"
    ]


@pytest.mark.parametrize("host", HOSTS)
def test_the_tested_version_is_no_warning(host: str, caplog: pytest.LogCaptureFixture) -> None:
    CALLBACKS[host](work_dir="run")
    assert caplog.records == []


class Acts(Hook):
    """Might do anything."""


@pytest.mark.parametrize("host", HOSTS)
def test_a_hook_of_the_user_must_be_an_observer(host: str) -> None:
    with pytest.raises(HookError) as refused:
        CALLBACKS[host]([Acts()])
    assert str(refused.value) == (
        f"Acts cannot be used inside {host}: it may change training. If it only looks, declare role = 'observer' in "
        "the class Acts"
    )


class Skips(Hook):
    """Says that it only looks, but skips."""

    role = "observer"

    def before_backward(self, runner: Runner) -> None:
        runner.skip_step("odd")


class ReplacesBatch(Hook):
    """Says that it only looks, but replaces the batch."""

    role = "observer"

    def before_train_iter(self, runner: Runner) -> None:
        runner.data_batch = {}


class ReplacesLoss(Hook):
    """Says that it only looks, but replaces the loss."""

    role = "observer"

    def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        outputs["loss"] = outputs["loss"] * 2


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (Skips, r"a hook has skipped a batch \(odd\), but {} makes the steps; use runner.stop"),
        (ReplacesBatch, "a hook has replaced the batch, but {} uses its own; remove that hook"),
        (ReplacesLoss, "a hook has replaced the loss, but {} uses its own; remove that hook"),
    ],
)
def test_an_observer_that_acts_ends_the_run(host: str, hook: type[Hook], message: str) -> None:
    callback = CALLBACKS[host]([hook()], "run")
    with pytest.raises((HookError, ConfigError), match=message.format(host)):
        TRAIN[host]([callback])
    assert callback.runner.running is None
    assert message.format(host).replace("\\", "") in Path("run/run.log").read_text()


@pytest.mark.parametrize("host", HOSTS)
def test_options_that_belong_to_the_engine_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"HooklineCallback has no option 'resume', because {host} owns the training"):
        CALLBACKS[host](resume=True)


def test_a_hook_that_needs_a_metric_is_refused_without_a_validation() -> None:
    callback = CALLBACKS["Lightning"]([{"type": "EarlyStoppingHook", "monitor": "accuracy"}], "run")
    with pytest.raises(ConfigError, match="EarlyStoppingHook needs the metric 'accuracy', but this training has"):
        run_lightning([callback], limit_val_batches=0)


def test_norms_of_clipped_gradients_are_refused_in_transformers() -> None:
    callback = CALLBACKS["Transformers"](["GradNormHook"], "run")
    with pytest.raises(ConfigError, match="GradNormHook cannot be used inside Transformers with max_grad_norm=1.0: "):
        run_transformers([callback], max_grad_norm=1.0)


@pytest.mark.parametrize("host", HOSTS)
def test_hooks_that_need_whole_weights_are_refused_if_the_engine_has_split_them(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest, "is_sharded", lambda parameter: True)
    with pytest.raises(ConfigError) as refused:
        TRAIN[host]([CALLBACKS[host](["CheckpointHook"], "run")])
    assert str(refused.value) == (
        f"CheckpointHook cannot be used here: {host} has split the model over the processes, and only {host} can put "
        "it together; remove the hook, or train without FSDP and DeepSpeed"
    )
    TRAIN[host]([CALLBACKS[host](["StatsMonitorHook"], "other")])
