"""VisualizationHook: which images reach the writers, their names, when, and the error if there are none."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline import EvalLoop, Hook, Runner
from hookline.engine.metrics import accuracy
from hookline.errors import ConfigError, DataError
from hookline.hooks import EMAHook, VisualizationHook
from hookline.plan.functions import label_of
from hookline.record.images import as_grid, as_image
from hookline.testing import MemoryWriter, toy_data, toy_runner

# Three batches of four gray images of 2 x 2 pixels; the mean of an image, in fifths, is its class.
IMAGES = (torch.arange(48, dtype=torch.uint8) * 5).reshape(3, 4, 1, 2, 2)
BATCHES = [(images, torch.tensor([0, 1, 2, 3])) for images in IMAGES]


def read(model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Predict class 2 for every image except the first."""
    scores = torch.zeros(4, 4)
    scores[0, 1] = scores[1:, 2] = 1.0
    return scores, batch[1]


def looking(hook: Any, data: Any = BATCHES, step: Any = read, **parts: Any) -> tuple[Runner, MemoryWriter]:
    writer = MemoryWriter()
    loop = EvalLoop(data, step)
    hooks = [hook] if not isinstance(hook, list) else hook
    given = {"max_epochs": 3, "batches": 2, "val": loop, "test": loop, "writers": [writer], **parts}
    return toy_runner(custom_hooks=hooks, **given), writer


def shown(hook: VisualizationHook, data: Any, step: Any = lambda model, batch: None) -> list[Any]:
    """Return the images of one validation."""
    runner, writer = looking(hook, data, step)
    runner.val()
    return [image.tolist() for _, image, _, _ in writer.images]


def names(writer: MemoryWriter) -> list[tuple[str, int]]:
    return [(name, step) for name, _, step, _ in writer.images]


# ------------------------------------------------------------------------------------------------- which and when


@pytest.mark.parametrize(("interval", "steps"), [(1, [2, 4, 6]), (2, [4]), (3, [6]), (4, [])])
def test_the_first_batch_of_every_nth_validation_is_shown(interval: int, steps: list[int]) -> None:
    runner, writer = looking(VisualizationHook(interval))
    runner.train()
    assert names(writer) == [("val/images", step) for step in steps]
    for _, image, _, caption in writer.images:
        assert image.tolist() == as_grid(IMAGES[0]).tolist()
        assert image.dtype == np.uint8
        assert caption == "pred 1, true 0 | pred 2, true 1\npred 2, true 2 | pred 2, true 3"


def test_by_iterations_the_step_is_what_is_finished() -> None:
    runner, writer = looking(VisualizationHook(), max_epochs=None, max_iters=5, train={"val_interval": 2})
    runner.train()
    assert names(writer) == [("val/images", 2), ("val/images", 4), ("val/images", 5)]


def test_a_test_is_always_shown_and_validation_alone_counts_as_one() -> None:
    runner, writer = looking(VisualizationHook(2))
    runner.test()
    runner.test()
    assert names(writer) == [("test/images", 0)] * 2
    runner.val()
    assert len(writer.images) == 2
    runner.val()
    assert names(writer)[2:] == [("val/images", 0)]


def test_several_batches_are_numbered_and_no_more_images_than_wanted_are_shown() -> None:
    runner, writer = looking(VisualizationHook(batches=2, max_images=3, name="pixels"))
    runner.val()
    assert names(writer) == [("val/pixels/0", 0), ("val/pixels/1", 0)]
    for number, (_, image, _, caption) in enumerate(writer.images):
        assert image.tolist() == as_grid(IMAGES[number, :3]).tolist()
        assert caption == "pred 1, true 0 | pred 2, true 1\npred 2, true 2"


def test_each_data_set_has_a_separate_name() -> None:
    loops = {"clean": EvalLoop(BATCHES, read), "noisy": EvalLoop(BATCHES[1:], read)}
    runner, writer = looking(VisualizationHook(), val=loops)
    runner.val()
    assert names(writer) == [("val/clean/images", 0), ("val/noisy/images", 0)]
    assert [image.tolist() for _, image, _, _ in writer.images] == [as_grid(IMAGES[n]).tolist() for n in (0, 1)]


def test_raw_weights_that_are_measured_too_are_a_data_set() -> None:
    loop = EvalLoop(BATCHES, read, metrics={"accuracy": accuracy})
    runner, writer = looking([EMAHook(eval_both=True), VisualizationHook()], val=loop, max_epochs=1)
    runner.train()
    assert names(writer) == [("val/images", 2), ("val/raw/images", 2)]


def test_a_writer_without_images_is_fine(tmp_path: Path) -> None:
    runner, _ = looking(VisualizationHook(), writers=["csv"], work_dir=tmp_path)
    runner.train()
    assert "images" not in (tmp_path / "metrics.csv").read_text()


# ------------------------------------------------------------------------------------------- images of the batch

COLORS = torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))
FEATURES = torch.zeros(4, 7)


@pytest.mark.parametrize(
    ("batch", "key", "expected"),
    [
        (COLORS, None, as_grid(COLORS)),
        ((FEATURES, COLORS), None, as_grid(COLORS)),
        ({"a": {"ids": torch.zeros(4, 5, 6, dtype=torch.int64), "pixels": COLORS}}, None, as_grid(COLORS)),
        ([COLORS.permute(0, 2, 3, 1).numpy(), np.zeros(4)], None, as_grid(COLORS)),
        ((COLORS[:, 0], COLORS), None, as_grid(COLORS)),  # four dimensions before three
        ((FEATURES, COLORS[:, 0]), None, as_grid(COLORS[:, 0])),
        ([COLORS[:, 0], COLORS[:, 1]], None, as_grid(COLORS[:, 0])),  # two parts of a batch, not two images
        (([COLORS[0], COLORS[1][:, :4]], [{"boxes": FEATURES}] * 2), None, as_grid([COLORS[0], COLORS[1][:, :4]])),
        ((COLORS, 1 - COLORS), 1, as_grid(1 - COLORS)),
        ({"a": COLORS, "b": COLORS[:, 0] > 0.5}, "b", as_grid(COLORS[:, 0] > 0.5)),
        ({"a": COLORS, "b": [COLORS[0]]}, "b", as_grid([COLORS[0]])),
        ((COLORS.bfloat16(),), 0, as_grid(COLORS.bfloat16())),
    ],
)
def test_the_images_of_a_batch_are_found(batch: Any, key: Any, expected: Any) -> None:
    assert shown(VisualizationHook(key=key), [batch]) == [expected.tolist()]


def test_a_key_can_be_an_attribute() -> None:
    class Batch:
        pixels = COLORS

    assert shown(VisualizationHook(key="pixels"), [Batch()]) == [as_grid(COLORS).tolist()]


HINT = (
    "Images are (N, C, H, W) or (N, H, W, C) with 1, 3 or 4 channels, or (N, H, W), of uint8, bool or floats. Set "
    "key to the part that holds them, or create them with a function"
)


@pytest.mark.parametrize(
    ("batch", "key", "what", "holds"),
    [
        (
            toy_data(1)[0],
            None,
            "no images",
            "[0] Tensor of shape (8, 4) and dtype float32; [1] Tensor of shape (8,) and dtype int64",
        ),
        (
            {"x": torch.zeros(2, 5, 4, 6), "name": ["a"]},
            None,
            "no images",
            "['x'] Tensor of shape (2, 5, 4, 6) and dtype float32; ['name'][0] str",
        ),
        (FEATURES, None, "no images", "Tensor of shape (4, 7) and dtype float32"),
        ((), None, "no images", "nothing"),
        ({"x": COLORS}, "y", "no images at key 'y'", "['x'] Tensor of shape (4, 3, 5, 6) and dtype float32"),
        ((COLORS,), 1, "no images at key 1", "[0] Tensor of shape (4, 3, 5, 6) and dtype float32"),
        ((FEATURES,), 0, "no images at key 0", "[0] Tensor of shape (4, 7) and dtype float32"),
        ([1] * 20, None, "no images", "; ".join(f"[{number}] int" for number in range(8))),
    ],
)
@pytest.mark.parametrize("interval", [1, 5])
def test_a_batch_without_images_is_refused_at_the_first(
    batch: Any, key: Any, what: str, holds: str, interval: int
) -> None:
    runner, _ = looking(VisualizationHook(interval, key=key), [batch], lambda model, batch: None)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == f"VisualizationHook: found {what} in the batch, which holds {holds}. {HINT}"
    assert runner.iter == 2


# -------------------------------------------------------------------------------------------------------- captions


TWO = torch.zeros(2, 1, 2, 2)
SAID = torch.tensor([1, 0])


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])), "pred 1, true 1 | pred 0, true 1"),
        ([SAID, torch.tensor([1, 1])], "pred 1, true 1 | pred 0, true 1"),
        ({"target": torch.tensor([0, 1]), "preds": SAID.float()[:, None] * 1}, None),
        ({"target": torch.tensor([0, 1]), "preds": SAID}, "pred 1, true 0 | pred 0, true 1"),
        ((SAID.numpy(), SAID.numpy()), "pred 1, true 1 | pred 0, true 0"),
        ((torch.zeros(2), SAID), None),  # a regression, or one score for two classes
        ((torch.zeros(2, 3, 2, 2), torch.zeros(2, 2, 2)), None),
        ((torch.zeros(3, 2), torch.zeros(3).long()), None),
        (torch.zeros(2, 2), None),
        ((SAID, SAID, SAID), None),
        ((SAID, 3), None),
        ("ab", None),
        (None, None),
    ],
)
def test_a_caption_says_what_was_predicted_and_what_is_true(outputs: Any, expected: str | None) -> None:
    for caption in (True, False):
        runner, writer = looking(VisualizationHook(caption=caption), [TWO], lambda model, batch: outputs)
        runner.val()
        assert [each[3] for each in writer.images] == [expected if caption else None]


# -------------------------------------------------------------------------------------------------- a function


def test_a_function_makes_the_images_from_what_it_asks_for() -> None:
    seen: list[Any] = []

    def of_outputs(outputs: Any) -> Any:
        seen.append(outputs)
        return COLORS

    def of_all(runner: Runner, outputs: Any, data_batch: Any) -> Any:
        assert runner.running == "val"
        return {"first": data_batch[0][0], "none": None, "list": [COLORS[0], COLORS[1]], "four": COLORS}

    runner, writer = looking(VisualizationHook(function=of_outputs, max_images=2))
    runner.val()
    assert [(name, image.tolist(), caption) for name, image, _, caption in writer.images] == [
        ("val/images", as_grid(COLORS[:2]).tolist(), None)
    ]
    assert len(seen) == 1
    assert seen[0][1] is BATCHES[0][1]
    runner, writer = looking(VisualizationHook(function=of_all, max_images=3, batches=2))
    runner.val()
    assert [name for name, _ in names(writer)] == [
        *(f"val/images/{name}/{number}" for number in (0, 1) for name in ("first", "list", "four"))
    ]
    assert [image.tolist() for _, image, _, _ in writer.images[:3]] == [
        *(as_image(IMAGES[0, 0]).tolist(), as_grid(COLORS[:2]).tolist(), as_grid(COLORS[:3]).tolist())
    ]
    assert shown(VisualizationHook(function=lambda: None), BATCHES) == []


def test_a_function_that_does_not_return_images_is_refused_by_name() -> None:
    def broken(data_batch: Any) -> Any:
        return torch.zeros(2, 5, 7)

    runner, _ = looking(VisualizationHook(function=broken))
    with pytest.raises(DataError) as refused:
        runner.val()
    assert str(refused.value).startswith(
        f"VisualizationHook: an image from {label_of(broken)}: Tensor of shape (2, 5, 7) and dtype float32 is not an "
        "image; expected (H, W), "
    )


def test_with_on_error_disable_the_run_continues_without_it() -> None:
    runner, writer = looking([], toy_data(2), lambda model, batch: None)
    runner.register_hook(VisualizationHook(), on_error="disable")
    runner.train()
    assert (runner.epoch, writer.images) == (3, [])


# ------------------------------------------------------------------------------------------- the life of the hook


def test_training_is_the_same_to_the_bit_with_and_without_it() -> None:
    def spoil() -> Any:
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        return torch.rand(3, 4, 4)

    def weights(*hooks: Hook) -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 2))
        toy = toy_runner(max_epochs=3)
        given: dict[str, Any] = {"train": toy.train_loop, "optim": torch.optim.SGD(model.parameters(), lr=0.1)}
        runner = Runner(model, **given, val=EvalLoop(BATCHES, read), custom_hooks=hooks, quiet=True, device="cpu",
                        work_dir=toy.work_dir)  # fmt: skip
        return {name: value.tolist() for name, value in runner.train().state_dict().items()}

    assert weights(VisualizationHook(), VisualizationHook(function=spoil)) == weights()


def test_a_resumed_run_shows_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    whole, expected = looking(VisualizationHook(2), max_epochs=4)
    whole.train()
    first, before = looking(VisualizationHook(2), max_epochs=3, work_dir=tmp_path)
    first.train()
    second, after = looking(VisualizationHook(2), max_epochs=4, work_dir=tmp_path, resume=True)
    second.train()
    assert names(before) + names(after) == names(expected) == [("val/images", 4), ("val/images", 8)]
    for name, value in whole.model.state_dict().items():
        assert value.equal(second.model.state_dict()[name])


def test_a_failing_validation_and_a_second_training_leave_it_ready() -> None:
    hook = VisualizationHook(2)
    runner, writer = looking(hook, max_epochs=2)
    die = runner.on("after_val_iter", priority=60)(lambda runner: 1 // (1 - runner.validations))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert names(writer) == [("val/images", 4)]
    assert not hook._due
    runner.remove_hook(die)
    runner.train()
    assert names(writer) == [("val/images", 4)] * 2


def test_a_config_names_it_and_its_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drawing_of_a_test.py").write_text("def first(data_batch):\n    return data_batch[0][0]\n")
    digits = {"dataloader": {"dataset": {"type": "Digits", "split": "val"}, "batch_size": 64}}
    config = {
        "model": {"type": "DigitsNet", "width": 2},
        "val": {**digits, "step": "predict"},
        "custom_hooks": [
            {"type": "VisualizationHook", "key": 0, "max_images": 2},
            {"type": "VisualizationHook", "function": "drawing_of_a_test:first", "name": "one"},
        ],
        "writers": ["memory"],
        "work_dir": str(tmp_path / "run"),
    }
    try:
        runner = Runner.from_config(config)
        runner.val()
    finally:
        sys.modules.pop("drawing_of_a_test", None)
    (writer,) = runner.writers.all
    assert isinstance(writer, MemoryWriter)
    assert [(name, image.shape) for name, image, _, _ in writer.images] == [
        ("val/images", (12, 22)),
        ("val/one", (8, 8)),
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interval": 0}, "interval must be an int of at least 1, not 0"),
        ({"batches": 0}, "batches must be an int of at least 1, not 0"),
        ({"max_images": 1.5}, "max_images must be an int of at least 1, not 1.5"),
        ({"name": ""}, "name must be a non-empty string, not ''"),
        ({"key": True}, "key must be a string or an int, not True"),
        ({"key": 1.5}, "key must be a string or an int, not 1.5"),
        ({"function": "draw"}, "function must be a function, not 'draw'"),
        ({"function": toy_data, "key": 0}, "set function or key, not both"),
        ({"function": accuracy}, f"function: there is no value for the parameter 'preds' of {label_of(accuracy)}; it can take data_batch and outputs and runner, by name"),  # noqa: E501  # whole
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        VisualizationHook(**parameters)
    assert str(refused.value) == f"VisualizationHook: {message}"


def test_images_that_nobody_keeps_are_said() -> None:
    hooks = [VisualizationHook(function=lambda: None)]
    runner = toy_runner(max_epochs=1, writers=["csv", "console"], custom_hooks=hooks)
    runner.train()
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    said = "warning: VisualizationHook: no writer of this run keeps images, so they will be lost"
    assert [line.split("  ", 1)[1] for line in lines if "keeps images" in line] == [said]
