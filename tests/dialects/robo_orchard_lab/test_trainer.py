"""The loop of the trainer: the order of calls, the counters, and failures."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hookline.data import ResumableLoader
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer, SimpleTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import (
    BatchProcessorMixin,
    LossNotProvidedError,
    SimpleBatchProcessor,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks import (
    GradientClippingHookConfig,
    HookContext,
    LossTrackerConfig,
    OptimizerHook,
    OptimizerHookConfig,
    PipelineHookArgs,
    PipelineHooks,
    SaveCheckpointConfig,
    SaveModelConfig,
    ValidationHookConfig,
)
from hookline.errors import ConfigError, DataError, HookError, HooklineError
from tests.dialects.robo_orchard_lab import parts
from tests.dialects.robo_orchard_lab.parts import BATCH, STEPS, Recorder, counters, dataset, forward

ALL = ("on_loop", "on_epoch", "on_step", "on_batch", "on_model_forward", "on_model_backward")


def two_batches() -> DataLoader[Any]:
    return DataLoader(torch.utils.data.Subset(dataset(), range(2 * BATCH)), batch_size=BATCH)


# -- the path of a batch


def test_the_channels_run_in_the_order_of_the_pipeline() -> None:
    recorder = Recorder(*ALL)
    parts.trainer(dataloader=two_batches(), max_step=1, hooks=recorder)()
    assert recorder.seen == [
        ">loop e0 s0 g0",
        ">epoch e0 s0 g0",
        ">step e0 s0 g0",
        ">batch e0 s0 g0",
        ">model_forward e0 s0 g0",
        "<model_forward e0 s0 g0",
        ">model_backward e0 s0 g0",
        "<model_backward e0 s0 g0",
        "<batch e0 s0 g0",
        "<step e0 s0 g0",
        "<epoch e0 s1 g1",
        "<loop e1 s0 g1",
    ]


def test_ids_are_counted_from_0() -> None:
    recorder = Recorder("on_loop", "on_epoch", "on_step")
    parts.trainer(dataloader=two_batches(), max_epoch=2, hooks=[recorder])()
    assert recorder.seen == [
        ">loop e0 s0 g0",
        *(">epoch e0 s0 g0", ">step e0 s0 g0", "<step e0 s0 g0", ">step e0 s1 g1", "<step e0 s1 g1", "<epoch e0 s2 g2"),
        *(">epoch e1 s0 g2", ">step e1 s0 g2", "<step e1 s0 g2", ">step e1 s1 g3", "<step e1 s1 g3", "<epoch e1 s2 g4"),
        "<loop e2 s0 g4",
    ]


def test_max_step_ends_an_epoch_in_the_middle() -> None:
    recorder = Recorder("on_loop", "on_epoch")
    trainer = parts.trainer(max_step=2, hooks=[recorder])
    trainer()
    assert recorder.seen == [">loop e0 s0 g0", ">epoch e0 s0 g0", "<epoch e0 s2 g2", "<loop e1 s0 g2"]
    assert (trainer.position.epoch, trainer.position.batch, trainer.position.iter) == (0, 2, 2)


def test_the_same_trainer_continues_in_the_epoch_that_max_step_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder("on_epoch")
    trainer = parts.trainer(max_step=2, max_epoch=2, hooks=[recorder])
    trainer()
    trainer()
    assert "training is already complete: TrainerProgressState(epoch_id=1, step_id=0, global_step_id=2)" in caplog.text
    trainer.max_step = None
    trainer()
    assert recorder.seen == [
        *(">epoch e0 s0 g0", "<epoch e0 s2 g2"),
        *(">epoch e0 s2 g2", "<epoch e0 s5 g5", ">epoch e1 s0 g5", "<epoch e1 s5 g10"),
    ]
    straight = parts.trainer()
    straight()
    assert parts.equal(parts.weights(trainer), parts.weights(straight))


def test_the_limit_that_is_reached_first_ends_training() -> None:
    for max_step, max_epoch, steps in ((3, 9, 3), (99, 1, STEPS)):
        trainer = parts.trainer(max_step=max_step, max_epoch=max_epoch)
        trainer()
        assert trainer.trainer_progress_state.global_step_id == steps


def test_the_arguments_of_hooks() -> None:
    seen: dict[str, PipelineHookArgs] = {}
    hooks = PipelineHooks()
    for channel in ALL:
        keep: Any = lambda args, at=channel: seen.update({at: args})  # noqa: E731
        hooks.register_hook(cast("Any", channel), HookContext.from_callable(after=keep))
    trainer = parts.trainer(max_step=1, hooks=hooks)
    trainer()
    for args in seen.values():
        assert args.accelerator is trainer.accelerator
        assert args.model is trainer.model
        assert args.optimizer is trainer.optimizer
        assert args.lr_scheduler is trainer.lr_scheduler
        assert args.dataloader is trainer.dataloader
        assert (args.max_epoch, args.max_step, args.start_epoch, args.start_step) == (None, 1, 0, 0)
    assert seen["on_step"].batch is None
    assert [len(part) for part in seen["on_batch"].batch] == [BATCH, BATCH]
    for channel in ("on_step", "on_batch", "on_model_backward"):
        assert list(seen[channel].model_outputs) == ["logits"]
        assert seen[channel].reduce_loss.ndim == 0
    assert seen["on_model_backward"].reduce_loss.requires_grad
    assert not seen["on_step"].reduce_loss.requires_grad
    assert len({id(args) for args in seen.values()}) == len(ALL)


def test_the_optimizer_steps_before_other_hooks_at_the_end_of_a_step() -> None:
    seen = []

    def before(args: PipelineHookArgs) -> None:
        seen.append(("before", [p.grad for p in args.model.parameters()]))

    def after(args: PipelineHookArgs) -> None:
        gradients = [parameter.grad for parameter in args.model.parameters()]
        seen.append(("after", gradients))

    hooks = PipelineHooks()
    hooks.register_hook("on_step", HookContext.from_callable(before=before, after=after))
    trainer = parts.trainer(max_step=1, hooks=hooks)
    first = parts.weights(trainer)
    trainer()
    assert seen == [("before", [None] * 4), ("after", [None] * 4)]
    assert not parts.equal(first, parts.weights(trainer))
    assert isinstance(next(trainer.hooks.members()), OptimizerHook)
    assert trainer.lr_scheduler.scheduler.last_epoch == 1


def test_it_trains_like_a_loop_written_by_hand() -> None:
    trainer = parts.trainer(
        max_epoch=3, lr_scheduler=None, grad_clip=GradientClippingHookConfig(clip_mode="norm", max_norm=0.3)
    )
    trainer()
    torch.manual_seed(3)
    model = parts.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = ResumableLoader(dataset(), batch_size=BATCH, shuffle=True, seed=3)
    for epoch in range(3):
        for batch in loader.iterate(epoch):
            forward(model, batch)[1].backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
    assert parts.equal(parts.weights(trainer), list(model.parameters()))


# -- failures


class Breaks(SimpleBatchProcessor):
    """Fails at one step of the run."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def forward(self, model: Any, batch: Any) -> tuple[Any, Any]:
        if self.left == 0:
            raise FloatingPointError("overflow")
        self.left -= 1
        return forward(model, batch)


def test_a_failed_step_steps_nothing_and_saves_nothing(tmp_path: Path) -> None:
    recorder, evaluations = Recorder(*ALL[:4]), list[int]()
    trainer = parts.trainer(
        tmp_path,
        dataloader=two_batches(),
        batch_processor=Breaks(at=2),
        max_epoch=3,
        validation=ValidationHookConfig(
            eval_callback=lambda: evaluations.append(1), step_eval_freq=1, epoch_eval_freq=1
        ),
        hooks=[recorder, SaveCheckpointConfig(save_step_freq=1), SaveModelConfig()],
    )
    with pytest.raises(FloatingPointError, match="^overflow") as caught:
        trainer()
    assert caught.value.__notes__ == ["in epoch_id=1 step_id=0 global_step_id=2"]
    assert recorder.seen[-7:] == [
        *(">epoch e1 s0 g2", ">step e1 s0 g2", ">batch e1 s0 g2"),
        *("<batch e1 s0 g2 FloatingPointError", "<step e1 s0 g2 FloatingPointError"),
        *("<epoch e1 s0 g2 FloatingPointError", "<loop e1 s0 g2 FloatingPointError"),
    ]
    assert trainer.lr_scheduler.scheduler.last_epoch == 2
    assert parts.folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert parts.folders(tmp_path / "saved_models") == ["model_epoch_0_step_2"]
    assert len(evaluations) == 3


def test_a_hook_that_fails_is_named_and_the_hooks_after_it_know(tmp_path: Path) -> None:
    class MyHook(PipelineHooks):
        def __init__(self) -> None:
            super().__init__()
            self.register_hook("on_step", HookContext.from_callable(after=self._on_step_end))

        def _on_step_end(self, args: PipelineHookArgs) -> None:
            raise KeyError("lost")

    recorder = Recorder("on_step")
    trainer = parts.trainer(tmp_path, hooks=[MyHook(), recorder, SaveCheckpointConfig(save_step_freq=1)])
    with pytest.raises(KeyError) as caught:
        trainer()
    hook, step = caught.value.__notes__
    assert hook.startswith(
        "in hook MyHook._on_step_end, at on_step, epoch=0 iter=0 rank=0 (tests/dialects/robo_orchard_lab/"
    )
    assert step == "in epoch_id=0 step_id=0 global_step_id=0"
    assert recorder.seen == [">step e0 s0 g0", "<step e0 s0 g0 KeyError"]
    assert parts.folders(tmp_path / "checkpoints") == []


@pytest.mark.parametrize("channels", [(), ("on_step", "on_batch", "on_model_forward", "on_model_backward")])
def test_nothing_of_a_failed_forward_stays_in_memory(channels: Any) -> None:
    alive: list[weakref.ref[Any]] = []

    def fail(model: Any, batch: Any) -> Any:
        outputs = model(batch[0])
        alive.extend([weakref.ref(outputs), weakref.ref(batch[0])])
        raise KeyError("lost")

    recorder = Recorder(*channels)
    trainer = parts.trainer(hooks=recorder, batch_processor=SimpleBatchProcessor.from_callable(fail))
    gc.disable()  # no reference cycle must keep anything alive
    try:
        with contextlib.suppress(KeyError):
            trainer()
        assert [one() for one in alive] == [None, None]
    finally:
        gc.enable()
    assert recorder.seen[len(recorder.seen) // 2 :] == [
        f"<{name.removeprefix('on_')} e0 s0 g0 KeyError" for name in reversed(channels[:3])
    ]


def test_nothing_of_a_failed_step_stays_in_memory() -> None:
    alive: list[weakref.ref[Any]] = []

    def fail(args: PipelineHookArgs) -> None:
        alive.extend(weakref.ref(one) for one in (args, args.model_outputs["logits"], args.reduce_loss))
        raise KeyError("lost")

    hook = PipelineHooks()
    hook.register_hook("on_step", HookContext.from_callable(after=fail))
    trainer = parts.trainer(hooks=hook)
    with contextlib.suppress(KeyError):
        trainer()
    gc.collect()  # the error and the frames of the cleanup refer to each other
    assert [one() for one in alive] == [None, None, None]


def test_a_second_call_after_a_failure_continues_with_the_failed_step() -> None:
    straight = parts.trainer()
    straight()
    broken = parts.trainer(batch_processor=Breaks(at=3))
    with pytest.raises(FloatingPointError):
        broken()
    broken.batch_processor = SimpleBatchProcessor.from_callable(forward)
    broken()
    assert broken.trainer_progress_state == straight.trainer_progress_state
    assert parts.equal(parts.weights(broken), parts.weights(straight))


def test_training_that_is_complete_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder("on_loop")
    trainer = parts.trainer(max_step=1, hooks=recorder)
    trainer()
    trainer()
    assert recorder.seen == [">loop e0 s0 g0", "<loop e1 s0 g1"]
    assert "training is already complete: TrainerProgressState(epoch_id=1, step_id=0, global_step_id=1)" in caplog.text


# -- data


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(6.0).view(6, 1))


class Drawn(Dataset[Tensor]):
    """A data set in which every sample has its own random number."""

    epochs: list[int]

    def __init__(self) -> None:
        self.epochs = []

    def __len__(self) -> int:
        return 6

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index), torch.rand(()).item()])


def batches_of(loader: Any, **options: Any) -> list[Any]:
    seen: list[Any] = []

    def keep(model: Any, batch: Any) -> tuple[Any, Any]:
        seen.append(batch.tolist() if isinstance(batch, Tensor) else batch)
        return None, None

    model = nn.Linear(1, 1)
    HookBasedTrainer(
        accelerator=Accelerator(cpu=True),
        model=model,
        dataloader=loader,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        batch_processor=SimpleBatchProcessor.from_callable(keep, need_backward=False),
        **options,
    )()
    return seen


def test_any_iterable_may_be_the_loader() -> None:
    assert batches_of([1, 2, 3], max_step=5) == [1, 2, 3, 1, 2]
    assert batches_of(DataLoader(Stream(), batch_size=4), max_epoch=1) == [[[0.0], [1.0], [2.0], [3.0]], [[4.0], [5.0]]]
    assert len(batches_of(range(4), max_epoch=2)) == 8


def test_the_order_and_the_random_samples_depend_only_on_the_seed() -> None:
    drawn = Drawn()
    torch.manual_seed(7)
    first = batches_of(DataLoader(drawn, batch_size=2, shuffle=True), max_epoch=2)
    assert drawn.epochs == [0, 1]
    torch.manual_seed(7)
    torch.rand(10)
    assert batches_of(DataLoader(drawn, batch_size=2, shuffle=True), max_epoch=2) == first
    assert batches_of(ResumableLoader(drawn, batch_size=2, shuffle=True, seed=7), max_epoch=2) == first
    assert sorted(sample[0] for batch in first[:3] for sample in batch) == [0, 1, 2, 3, 4, 5]
    assert first[:3] != first[3:]
    torch.manual_seed(8)
    assert batches_of(DataLoader(drawn, batch_size=2, shuffle=True), max_epoch=2) != first


def test_data_without_a_batch_is_refused() -> None:
    with pytest.raises(DataError, match="^the list yielded no batch, so there is nothing to train on"):
        batches_of([], max_step=1)


def test_exhausted_single_use_data_is_refused() -> None:
    recorder = Recorder("on_epoch")
    once: Any
    for once in (iter(list(two_batches())), (batch for batch in two_batches())):
        with pytest.raises(DataError) as refused:
            parts.trainer(dataloader=once, max_epoch=2, hooks=recorder)()
        assert str(refused.value) == (
            f"the {type(once).__name__} can be iterated only once, and it is exhausted; pass data that can be "
            "iterated again, such as a DataLoader or a list, or train for fewer steps or epochs"
        )
    assert recorder.seen[:4] == [">epoch e0 s0 g0", "<epoch e0 s2 g2", ">epoch e1 s0 g2", "<epoch e1 s0 g2 DataError"]


# -- accumulation


def test_gradients_are_accumulated_as_accelerate_is_configured(tmp_path: Path) -> None:
    trainer = parts.trainer(
        accelerator=parts.accelerator(tmp_path, gradient_accumulation_steps=2),
        make_model=lambda: nn.Linear(4, 3),
        max_epoch=1,
        grad_clip=GradientClippingHookConfig(clip_mode="value", clip_value=0.2),
        hooks=SaveCheckpointConfig(save_step_freq=1, save_epoch_freq=None, save_when_loop_end=False),
    )
    trainer()
    torch.manual_seed(3)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    batches = list(ResumableLoader(dataset(), batch_size=BATCH, shuffle=True, seed=3).iterate(0))
    for window in (batches[:2], batches[2:4], batches[4:]):
        for batch in window:
            (forward(model, batch)[1] / 2).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_value_(model.parameters(), 0.2)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    assert parts.equal(parts.weights(trainer), list(model.parameters()))
    assert parts.folders(tmp_path / "checkpoints") == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]


@pytest.mark.parametrize(
    ("windows", "updates"),
    [
        # the number of micro-batches per update, by the step before which it changes
        ({0: 1, 5: 5}, [True] * 5 + [False] * 4 + [True]),
        ({0: 4, 6: 1}, [False] * 3 + [True, True] + [False] + [True] * 4),
    ],
    ids=["begins", "ends in the middle of a window"],
)
def test_accumulation_may_change_during_training(windows: dict[int, int], updates: list[bool]) -> None:
    changed: list[bool] = []
    seen: list[Tensor] = []

    class Looks(PipelineHooks):
        def __init__(self) -> None:
            super().__init__()
            self.register_hook("on_loop", HookContext.from_callable(before=self.change))
            self.register_hook("on_step", HookContext.from_callable(before=self.look, after=self.compare))

        def change(self, args: PipelineHookArgs) -> None:
            if len(changed) in windows:
                args.accelerator.gradient_accumulation_steps = windows[len(changed)]

        def look(self, args: PipelineHookArgs) -> None:
            seen[:] = parts.weights(trainer)

        def compare(self, args: PipelineHookArgs) -> None:
            changed.append(not parts.equal(seen, parts.weights(trainer)))
            self.change(args)

    trainer = parts.trainer(hooks=Looks())
    trainer()
    assert changed == updates
    assert trainer.lr_scheduler.scheduler.last_epoch == sum(updates)


# -- wrong parts


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"max_epoch": None}, ValueError, "^the trainer needs a limit: set max_step or max_epoch$"),
        ({"max_epoch": 0}, ValueError, "^max_epoch must be an int of at least 1, not 0$"),
        ({"max_step": -1}, ValueError, "^max_step must be an int of at least 1, not -1$"),
        ({"hooks": OptimizerHookConfig()}, ValueError, "^the trainer already has an OptimizerHook, and a second"),
        ({"hooks": [GradientClippingHookConfig(clip_mode="norm", max_norm=1)]}, ValueError, "pass its config to the"),
        ({"hooks": ["LossTracker"]}, TypeError, "^hooks must be PipelineHooks or their configs, not 'LossTracker'$"),
        ({"hooks": "LossTracker"}, TypeError, "^hooks must be PipelineHooks or their configs, not 'LossTracker'$"),
        (
            {"hooks": LossTrackerConfig},
            TypeError,
            "^hooks must be PipelineHooks or their configs, not the class LossTrackerConfig; write LossTrackerConfig",
        ),
        (
            {"hooks": [HookContext.from_callable(before=print)]},
            TypeError,
            "not a HookContextFromCallable; register it at a channel: PipelineHooks\\(\\).register_hook",
        ),
        ({"accelerator": "cpu"}, TypeError, "^accelerator must be an accelerate.Accelerator, not a str$"),
        ({"dataloader": 3}, TypeError, "^dataloader must be an iterable of batches, such as a DataLoader, not a int$"),
        ({"dataloader": list}, TypeError, "^dataloader must be an iterable of batches, .* not the class list$"),
        ({"lr_scheduler": "cosine"}, TypeError, "^lr_scheduler must be a torch scheduler or None, not a str$"),
        (
            {"grad_clip": {"clip_mode": "norm", "max_norm": 1.0}},
            TypeError,
            "^grad_clip must be a GradientClippingHookConfig, not a dict; write "
            "grad_clip=GradientClippingHookConfig\\(clip_mode='norm', max_norm=1.0\\)$",
        ),
        (
            {"validation": forward},
            TypeError,
            "^validation must be a ValidationHookConfig, not a function; write "
            "validation=ValidationHookConfig\\(...\\)$",
        ),
        (
            {"grad_clip": LossTrackerConfig()},
            TypeError,
            "^grad_clip must create a GradientClippingHook, but LossTrackerConfig creates a LossTracker; write "
            "grad_clip=GradientClippingHookConfig\\(...\\), and pass other hooks to the trainer as hooks=\\[...\\]$",
        ),
        (
            {"validation": LossTrackerConfig()},
            TypeError,
            "^validation must create a ValidationHook, but LossTrackerConfig creates a LossTracker; write "
            "validation=Val",
        ),
        (
            {"resume_from": "workspace"},
            TypeError,
            "^resume_from must be a ResumeCheckpointConfig, not a str; write "
            "resume_from=ResumeCheckpointConfig\\(resume_from='workspace'\\)$",
        ),
        (
            {"batch_processor": forward},
            TypeError,
            "^batch_processor must be a SimpleBatchProcessor, not <FunctionInfo function forward from .*>; to use a "
            "function that takes the model and a batch, write SimpleBatchProcessor.from_callable\\(function\\)$",
        ),
        (
            {"batch_processor": SimpleBatchProcessor},
            TypeError,
            "^batch_processor must be an object, not a class; write SimpleBatchProcessor\\(\\)$",
        ),
        ({"batch_processor": None}, TypeError, "^batch_processor must be a SimpleBatchProcessor, not None$"),
    ],
)
def test_wrong_parts_of_a_trainer_are_refused(options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        parts.trainer(**options)
    assert isinstance(caught.value, HooklineError)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optimizer": None}, "^optimizer must be a torch optimizer, not None$"),
        ({"optimizer": torch.optim.SGD}, "^optimizer must be a torch optimizer, not the class SGD$"),
        ({"model": forward}, "^model must be a torch.nn.Module, not a function$"),
    ],
)
def test_a_missing_model_or_optimizer_is_refused(given: Any, message: str) -> None:
    model = parts.net()
    options = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)} | given
    with pytest.raises(ConfigError, match=message):
        HookBasedTrainer(
            accelerator=parts.accelerator(),
            dataloader=two_batches(),
            batch_processor=SimpleBatchProcessor.from_callable(forward),
            max_step=1,
            **options,
        )


def test_a_hook_that_steps_twice_is_refused_also_when_it_is_added_later() -> None:
    trainer = parts.trainer()
    trainer.hooks += OptimizerHookConfig()()
    with pytest.raises(HookError, match="a second one would make every step twice"):
        trainer()


# -- batch processors


def test_a_custom_processor_with_a_criterion_and_transforms() -> None:
    class Mine(SimpleBatchProcessor):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.criterion = nn.CrossEntropyLoss()

        def forward(self, model: Any, batch: Any) -> tuple[Any, Any]:
            inputs, target = batch
            outputs = model(inputs)
            return outputs, self.criterion(outputs, target) if self.need_backward else None

    found = []
    for processor in (
        Mine(need_backward=True),
        SimpleBatchProcessor.from_callable(forward),
        Mine(transforms=lambda batch: (batch[0] * 2, batch[1])),
    ):
        trainer = parts.trainer(max_step=1, batch_processor=processor)
        trainer()
        found.append(parts.weights(trainer))
        assert len(trainer.accelerator._models) == 1
    plain, functions, doubled = found
    assert parts.equal(plain, functions)
    assert not parts.equal(plain, doubled)


def test_a_loss_with_parameters_is_prepared_and_saved_too(tmp_path: Path) -> None:
    class Learns(SimpleBatchProcessor):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(1, 1)

        def forward(self, model: Any, batch: Any) -> tuple[Any, Any]:
            outputs, loss = forward(model, batch)
            return outputs, self.scale(loss.view(1, 1)).sum()

    trainer = parts.trainer(tmp_path, max_step=1, batch_processor=Learns(), hooks=SaveCheckpointConfig())
    trainer()
    assert len(trainer.accelerator._models) == 2
    assert "model_1.safetensors" in parts.folders(tmp_path / "checkpoints" / "checkpoint_0")


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (
            lambda model, batch: (None, None),
            LossNotProvidedError,
            "^<FunctionInfo function <lambda> from .*test_trainer.py:\\d+> returned no loss; "
            "return \\(outputs, loss\\)",
        ),
        (
            lambda model, batch: forward(model, batch)[1],
            TypeError,
            "> must return two values, the outputs and the loss",
        ),
        (lambda model, batch: (None, torch.zeros(())), HooklineError, "^the loss has no gradient"),
        (
            lambda model, batch: (None, model(batch[0])),
            TypeError,
            "^forward must return the loss as a tensor with one element, not one of shape \\(4, 3\\)\n",
        ),
        (
            lambda model, batch: (None, 2.5),
            HookError,
            "^forward must return the loss as a tensor with one element, not a float\n",
        ),
    ],
)
def test_a_wrong_result_of_forward_is_refused(function: Any, kind: type[Exception], message: str) -> None:
    trainer = parts.trainer(max_step=1, batch_processor=SimpleBatchProcessor.from_callable(function))
    with pytest.raises(kind, match=message):
        trainer()


def test_a_processor_without_a_forward_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="^SimpleBatchProcessor has no forward"):
        SimpleBatchProcessor().forward(print, None)
    with pytest.raises(TypeError) as refused:
        parts.trainer(batch_processor=SimpleBatchProcessor())
    assert str(refused.value) == (
        "batch_processor is a SimpleBatchProcessor, which has no forward(model, batch); write a subclass that has one, "
        "or use SimpleBatchProcessor.from_callable(function)"
    )
    with pytest.raises(TypeError, match="^from_callable needs a function that takes the model and a batch, not 3$"):
        SimpleBatchProcessor.from_callable(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        BatchProcessorMixin()  # type: ignore[abstract]


class Misspelled(SimpleBatchProcessor):
    def foward(self, model: Any, batch: Any) -> Any: ...


class NarrowForward(SimpleBatchProcessor):
    def __init__(self) -> None: ...

    def forward(self, model: Any) -> Any: ...  # type: ignore[override]


def only_a_model(model: Any) -> Any: ...


def drip(model: Any, batch: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("make", "function", "message"),
    [
        (
            Misspelled,
            Misspelled.foward,
            "Misspelled has no forward(model, batch), but it has <FunctionInfo function Misspelled.foward from {}>; "
            "if that is its forward, rename it to forward",
        ),
        (
            lambda: SimpleBatchProcessor.from_callable(only_a_model),  # type: ignore[arg-type]
            only_a_model,
            "<FunctionInfo function only_a_model from {}> is called with the model and a batch, but takes "
            "(model: 'Any') -> 'Any'",
        ),
        (
            lambda: SimpleBatchProcessor.from_callable(drip),
            drip,
            "<FunctionInfo function drip from {}> would never run, because it is a generator or a coroutine",
        ),
    ],
)
def test_a_wrong_forward_is_refused_at_once(make: Any, function: Any, message: str) -> None:
    with pytest.raises(TypeError) as refused:
        make()
    assert isinstance(refused.value, HookError)
    place = f"{os.path.relpath(__file__)}:{function.__code__.co_firstlineno}"
    assert str(refused.value) == message.format(place)


def test_forward_is_checked_even_if_the_base_constructor_was_not_called() -> None:
    with pytest.raises(
        TypeError, match=r"NarrowForward\(id=\d+\).forward from .* but takes \(model: 'Any'\) -> 'Any'$"
    ):
        parts.trainer(batch_processor=NarrowForward())


def test_forward_may_be_an_attribute_of_the_object() -> None:
    class Given(SimpleBatchProcessor):
        def __init__(self) -> None:
            super().__init__()
            self.forward = forward  # type: ignore[method-assign]

    class Whole(SimpleBatchProcessor):
        def __call__(self, pipeline_hooks: Any, on_batch_hook_args: Any, model: Any) -> None:
            torch.autograd.backward(forward(model, on_batch_hook_args.batch)[1])

    trainers = [parts.trainer(max_step=2, batch_processor=one) for one in (Given(), Whole())]
    for trainer in trainers:
        trainer()
        assert trainer.trainer_progress_state.global_step_id == 2


# -- SimpleTrainer


class Mean:
    """A metric for SimpleTrainer."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.modes: list[bool] = []

    def update(self, batch: Tensor, outputs: Tensor) -> None:
        assert not torch.is_grad_enabled()
        self.values.append(float(outputs.mean()))

    def compute(self) -> int:
        return len(self.values)

    def reset(self) -> None:
        self.values.clear()


def test_simple_trainer_takes_separate_parameters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def make(**options: Any) -> SimpleTrainer:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        return SimpleTrainer(
            model=model,
            accelerator=parts.accelerator(tmp_path),
            batch_processor=SimpleBatchProcessor.from_callable(forward),
            dataloader=two_batches(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            grad_clip_mode="norm",
            grad_max_norm=0.1,
            **options,
        )

    trainer = make(
        max_epoch=2,
        val_dataloader=[torch.zeros(1, 4), torch.ones(1, 4)],
        metric=Mean(),
        epoch_eval_freq=1,
        hooks=SaveCheckpointConfig(),
    )
    assert trainer.eval() == 2
    trainer()
    assert [record.message for record in caplog.records if "evaluation" in record.message] == ["evaluation: 2"] * 3
    assert trainer.model.training
    resumed = make(max_epoch=3, resume_from=str(tmp_path / "checkpoints" / "checkpoint_0"))
    resumed()
    assert resumed.trainer_progress_state.global_step_id == 6
    with pytest.raises(ValueError, match="^eval needs a val_dataloader; pass one to the trainer$"):
        resumed.eval()
    with pytest.raises(ValueError, match="^a val_dataloader needs a metric$"):
        make(max_epoch=1, val_dataloader=[1])
    with pytest.raises(ValueError, match="^lr_scheduler_step_at must be 'step', not 'epoch'$"):
        make(max_epoch=1, lr_scheduler_step_at="epoch")


def test_a_hook_sees_the_counters_of_its_pass_through_the_channel() -> None:
    seen = []
    hooks = PipelineHooks()
    hooks.register_hook("on_step", HookContext.from_callable(after=lambda args: seen.append(counters(args))))
    parts.trainer(max_step=3, hooks=hooks)()
    assert seen == ["e0 s0 g0", "e0 s1 g1", "e0 s2 g2"]


def test_the_error_for_a_missing_library_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(
        ConfigError, match=r"^the trainer needs accelerate, .*: pip install 'hookline\[robo_orchard\]'$"
    ):
        HookBasedTrainer(None, None, [], None, None, max_step=1)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    with pytest.raises(ConfigError, match=r"^writing TOML needs tomli_w, .*: pip install 'hookline\[robo_orchard\]'$"):
        OptimizerHookConfig().to_str(format="toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grad_max_norm": 1.0}, "grad_max_norm=1.0 would do nothing without a grad_clip_mode; set it, too"),
        ({"grad_clip_value": 0.5}, "grad_clip_value=0.5 would do nothing without a grad_clip_mode; set it, too"),
        (
            {"step_eval_freq": 2, "epoch_eval_freq": 1},
            "step_eval_freq=2 and epoch_eval_freq=1 would do nothing without a val_dataloader; set it, too",
        ),
        (
            {"accelerator": None, "val_dataloader": [1], "metric": Mean(), "epoch_eval_freq": 1},
            "accelerator must be an accelerate.Accelerator, not None",
        ),
    ],
)
def test_simple_trainer_refuses_settings_without_effect(options: dict[str, Any], message: str) -> None:
    model = nn.Linear(4, 3)
    given = {"accelerator": parts.accelerator(), "batch_processor": SimpleBatchProcessor.from_callable(forward)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as refused:
        SimpleTrainer(model, dataloader=two_batches(), optimizer=optimizer, max_step=1, **(given | options))
    assert str(refused.value) == message


def test_an_optimizer_with_other_parameters_is_reported_before_training(caplog: pytest.LogCaptureFixture) -> None:
    parts.trainer()
    processor: Any = SimpleBatchProcessor.from_callable(forward)
    processor.criterion = nn.Linear(3, 3)
    parts.trainer(batch_processor=processor, optimizer=torch.optim.SGD(processor.criterion.parameters(), lr=0.1))
    assert caplog.messages == []
    parts.trainer(optimizer=torch.optim.SGD(parts.net().parameters(), lr=0.1))
    assert caplog.messages == [
        "no parameter of the SGD belongs to the model (Sequential), so training will not change the model; create "
        "the optimizer with the parameters of the model that you pass to the trainer"
    ]
