"""VisualizationHook: sends images of validations and tests to the writers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_int
from hookline.errors import ConfigError, DataError
from hookline.plan.functions import asked_for, label_of
from hookline.plan.milestones import Milestone
from hookline.record.images import CHANNELS, as_grid, as_image, columns_of, describe
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")

# The maximum number of parts of a batch that an error lists.
MAX_LISTED = 8


class VisualizationHook(Hook):
    """Sends images of validations and tests to the writers, from the batch or from a function.

    It shows the first batches of every `interval`-th validation and of every test, each as a grid. The images come from
    the batch: the part that `key` names, or else the first part that looks like images, as (N, C, H, W), (N, H, W, C)
    or (N, H, W). `hookline.images` describes how numbers become colors. If the step returns `(preds, target)` of a
    classifier, the caption has one line for every row of the grid: `pred 3, true 5 | pred 1, true 1`.

    Alternatively, your own function creates the images. It takes any of `data_batch`, `outputs` and `runner`, by name,
    and returns an image, a batch or list of images, a mapping of names to these, or None. Random numbers that it draws
    do not change the run.

    The images are called `val/images` and `test/images`, with the name of the dataset (`val/<set>/images`), the name
    that the function returns (`val/images/<name>`) and the number of the batch (`val/images/0`), if there are several.

    Cost: one comparison per batch. Each grid takes one transfer of its images from the device, and the time of the
    writers.

    Example:
        import torch

        from hookline.hooks import VisualizationHook
        from hookline.testing import MemoryWriter, toy_runner


        def noise(outputs):
            return torch.rand(3, 16, 16)


        writer = MemoryWriter()
        toy_runner(custom_hooks=[VisualizationHook(function=noise)], writers=[writer]).train()
        print(writer.images[0][0])

    YAML:
        custom_hooks:
          - {type: VisualizationHook, interval: 2, max_images: 16}

    Args:
        interval: Show every `interval`-th validation. Tests are always shown.
        function: The function that creates the images, instead of the batch. In YAML, `module:name`.
        batches: The number of batches to show, from the first one of each dataset on.
        max_images: Show at most this many images of a batch.
        name: The name of the images, after `val/` or `test/`.
        key: The part of the batch that holds the images: a key of a mapping, an index of a tuple, or an attribute.
        caption: Add a caption with the prediction and the true class, if the step returns them.
    """

    priority = "NORMAL"
    role = "observer"
    draws_random_numbers = False  # the function may; it alone is isolated, because the points run for every batch

    def __init__(
        self,
        interval: int = 1,
        function: Callable[..., Any] | None = None,
        batches: int = 1,
        max_images: int = 8,
        name: str = "images",
        key: str | int | None = None,
        caption: bool = True,
    ) -> None:
        for label, value in (("interval", interval), ("batches", batches), ("max_images", max_images)):
            check_int(f"VisualizationHook: {label}", value, least=1)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"VisualizationHook: name must be a non-empty string, not {name!r}")
        if key is not None and (not isinstance(key, (str, int)) or isinstance(key, bool)):
            raise ConfigError(f"VisualizationHook: key must be a string or an int, not {key!r}")
        if function is not None and key is not None:
            raise ConfigError("VisualizationHook: set function or key, not both")
        offered = ("data_batch", "outputs", "runner")
        self._call = asked_for(function, offered, "VisualizationHook: function") if function is not None else None
        self.interval = interval
        self.function = function
        self.batches = batches
        self.max_images = max_images
        self.name = name
        self.key = key
        self.caption = caption
        self._due = False
        self._seen = False

    def before_run(self, runner: Runner) -> None:
        """Warn if no writer of this run keeps images."""
        if not any(writer.keeps_images for writer in runner.writers.all):
            log.warning("VisualizationHook: no writer of this run keeps images, so they will be lost")

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first validation to show, or, in a run without validation, the first test."""
        if not runner.val_loops:
            return [Milestone("", 1, 1, "evaluation", "it shows nothing")]
        effect = "it shows no validation"
        return [Milestone("interval", self.interval, self.interval, "validation", effect)]

    def how_often(self) -> dict[str, int]:
        """Return the interval in validations."""
        return {"around_val": self.interval}

    def around_val(self) -> Iterator[None]:
        """Mark this validation as one to show."""
        self._due = True
        try:
            yield
        finally:
            self._due = False

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        """Show the batch, if it is due. In any case, check that the very first batch has images."""
        if self._due and batch_idx < self.batches:
            self._show(runner, "val", batch_idx, data_batch, outputs)
        elif not self._seen and self.function is None:
            self._images(data_batch)
        self._seen = True

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        """Show the batch."""
        if batch_idx < self.batches:
            self._show(runner, "test", batch_idx, data_batch, outputs)

    def _show(self, runner: Runner, stage: Literal["val", "test"], batch_idx: int, batch: Any, outputs: Any) -> None:
        loops = runner.val_loops if stage == "val" else runner.test_loops
        of_set = next((name for name, loop in loops.items() if loop is runner.eval_loop), "")
        number = str(batch_idx) if self.batches > 1 else ""
        for name, (image, caption) in self._named_images(runner, batch, outputs).items():
            path = "/".join(part for part in (stage, of_set, self.name, name, number) if part)
            runner.writers.write_image(path, image, runner.iter, caption)

    def _named_images(self, runner: Runner, batch: Any, outputs: Any) -> dict[str, tuple[Any, str | None]]:
        """Return the images to write and their captions, by name."""
        if self._call is None:
            images = self._images(batch)
            shown = images[: self.max_images]
            texts = captions_of(outputs, len(images))[: len(shown)] if self.caption else []
            return {"": (as_grid(shown), join_rows(texts, columns_of(len(shown))) if texts else None)}
        from hookline.common import rng  # it imports torch, and `hookline hooks` must not

        with rng.preserved():
            given = self._call(data_batch=batch, outputs=outputs, runner=runner)
        named = given if isinstance(given, Mapping) else {"": given}
        return {str(name): (self._as_one_image(image), None) for name, image in named.items() if image is not None}

    def _as_one_image(self, image: Any) -> Any:
        """Return an image from the user's function, or the grid of several."""
        try:
            if isinstance(image, (list, tuple)) or getattr(image, "ndim", 0) == 4:
                return as_grid(image[: self.max_images])
            return as_image(image)
        except DataError as error:
            assert self.function is not None
            raise DataError(f"VisualizationHook: an image from {label_of(self.function)}: {error}") from None

    def _images(self, batch: Any) -> Any:
        """Return the part of a batch that holds its images."""
        parts = list(parts_of(batch)) if self.key is None else [self._part(batch, self.key)]
        for looks_right in (is_image_batch, is_image_list, is_gray_batch):
            for _, value in parts:
                if looks_right(value):
                    return value
        listed = "; ".join(f"{where} {describe(value)}".strip() for where, value in list(parts_of(batch))[:MAX_LISTED])
        what = "no images" if self.key is None else f"no images at key {self.key!r}"
        raise ConfigError(
            f"VisualizationHook: found {what} in the batch, which holds {listed or 'nothing'}. Images are "
            "(N, C, H, W) or (N, H, W, C) with 1, 3 or 4 channels, or (N, H, W), of uint8, bool or floats. Set "
            "key to the part that holds them, or create them with a function"
        )

    def _part(self, batch: Any, key: str | int) -> tuple[str, Any]:
        try:
            return "", batch[key]
        except (KeyError, IndexError, TypeError):
            return "", getattr(batch, str(key), None)


def parts_of(batch: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts of a batch and where in it they are. A list of images inside it is one part."""
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from parts_of(value, f"{where}[{key!r}]")
    elif isinstance(batch, (list, tuple)) and not (where and is_image_list(batch)):
        for number, value in enumerate(batch):
            yield from parts_of(value, f"{where}[{number}]")
    else:
        yield where, batch


def is_image_batch(value: Any) -> bool:
    """Return whether a value is a batch of images: (N, C, H, W) or (N, H, W, C)."""
    return _has_pixels(value, 4) and (value.shape[1] in CHANNELS or value.shape[3] in CHANNELS)


def is_image_list(value: Any) -> bool:
    """Return whether a value is a list of images: (C, H, W) or (H, W, C)."""
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(_has_pixels(image, 3) and (image.shape[0] in CHANNELS or image.shape[2] in CHANNELS) for image in value)
    )


def is_gray_batch(value: Any) -> bool:
    """Return whether a value is a batch of gray images: (N, H, W)."""
    return _has_pixels(value, 3)


def _has_pixels(value: Any, dimensions: int) -> bool:
    shape, dtype = getattr(value, "shape", ()), str(getattr(value, "dtype", "")).removeprefix("torch.")
    return len(shape) == dimensions and 0 not in shape and dtype.startswith(("float", "bfloat", "uint8", "bool"))


def captions_of(outputs: Any, count: int) -> list[str]:
    """Return `pred 3, true 5` for each sample if a step returns `(preds, target)` of a classifier, or an empty list."""
    if isinstance(outputs, Mapping):
        outputs = (outputs.get("preds"), outputs.get("target"))
    if not isinstance(outputs, Sequence) or len(outputs) != 2 or not all(hasattr(tensor, "ndim") for tensor in outputs):
        return []
    preds, target = outputs
    if preds.ndim == 2 and preds.shape[1] > 1:
        preds = preds.argmax(1)
    if not all(tensor.ndim == 1 and len(tensor) == count and "int" in str(tensor.dtype) for tensor in (preds, target)):
        return []
    return [f"pred {guess}, true {label}" for guess, label in zip(preds.tolist(), target.tolist(), strict=True)]


def join_rows(texts: Sequence[str], columns: int) -> str:
    """Join the captions in the same rows as the images in the grid."""
    return "\n".join(" | ".join(texts[first : first + columns]) for first in range(0, len(texts), columns))
