"""Checkpoints: when they are written, which are kept, and that a run resumes exactly from any of them."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import GradientAccumulationPlugin, ProjectConfiguration, load  # type: ignore[import-untyped]
from safetensors.torch import load_file
from torch.utils.data import DataLoader, SubsetRandomSampler

from hookline.checkpoint import seal, store
from hookline.checkpoint.seal import Note
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer, ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline import folders as disk
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks import (
    HookContext,
    LossTrackerConfig,
    PipelineHookArgs,
    PipelineHooks,
    SaveCheckpointConfig,
    SaveModelConfig,
)
from hookline.dialects.robo_orchard_lab.utils.huggingface import accelerator_load_state
from hookline.errors import ConfigError, HookError, NumericsError, StorageError
from tests.dialects.robo_orchard_lab import parts
from tests.dialects.robo_orchard_lab.parts import BATCH, STEPS, Recorder, dataset, folders

EVERY_STEP = SaveCheckpointConfig(save_step_freq=1)
#: What a `save_root` has links for.
LINKED = ("model", "model.safetensors", "optimizer.bin", "random_states_0.pkl", "scheduler.bin")


class Remembers(PipelineHooks):
    """Counts batches and draws a random number for each; it runs after the hook that saves."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[float] = []
        self.register_hook("on_loop", HookContext.from_callable(before=lambda args: torch.rand(3)))
        self.register_hook("on_epoch", HookContext.from_callable(before=lambda args: torch.rand(2)))
        self.register_hook("on_step", HookContext.from_callable(after=self._draw))

    def _draw(self, args: PipelineHookArgs) -> None:
        self.drawn.append(torch.rand(()).item())

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": list(self.drawn)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = list(state["drawn"])


def run(folder: Path, **options: Any) -> tuple[HookBasedTrainer, Remembers]:
    memory = Remembers()
    trainer = parts.trainer(folder, hooks=[EVERY_STEP, LossTrackerConfig(step_log_freq=3), memory], **options)
    trainer()
    return trainer, memory


def resume(path: Path | str) -> ResumeCheckpointConfig:
    return ResumeCheckpointConfig(resume_from=str(path))


# -- contents and retention


def saved_position(checkpoint: Path) -> tuple[int, int, int]:
    """Return the finished epochs, batches of the current epoch, and steps."""
    position = store.read(checkpoint / "trainer_state.pth", sealed=True)["position"]
    return position["epoch"], position["batch"], position["iter"]


def test_checkpoints_are_written_after_steps_epochs_and_the_loop(tmp_path: Path) -> None:
    parts.trainer(tmp_path, hooks=SaveCheckpointConfig(save_step_freq=4))()
    found = tmp_path / "checkpoints"
    assert {name: saved_position(found / name) for name in folders(found)} == {
        "checkpoint_0": (0, 4, 4),
        "checkpoint_1": (1, 0, 5),
        "checkpoint_2": (1, 3, 8),
        "checkpoint_3": (2, 0, 10),
        "checkpoint_4": (2, 0, 10),
    }
    assert folders(found / "checkpoint_0") == [
        *("model", "model.safetensors", "optimizer.bin", "random_states_0.pkl", "scheduler.bin"),
        *("trainer_rng_0.pth", "trainer_state.pth"),
    ]
    assert folders(tmp_path) == ["checkpoints"]


def test_everything_in_a_checkpoint_is_tensors_and_plain_data(tmp_path: Path) -> None:
    run(tmp_path, max_step=1)
    folder = tmp_path / "checkpoints" / "checkpoint_0"
    for name in ("optimizer.bin", "scheduler.bin", "trainer_state.pth", "trainer_rng_0.pth"):
        assert isinstance(torch.load(folder / name, weights_only=True), dict)
    assert isinstance(load(folder / "random_states_0.pkl"), dict)
    assert torch.equal(
        load_file(folder / "model.safetensors")["0.weight"],
        load_file(folder / "model" / "model.safetensors")["0.weight"],
    )


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"save_epoch_freq": 2}, 2),
        ({"save_epoch_freq": 2, "save_when_loop_end": False}, 1),
        ({"save_epoch_freq": None, "save_step_freq": 3, "save_when_loop_end": False}, 3),
    ],
)
def test_frequencies_count_from_1(tmp_path: Path, options: dict[str, Any], left: int) -> None:
    parts.trainer(tmp_path, hooks=SaveCheckpointConfig(save_model=False, **options))()
    assert folders(tmp_path / "checkpoints") == [f"checkpoint_{number}" for number in range(left)]
    assert "model" not in folders(tmp_path / "checkpoints" / "checkpoint_0")


def test_the_oldest_are_removed_beyond_total_limit(tmp_path: Path) -> None:
    parts.trainer(accelerator=parts.accelerator(tmp_path, total_limit=3), hooks=EVERY_STEP)()
    assert folders(tmp_path / "checkpoints") == ["checkpoint_10", "checkpoint_11", "checkpoint_12"]


def test_without_automatic_names_save_root_keeps_the_newest(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    hooks = SaveCheckpointConfig(save_root=str(root))
    trainer = parts.trainer(accelerator=parts.accelerator(None, total_limit=None), hooks=hooks)
    trainer()
    assert folders(root) == sorted(["checkpoint_2", "notes.txt", *LINKED])
    links = {path.name: os.readlink(path) for path in root.iterdir() if path.is_symlink()}
    assert links == {name: f"checkpoint_2/{name}" for name in LINKED}
    trained = load_file(root / "model/model.safetensors")
    assert torch.equal(trained["0.weight"], trainer.model[0].weight)
    again = parts.trainer(
        accelerator=parts.accelerator(None, total_limit=2), hooks=hooks, max_epoch=3, resume_from=resume(root)
    )
    again()
    assert folders(root) == sorted(["checkpoint_3", "checkpoint_4", "notes.txt", *LINKED])
    assert all(os.readlink(root / name) == f"checkpoint_4/{name}" for name in LINKED)
    loaded = parts.trainer(accelerator=parts.accelerator(None))
    accelerator_load_state(loaded.accelerator, root)
    assert parts.equal(parts.weights(loaded), parts.weights(again))


def test_a_save_without_a_folder_is_refused_before_training() -> None:
    recorder = Recorder("on_loop")
    for hook in (SaveCheckpointConfig(), SaveModelConfig()):
        with pytest.raises(
            ValueError, match="^there is no folder to save to: set save_root, or pass the Accelerator a P"
        ):
            parts.trainer(hooks=[recorder, hook])()
    assert recorder.seen == []


@pytest.mark.parametrize("config", [SaveCheckpointConfig, SaveModelConfig])
@pytest.mark.parametrize("options", [{"save_epoch_freq": 0}, {"save_epoch_freq": None}, {"save_step_freq": -1}])
def test_invalid_frequencies_are_refused(config: Any, options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"(at least one of .* must be set|must be a number of steps or epochs, at least 1, not)"
    ):
        config(**options)


def test_save_model_names_the_weights_after_epoch_and_step(tmp_path: Path) -> None:
    trainer = parts.trainer(tmp_path, hooks=SaveModelConfig(save_step_freq=4))
    trainer()
    found = tmp_path / "saved_models"
    assert folders(found) == [
        *("model_epoch_0_step_3", "model_epoch_0_step_5", "model_epoch_1_step_2", "model_epoch_1_step_5"),
        "model_epoch_2_step_0",
    ]
    assert folders(found / "model_epoch_2_step_0") == ["0"]
    saved = load_file(found / "model_epoch_2_step_0" / "0" / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in trainer.model.state_dict().items())


def test_models_have_the_weights_of_their_name_also_while_gradients_are_accumulated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "robo_orchard_lab")
    plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=False)
    then: dict[str, torch.Tensor] = {}

    def keep(args: PipelineHookArgs) -> None:
        then[f"model_epoch_{args.epoch_id}_step_{args.step_id}"] = args.model[0].weight.detach().clone()

    hooks = PipelineHooks()
    channel: Any
    for channel in ("on_loop", "on_epoch", "on_step"):
        hooks.register_hook(channel, HookContext.from_callable(after=keep))
    parts.trainer(
        accelerator=parts.accelerator(tmp_path, gradient_accumulation_plugin=plugin),
        hooks=[hooks, SaveModelConfig(save_step_freq=1), SaveCheckpointConfig(save_step_freq=4)],
    )()
    found = tmp_path / "saved_models"
    assert folders(found) == sorted(then)
    for name, weight in then.items():
        assert torch.equal(load_file(found / name / "0" / "model.safetensors")["0.weight"], weight), name
    assert [text for text in caplog.messages if "checkpoint_" in text] == [
        f"saved after step {step}, requested at the end of {when}: {tmp_path / 'checkpoints' / f'checkpoint_{number}'}"
        for number, (step, when) in enumerate([(6, "step 3"), (9, "step 7"), (10, "epoch 1")])
    ]


def test_the_model_is_the_first_of_several_modules(tmp_path: Path) -> None:
    class WithCriterion(SimpleBatchProcessor):
        def __init__(self) -> None:
            super().__init__()
            self.criterion = torch.nn.Linear(3, 3)

        def forward(self, model: Any, batch: Any) -> Any:
            return parts.forward(lambda inputs: self.criterion(model(inputs)), batch)

    hooks = [SaveModelConfig(), SaveCheckpointConfig()]
    parts.trainer(tmp_path, max_step=1, batch_processor=WithCriterion(), hooks=hooks)()
    model, criterion = ["0.bias", "0.weight", "2.bias", "2.weight"], ["bias", "weight"]
    for file, names in (
        ("saved_models/model_epoch_0_step_1/0/model.safetensors", model),
        ("saved_models/model_epoch_0_step_1/1/model.safetensors", criterion),
        ("checkpoints/checkpoint_0/model.safetensors", model),
        ("checkpoints/checkpoint_0/model_1.safetensors", criterion),
        ("checkpoints/checkpoint_0/model_0/model.safetensors", model),
        ("checkpoints/checkpoint_0/model_1/model.safetensors", criterion),
    ):
        assert sorted(load_file(tmp_path / file)) == names, file


def test_nonfinite_weights_are_never_saved(tmp_path: Path) -> None:
    def spoil(args: PipelineHookArgs) -> None:
        if args.global_step_id == 1:
            args.model[0].weight.data[0, 0] = float("nan")

    hooks = PipelineHooks()
    hooks.register_hook("on_step", HookContext.from_callable(after=spoil))
    with pytest.raises(NumericsError, match="^0.weight of the model became NaN or Inf by iteration 2"):
        parts.trainer(tmp_path, hooks=[hooks, EVERY_STEP])()
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0"]


def test_a_state_that_could_not_be_read_back_is_refused_before_training(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"path": tmp_path}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    recorder = Recorder("on_loop")
    trainer = parts.trainer(tmp_path, hooks=[recorder, SaveCheckpointConfig()])
    trainer.accelerator.register_for_checkpointing(Odd())
    with pytest.raises(HookError, match=r"^the state of Odd\['path'\] is a pathlib.*, which a checkpoint cannot store"):
        trainer()
    assert recorder.seen == []


def test_a_hook_whose_state_could_not_be_read_back_is_refused_before_training(tmp_path: Path) -> None:
    class Odd(Recorder):
        def state_dict(self) -> dict[str, Any]:
            return {"path": tmp_path}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    odd = Odd("on_loop")
    with pytest.raises(HookError, match=r"^the state of Odd\['path'\] is a pathlib.*, which a checkpoint cannot store"):
        parts.trainer(tmp_path, hooks=[odd, SaveCheckpointConfig()])()
    assert odd.seen == []
    parts.trainer(tmp_path, max_step=1, hooks=odd)()  # allowed, because nothing is saved
    assert odd.seen == [">loop e0 s0 g0", "<loop e1 s0 g1"]


# -- resuming


def test_hooks_added_or_removed_since_a_checkpoint_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, max_step=2)
    caplog.clear()
    trainer = parts.trainer(
        tmp_path, max_step=3, hooks=[Remembers(), Remembers()], resume_from=resume(tmp_path / "checkpoints")
    )
    trainer()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "not used from the checkpoint, because this run has no such hook: LossTracker",
        "not in the checkpoint, so starting from scratch: Remembers#2",
    ]


def test_a_run_resumes_exactly_from_every_checkpoint(tmp_path: Path) -> None:
    straight, memory = run(tmp_path / "straight")
    numbers = range(len(folders(tmp_path / "straight" / "checkpoints")))
    assert len(numbers) == 2 * STEPS + 3
    for number in numbers:
        path = tmp_path / "straight" / "checkpoints" / f"checkpoint_{number}"
        resumed, remembered = run(tmp_path / f"{number}", resume_from=resume(path), seed=100 + number)
        assert parts.equal(parts.weights(resumed), parts.weights(straight)), number
        if number < len(numbers) - 2:  # otherwise training is complete, and no states are restored
            assert remembered.drawn == memory.drawn
        assert resumed.trainer_progress_state == straight.trainer_progress_state
        assert resumed.optimizer.state_dict()["param_groups"] == straight.optimizer.state_dict()["param_groups"]


class Rises(PipelineHooks):
    """A level that is used from the beginning of an epoch and rises at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.level, self.begun = 1, 0
        self.used: list[tuple[str, int]] = []
        self.register_hook("on_loop", HookContext.from_callable(before=self._begin("loop")))
        self.register_hook("on_epoch", HookContext.from_callable(before=self._begin("epoch"), after=self._rise))

    def _begin(self, what: str) -> Any:
        def begin(args: PipelineHookArgs) -> None:
            self.begun += 1
            self.used.append((what, self.level))

        return begin

    def _rise(self, args: PipelineHookArgs) -> None:
        self.level += 1

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level, "begun": self.begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level, self.begun = state["level"], state["begun"]


def test_hooks_have_their_states_when_the_loop_begins(tmp_path: Path) -> None:
    parts.trainer(tmp_path, hooks=[Rises(), SaveCheckpointConfig(save_step_freq=4)])()
    for number, used in ((1, [("loop", 2), ("epoch", 2)]), (2, [("loop", 2), ("epoch", 2)])):
        path = tmp_path / "checkpoints" / f"checkpoint_{number}"  # at the end of an epoch; in the next one
        rises = Rises()
        parts.trainer(hooks=rises, resume_from=resume(path))()
        assert rises.used == used
        assert (rises.level, rises.begun) == (3, 3)


def test_a_hook_may_need_its_before_to_load_its_state(tmp_path: Path) -> None:
    class Opens(Rises):
        def __init__(self) -> None:
            super().__init__()
            self.opened: list[int] | None = None
            self.register_hook("on_loop", HookContext.from_callable(before=self._open))

        def _open(self, args: PipelineHookArgs) -> None:
            self.opened = []

        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert self.opened is not None
            self.opened.append(state["level"])

    parts.trainer(tmp_path, max_epoch=1, hooks=[Opens(), SaveCheckpointConfig()])()
    opens = Opens()
    parts.trainer(hooks=opens, resume_from=resume(tmp_path))()
    assert opens.opened == [2]


@pytest.mark.parametrize("at_ends", [True, False], ids=["windows end with the data", "windows go over the end"])
@pytest.mark.parametrize("steps", [1, 4, 5, 6, 7])
def test_a_run_that_ends_while_gradients_are_accumulated_resumes_exactly(
    tmp_path: Path, steps: int, at_ends: bool
) -> None:
    def run(**options: Any) -> list[torch.Tensor]:
        plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=at_ends)
        accelerator = parts.accelerator(tmp_path, gradient_accumulation_plugin=plugin)
        trainer = parts.trainer(accelerator=accelerator, hooks=SaveCheckpointConfig(), **options)
        trainer()
        return parts.weights(trainer)

    straight = run(max_step=9)
    run(max_step=steps)
    assert parts.equal(run(max_step=9, resume_from=resume(tmp_path), seed=8), straight)


def test_no_batch_is_repeated_or_left_out(tmp_path: Path) -> None:
    seen: list[Any] = []

    def watched(model: Any, batch: Any) -> Any:
        seen.append(batch[0][:, 0].tolist())
        return parts.forward(model, batch)

    processor = SimpleBatchProcessor.from_callable(watched)
    parts.trainer(tmp_path, batch_processor=processor, hooks=EVERY_STEP)()
    whole, seen[:] = list(seen), []
    for number, done in ((2, 3), (5, 5), (6, 6)):  # in the middle, at the end of an epoch, in the next one
        path = tmp_path / "checkpoints" / f"checkpoint_{number}"
        parts.trainer(tmp_path / str(number), batch_processor=processor, hooks=EVERY_STEP, resume_from=resume(path))()
        assert seen == whole[done:]
        seen.clear()


def test_the_counters_continue_after_resuming(tmp_path: Path) -> None:
    parts.trainer(tmp_path, max_step=3, hooks=SaveCheckpointConfig())()
    recorder = Recorder("on_loop", "on_epoch", "on_step")
    trainer = parts.trainer(max_epoch=1, hooks=recorder, resume_from=resume(tmp_path))
    trainer()
    assert recorder.seen == [
        *(">loop e0 s3 g3", ">epoch e0 s3 g3", ">step e0 s3 g3", "<step e0 s3 g3", ">step e0 s4 g4", "<step e0 s4 g4"),
        *("<epoch e0 s5 g5", "<loop e1 s0 g5"),
    ]


def test_a_loader_with_its_own_sampler_resumes_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(dataset(), batch_size=BATCH, sampler=SubsetRandomSampler(range(17)))

    straight, _ = run(tmp_path, dataloader=loader())
    for number in (2, 5, 8):
        path = tmp_path / "checkpoints" / f"checkpoint_{number}"
        resumed, _ = run(tmp_path / str(number), dataloader=loader(), resume_from=resume(path))
        assert parts.equal(parts.weights(resumed), parts.weights(straight)), number
    assert (
        "the DataLoader resumes at batch 3; its random numbers may differ from the interrupted run. A plain"
        in caplog.text
    )


def test_a_folder_means_its_newest_intact_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    straight, _ = run(tmp_path)
    found = tmp_path / "checkpoints"
    last = len(folders(found)) - 1
    (found / f"checkpoint_{last}" / "trainer_state.pth").unlink()
    (found / f"checkpoint_{last - 1}" / "optimizer.bin").write_bytes(b"spoilt")
    (found / f"checkpoint_{last - 2}" / "model.safetensors").unlink()
    resumed, _ = run(tmp_path, max_epoch=3, resume_from=resume(tmp_path))
    assert [
        record.message.split(": ", 2)[2].split(" (")[0] for record in caplog.records if "skipped" in record.message
    ] == [
        "it has no intact trainer_state.pth, so it is incomplete or was not written by this trainer",
        "the bytes of optimizer.bin do not match their SHA-256",
        "model.safetensors is missing",
    ]
    assert resumed.resumed == found / f"checkpoint_{last - 3}"
    assert folders(tmp_path / "old-1") == [f"checkpoint_{number}" for number in (last - 2, last - 1, last)]
    assert straight.position.iter == 10


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nowhere", "^there is no checkpoint in .*nowhere to resume from$"),
        ("checkpoint_3", "^cannot resume from .*checkpoint_3: there is no such folder$"),
        ("broken", "^there is no intact checkpoint in .*broken to resume from:\n  .*checkpoint_0: it has no intact"),
        ("https://example.org/checkpoint_0", "^resume_from must be a folder, not 'https://example.org/checkpoint_0'"),
    ],
)
def test_resuming_from_an_invalid_path_is_refused(tmp_path: Path, where: str, message: str) -> None:
    (tmp_path / "broken" / "checkpoint_0").mkdir(parents=True)
    with pytest.raises((StorageError, ValueError), match=message):
        parts.trainer(resume_from=resume(where if "://" in where else tmp_path / where))


def test_a_checkpoint_of_another_optimizer_or_scheduler_is_refused(tmp_path: Path) -> None:
    parts.trainer(tmp_path, max_step=1, hooks=SaveCheckpointConfig())()
    folder, model = tmp_path / "checkpoints" / "checkpoint_0", parts.net()
    for options, has in (
        ({"lr_scheduler": None}, "SGD"),
        ({"make_model": lambda: model, "optimizer": torch.optim.AdamW(model.parameters())}, "AdamW, StepLR"),
    ):
        with pytest.raises(StorageError) as refused:
            parts.trainer(tmp_path, max_step=2, resume_from=resume(folder), **options)
        assert str(refused.value) == (
            f"{folder} does not fit: it was saved with SGD, StepLR, but this trainer has {has}"
        )


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_0").mkdir()
    disk.seal_folder(tmp_path / "checkpoint_0", {}, 1)
    with pytest.raises(
        StorageError,
        match="has no position, seed, kinds, hooks, hook_names: it was not saved by a trainer, so a trainer cannot",
    ):
        parts.trainer(resume_from=resume(tmp_path / "checkpoint_0"))


class Owned:
    """The code that a hostile file executes when it is unpickled."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("owned",))


def test_no_code_in_a_file_is_executed_even_where_accelerate_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 4

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    monkeypatch.chdir(tmp_path)

    def make(counter: Counter, **options: Any) -> HookBasedTrainer:
        accelerator = parts.accelerator(tmp_path)
        accelerator.register_for_checkpointing(counter)
        return parts.trainer(accelerator=accelerator, hooks=SaveCheckpointConfig(), **options)

    make(Counter(), max_step=1)()
    folder, other = tmp_path / "checkpoints" / "checkpoint_0", Counter()
    other.count = 0
    make(other, max_step=2, resume_from=resume(folder))
    assert other.count == 4
    with pytest.raises(
        StorageError, match="custom_checkpoint_0.pkl cannot be read: it holds more than tensors and plain"
    ):
        make(Counter(), max_step=2, resume_from=resume(with_hostile(folder, "custom_checkpoint_0.pkl")))
    assert not (tmp_path / "owned").exists()


def with_hostile(folder: Path, name: str) -> Path:
    """Create a checkpoint with one file replaced by a hostile one, and a seal that matches it."""
    torch.save(Owned(), folder / name)
    state = store.read(folder / "trainer_state.pth", sealed=True)
    state["files"][name] = seal.digest(folder / name)
    store.write(state, folder / "trainer_state.pth", Note(1, 0, complete=True))
    return folder


@pytest.mark.parametrize("name", ["optimizer.bin", "scheduler.bin", "random_states_0.pkl", "trainer_rng_0.pth"])
def test_no_file_of_a_checkpoint_executes_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts.trainer(tmp_path, max_step=1, hooks=SaveCheckpointConfig())()
    folder = with_hostile(tmp_path / "checkpoints" / "checkpoint_0", name)
    with contextlib.suppress(StorageError, pickle.UnpicklingError):  # accelerate only warns about random states
        parts.trainer(tmp_path, max_step=2, resume_from=resume(folder))
    assert not (tmp_path / "owned").exists()
    torch.load(folder / name, weights_only=False)  # a plain unpickling does execute it
    assert (tmp_path / "owned").exists()


# -- a folder with earlier runs


def test_a_fresh_run_moves_an_earlier_one_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = [SaveCheckpointConfig(), SaveModelConfig()]
    for _ in range(2):
        parts.trainer(tmp_path, hooks=hooks, max_epoch=1)()
    assert folders(tmp_path) == ["checkpoints", "old-1", "saved_models"]
    models = ["model_epoch_0_step_5", "model_epoch_1_step_0"]
    assert folders(tmp_path / "old-1") == ["checkpoint_0", "checkpoint_1", *models]
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1"]
    own = {path.name for path in (tmp_path / "old-1").iterdir()}
    assert own == {*parts.RUN_FILES, "checkpoint_0", "checkpoint_1", *models}
    assert [record.message for record in caplog.records if "earlier run" in record.message] == [
        f"moved the files of an earlier run from {tmp_path} to {tmp_path / 'old-1'}"
    ]


def test_files_of_the_project_that_no_run_has_written_stay(tmp_path: Path) -> None:
    for name in ("config.yaml", "notes.txt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "tensorboard").mkdir()  # as one of accelerate's trackers creates it before training
    for _ in range(2):
        parts.trainer(tmp_path, hooks=SaveCheckpointConfig(), max_epoch=1)()
    assert folders(tmp_path) == ["checkpoints", "config.yaml", "notes.txt", "old-1", "tensorboard"]
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_an_earlier_run_is_restored_if_the_new_one_is_refused_before_its_first_step(tmp_path: Path) -> None:
    hooks: list[Any] = [SaveCheckpointConfig(), SaveModelConfig()]
    parts.trainer(tmp_path, hooks=hooks, max_epoch=1)()
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    def refuse(args: PipelineHookArgs) -> None:
        raise ConfigError("not like this")

    late = PipelineHooks()
    late.register_hook("on_loop", HookContext.from_callable(before=refuse))
    with pytest.raises(ConfigError, match="not like this"):
        parts.trainer(tmp_path, hooks=[*hooks, late], max_epoch=1)()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_resumed_run_continues_the_numbers_and_moves_later_ones_aside(tmp_path: Path) -> None:
    straight = parts.trainer(tmp_path, hooks=SaveCheckpointConfig())
    straight()
    parts.trainer(
        tmp_path, hooks=SaveCheckpointConfig(), resume_from=resume(tmp_path / "checkpoints" / "checkpoint_0")
    )()
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert folders(tmp_path / "old-1") == ["checkpoint_1", "checkpoint_2"]


@pytest.mark.parametrize(
    ("number", "stay"),
    [  # after 4 steps, after an epoch, after 3 steps of the next one, at the end
        (0, ["model_epoch_0_step_3"]),
        (1, ["model_epoch_0_step_3", "model_epoch_0_step_5"]),
        (2, ["model_epoch_0_step_3", "model_epoch_0_step_5", "model_epoch_1_step_2"]),
        (4, None),
    ],
)
def test_models_later_than_the_checkpoint_are_moved_aside_too(
    tmp_path: Path, number: int, stay: list[str] | None
) -> None:
    hooks = [SaveCheckpointConfig(save_step_freq=4), SaveModelConfig(save_step_freq=4)]
    parts.trainer(tmp_path, hooks=hooks)()
    (tmp_path / "saved_models" / "model_epoch_best").mkdir()  # a folder of the user
    models = [name for name in folders(tmp_path / "saved_models") if name != "model_epoch_best"]
    assert len(models) == 5
    path = tmp_path / "checkpoints" / f"checkpoint_{number}"
    seen: list[list[str]] = []
    look = PipelineHooks()
    look.register_hook(
        "on_loop", HookContext.from_callable(before=lambda args: seen.append(folders(tmp_path / "saved_models")))
    )
    parts.trainer(tmp_path, hooks=[look, *hooks], max_epoch=3, resume_from=resume(path))()
    stay = models if stay is None else stay
    assert seen == [sorted([*stay, "model_epoch_best"])]
    gone = sorted(name for name in folders(tmp_path / "old-1") if name.startswith("model"))
    assert gone == [name for name in models if name not in stay]


def test_a_hook_registered_during_training_overwrites_nothing(tmp_path: Path) -> None:
    earlier: list[Any] = [SaveCheckpointConfig(), SaveModelConfig()]
    parts.trainer(tmp_path, hooks=earlier)()
    late = parts.trainer(tmp_path)

    def register_late(args: PipelineHookArgs) -> None:
        for config in earlier:
            late.hooks.register_pipeline_hooks(config())

    late.hooks.register_hook("on_loop", HookContext.from_callable(before=register_late))
    late()
    assert folders(tmp_path) == ["checkpoints", "old-1", "old-2", "old-3", "saved_models"]
    assert {path.name for path in (tmp_path / "old-1").iterdir()} == parts.RUN_FILES
    assert folders(tmp_path / "old-2") == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    models = ["model_epoch_0_step_5", "model_epoch_1_step_5", "model_epoch_2_step_0"]
    assert folders(tmp_path / "old-3") == models
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1"]
    assert folders(tmp_path / "saved_models") == models[:2]  # registered too late for the end of the loop


def test_a_hook_registered_during_training_locks_its_folder(tmp_path: Path) -> None:
    late, other = parts.trainer(tmp_path, max_step=3), parts.trainer(tmp_path, hooks=EVERY_STEP)

    def register_late(args: PipelineHookArgs) -> None:
        if args.global_step_id == 0:
            late.hooks.register_pipeline_hooks(EVERY_STEP())
        if args.global_step_id == 2:
            with pytest.raises(StorageError, match="is in use by another run of this process"):
                other()

    late.hooks.register_hook("on_step", HookContext.from_callable(before=register_late))
    late()
    other()
    assert folders(tmp_path / "old-1") == ["checkpoint_0", "checkpoint_1"]


def test_a_resumed_run_continues_the_numbers_also_for_a_hook_registered_late(tmp_path: Path) -> None:
    parts.trainer(tmp_path, hooks=SaveCheckpointConfig())()
    found = tmp_path / "checkpoints"
    late = parts.trainer(tmp_path, resume_from=resume(found / "checkpoint_0"))
    late.hooks.register_hook(
        "on_loop",
        HookContext.from_callable(before=lambda args: late.hooks.register_pipeline_hooks(SaveCheckpointConfig()())),
    )
    late()
    assert folders(found) == ["checkpoint_0", "checkpoint_1"]
    assert folders(tmp_path / "old-1") == ["checkpoint_1", "checkpoint_2"]


def test_a_first_number_that_is_taken_is_refused_before_training(tmp_path: Path) -> None:
    parts.trainer(tmp_path, hooks=SaveCheckpointConfig())()
    recorder = Recorder("on_loop")
    for number, taken in ((7, None), (1, 1), (5, 7)):
        project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, iteration=number)
        again = parts.trainer(
            accelerator=Accelerator(cpu=True, project_config=project),
            hooks=[recorder, SaveCheckpointConfig()],
            max_epoch=1,
        )
        if taken is not None:
            with pytest.raises(StorageError) as refused:
                again()
            assert str(refused.value) == (
                f"{tmp_path / 'checkpoints' / f'checkpoint_{taken}'} already exists, and a run that counts from "
                f"iteration {number} would overwrite it; set the iteration of the ProjectConfiguration above 8, or "
                "resume from that checkpoint"
            )
        else:
            again()
    assert recorder.seen == [">loop e0 s0 g0", "<loop e1 s0 g5"]
    assert folders(tmp_path / "checkpoints") == [f"checkpoint_{number}" for number in (0, 1, 2, 7, 8)]


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    inner = parts.trainer(tmp_path, hooks=SaveCheckpointConfig())
    hooks = PipelineHooks()
    hooks.register_hook("on_step", HookContext.from_callable(after=lambda args: inner()))
    outer = parts.trainer(tmp_path, hooks=[hooks, SaveCheckpointConfig()])
    with pytest.raises(StorageError, match="is in use by another run of this process"):
        outer()


# -- kills

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.dialects.robo_orchard_lab import parts
from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig

class Bomb:
    "Kills the process in the middle of a save: most files of it are written then."

    asked = 0

    def state_dict(self):
        self.asked += 1
        if self.asked == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def load_state_dict(self, state): ...

accelerator = parts.accelerator(Path(sys.argv[1]), total_limit=2)
accelerator.register_for_checkpointing(Bomb())
resume = ResumeCheckpointConfig(resume_from=sys.argv[1]) if len(sys.argv) > 3 else None
parts.trainer(accelerator=accelerator, hooks=SaveCheckpointConfig(save_step_freq=1), resume_from=resume)()
"""


def test_a_kill_in_the_middle_of_a_save_loses_only_that_save(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(KILLED))
    project = tmp_path / "project"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}

    def start(*words: str) -> int:
        # Called once before training and twice per save: by the check before it, and by accelerate during it.
        return subprocess.run([sys.executable, script, project, *words], env=environment, check=False).returncode

    assert start("9") == -signal.SIGKILL  # in the fourth save
    assert folders(project / "checkpoints") == ["checkpoint_1", "checkpoint_2"]
    partial = project / ".checkpoint_3.dcp.partial"
    assert "optimizer.bin" in folders(partial)
    shutil.copytree(partial, project / "checkpoints" / "checkpoint_3")  # as if the folder had been renamed too early
    assert start("99", "resume") == 0
    assert not partial.exists()
    straight = parts.trainer()
    straight()
    saved = load_file(project / "checkpoints" / "checkpoint_12" / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in straight.model.state_dict().items())
    assert folders(project / "old-1") == ["checkpoint_3"]


def test_a_failed_save_leaves_earlier_saves_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = parts.trainer(tmp_path, hooks=EVERY_STEP)
    save, calls = trainer.accelerator.save_state, []

    def full(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return save(*args, **options)

    monkeypatch.setattr(trainer.accelerator, "save_state", full)
    with pytest.raises(OSError, match="No space left") as caught:
        trainer()
    assert caught.value.__notes__ == [f"while saving to {tmp_path / 'checkpoints'}; earlier saves there are unchanged"]
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1"]
    assert trainer.accelerator.project_configuration.automatic_checkpoint_naming
    resumed = parts.trainer(tmp_path, hooks=EVERY_STEP, resume_from=resume(tmp_path))
    resumed()
    straight = parts.trainer()
    straight()
    assert parts.equal(parts.weights(resumed), parts.weights(straight))


def test_hooks_without_a_trainer_save_at_once(tmp_path: Path) -> None:
    accelerator = parts.accelerator(tmp_path)
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for config in (SaveCheckpointConfig(save_step_freq=2), SaveModelConfig(save_step_freq=2)):
        hook = config()
        for step in range(4):
            with hook.begin("on_step", PipelineHookArgs(accelerator, global_step_id=step, step_id=step, model=model)):
                pass
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1"]
    assert folders(tmp_path / "saved_models") == ["model_epoch_0_step_1", "model_epoch_0_step_3"]
    for channel in ("on_step", "on_epoch", "on_loop"):
        hook = SaveCheckpointConfig(save_step_freq=1)()
        with pytest.raises(ValueError, match="^no$"), hook.begin(channel, PipelineHookArgs(accelerator)):
            raise ValueError("no")
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1"]
    assert json.dumps(folders(tmp_path)) == '["checkpoints", "saved_models"]'


# -- signals

ENDINGS = [
    (signal.SIGTERM, SystemExit, 143),
    (signal.SIGHUP, SystemExit, 129),
    (signal.SIGINT, KeyboardInterrupt, None),
]


def signals_itself(number: int, at: int) -> PipelineHooks:
    """Create a hook that sends a signal to its process in the middle of a step."""
    hooks = PipelineHooks()
    hooks.register_hook(
        "on_batch",
        HookContext.from_callable(
            before=lambda args: os.kill(os.getpid(), number) if args.global_step_id == at else None
        ),
    )
    return hooks


@pytest.mark.parametrize(("number", "kind", "code"), ENDINGS)
def test_a_signal_finishes_the_step_and_saves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, kind: Any, code: int | None
) -> None:
    before, recorder = signal.getsignal(number), Recorder("on_loop", "on_epoch", "on_step")
    with pytest.raises(kind) as caught:
        parts.trainer(tmp_path, hooks=[signals_itself(number, at=6), recorder, SaveCheckpointConfig()])()
    assert getattr(caught.value, "code", None) == code
    assert signal.getsignal(number) is before
    assert recorder.seen[-7:] == [
        *(">epoch e1 s0 g5", ">step e1 s0 g5", "<step e1 s0 g5", ">step e1 s1 g6", "<step e1 s1 g6"),
        f"<epoch e1 s2 g7 {kind.__name__}",
        f"<loop e1 s2 g7 {kind.__name__}",
    ]
    found = tmp_path / "checkpoints"
    assert folders(found) == ["checkpoint_0", "checkpoint_1"]
    name = signal.Signals(number).name
    saved = found / "checkpoint_1"
    assert [record.message for record in caplog.records] == [
        f"ended by {name} after step 7: saved {saved}",
        f"Continue with: HookBasedTrainer(..., resume_from=ResumeCheckpointConfig(resume_from='{saved}'))()",
    ]
    resumed = parts.trainer(tmp_path, resume_from=resume(tmp_path))
    assert resumed.position.iter == 7
    resumed()
    straight = parts.trainer()
    straight()
    assert parts.equal(parts.weights(resumed), parts.weights(straight))


def test_a_signal_waits_for_the_gradients_that_are_accumulated_and_is_saved_once(tmp_path: Path) -> None:
    accelerator = parts.accelerator(tmp_path, gradient_accumulation_steps=3)
    hooks = [signals_itself(signal.SIGTERM, at=0), EVERY_STEP, SaveModelConfig()]
    trainer = parts.trainer(accelerator=accelerator, hooks=hooks)
    with pytest.raises(SystemExit):
        trainer()
    assert trainer.position.iter == 3
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0"]
    assert folders(tmp_path / "saved_models") == []


def test_a_signal_also_ends_training_that_saves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trainer = parts.trainer(hooks=signals_itself(signal.SIGTERM, at=2))
    with pytest.raises(SystemExit):
        trainer()
    assert "ended by SIGTERM after step 3: nothing was saved, because no hook saves checkpoints" in caplog.text
    trainer()  # continues
    assert trainer.position.iter == 2 * STEPS


def test_a_signal_that_ends_the_workers_of_the_data_too_is_saved(tmp_path: Path) -> None:
    class Ended(list[Any]):
        def __iter__(self) -> Any:
            yield from list(super().__iter__())[:2]
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("a worker exited")

    with pytest.raises(SystemExit):
        parts.trainer(tmp_path, dataloader=Ended(DataLoader(dataset(), BATCH)), hooks=SaveCheckpointConfig())()
    assert saved_position(tmp_path / "checkpoints" / "checkpoint_0") == (0, 2, 2)


SIGNALLED = """
import os, sys
from pathlib import Path
from tests.dialects.robo_orchard_lab import parts
from tests.dialects.robo_orchard_lab.test_checkpoints import signals_itself
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig

parts.trainer(Path(sys.argv[1]), hooks=[signals_itself(int(sys.argv[2]), at=1), SaveCheckpointConfig()])()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)]
)
def test_the_exit_code_after_a_signal(tmp_path: Path, number: int, code: int) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED, tmp_path, str(int(number))], env=environment, check=False, capture_output=True
    )
    assert ended.returncode == code  # a shell reports 130 for a process that SIGINT ended
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0"]
