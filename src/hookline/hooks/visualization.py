"""VisualizationHook: images of validation and test for the writers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_int
from hookline.errors import ConfigError, DataError
from hookline.plan.functions import asked_for, label_of
from hookline.plan.hook import Hook
from hookline.record.images import CHANNELS, as_grid, as_image, columns_of, describe

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

log = logging.getLogger("hookline")

# More parts of a batch than this are not told one by one.
TOLD = 8


class VisualizationHook(Hook):
    """Gives the writers images of validations and tests, from the batch or from a function.

    They show the first batches of every n-th validation, and of a test, each as a grid. The images are those of the
    batch: the part that `key` names, or else the first that looks like images, as (N, C, H, W), (N, H, W, C) or (N, H,
    W). How numbers become colours stands in `hookline.images`. Where the step gives `(preds, target)` of a classifier,
    the caption has a line for every row of the grid: `pred 3, true 5 | pred 1, true 1`.

    Or a function of yours makes them: it takes any of `data_batch`, `outputs` and `runner`, by name, and gives an
    image, a batch or list of them, a mapping of names to these, or None. What it draws at random does not change the
    run.

    They are called `val/images` and `test/images`; of a data set with a name `val/<set>/images`, of a function that
    names them `val/images/<name>`, and of several batches `val/images/0`, `val/images/1`. Their step is the number of
    finished iterations. A writer that keeps no images leaves them out.

    Cost: a comparison a batch; for each grid, one transfer of its images from the device, and what the writers take.

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
        interval: Every how many validations; a test always.
        function: What makes the images, instead of the batch; in YAML `module:name`.
        batches: Of how many batches, from the first of each data set.
        max_images: At most so many of a batch.
        name: What they are called, behind `val/` or `test/`.
        key: Which part of the batch holds the images: a key of a mapping, a number of a tuple, or an attribute.
        caption: Say what was predicted and what is true, where the step gives it.
    """

    priority = "NORMAL"
    role = "observer"
    draws_random_numbers = False  # the function may, and is isolated by itself: the points are called for every batch

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
            raise ConfigError(f"VisualizationHook: name must be a name, not {name!r}")
        if key is not None and (not isinstance(key, (str, int)) or isinstance(key, bool)):
            raise ConfigError(f"VisualizationHook: key must be a name or a number, not {key!r}")
        if function is not None and key is not None:
            raise ConfigError("VisualizationHook: give a function or a key, not both")
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
        """Say so where nobody will see the images."""
        if not any(writer.keeps_images for writer in runner.writers.all):
            log.warning("VisualizationHook: no writer of this run keeps images, so nobody will see them")

    def how_often(self) -> dict[str, int]:
        """Every n-th validation."""
        return {"around_val": self.interval}

    def around_val(self) -> Iterator[None]:
        """This validation is one to show."""
        self._due = True
        try:
            yield
        finally:
            self._due = False

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        """Show the batch; that the first of all has images is looked at in any case."""
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
        for name, (image, caption) in self._pictures(runner, batch, outputs).items():
            path = "/".join(part for part in (stage, of_set, self.name, name, number) if part)
            runner.writers.write_image(path, image, runner.iter, caption)

    def _pictures(self, runner: Runner, batch: Any, outputs: Any) -> dict[str, tuple[Any, str | None]]:
        """By name: what to write, and what to write under it."""
        if self._call is None:
            images = self._images(batch)
            shown = images[: self.max_images]
            texts = captions_of(outputs, len(images))[: len(shown)] if self.caption else []
            return {"": (as_grid(shown), in_rows(texts, columns_of(len(shown))) if texts else None)}
        from hookline.common import rng  # it needs torch, and a hook's parameters are read without

        with rng.preserved():
            given = self._call(data_batch=batch, outputs=outputs, runner=runner)
        named = given if isinstance(given, Mapping) else {"": given}
        return {str(name): (self._made(image), None) for name, image in named.items() if image is not None}

    def _made(self, image: Any) -> Any:
        """An image of the user's function, or the grid of several."""
        try:
            if isinstance(image, (list, tuple)) or getattr(image, "ndim", 0) == 4:
                return as_grid(image[: self.max_images])
            return as_image(image)
        except DataError as error:
            assert self.function is not None
            raise DataError(f"VisualizationHook: of {label_of(self.function)}: {error}") from None

    def _images(self, batch: Any) -> Any:
        """The part of a batch that holds its images."""
        found = list(parts_of(batch)) if self.key is None else [self._part(batch, self.key)]
        for looks_right in (is_batch, is_list, is_gray_batch):
            for _, value in found:
                if looks_right(value):
                    return value
        told = "; ".join(f"{where} {describe(value)}".strip() for where, value in list(parts_of(batch))[:TOLD])
        what = "no images" if self.key is None else f"no images at key {self.key!r}"
        raise ConfigError(
            f"VisualizationHook: there are {what} in the batch, which holds {told or 'nothing'}. Images are "
            "(N, C, H, W) or (N, H, W, C) with 1, 3 or 4 channels, or (N, H, W), of uint8, bool or floats. Say with "
            "key which part holds them, or make them with a function"
        )

    def _part(self, batch: Any, key: str | int) -> tuple[str, Any]:
        try:
            return "", batch[key]
        except (KeyError, IndexError, TypeError):
            return "", getattr(batch, str(key), None)


def parts_of(batch: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a batch, and where in it they are; a list inside of it is one part if it holds images."""
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from parts_of(value, f"{where}[{key!r}]")
    elif isinstance(batch, (list, tuple)) and not (where and is_list(batch)):
        for number, value in enumerate(batch):
            yield from parts_of(value, f"{where}[{number}]")
    else:
        yield where, batch


def is_batch(value: Any) -> bool:
    """(N, C, H, W) or (N, H, W, C)."""
    return _has_pixels(value, 4) and (value.shape[1] in CHANNELS or value.shape[3] in CHANNELS)


def is_list(value: Any) -> bool:
    """A list of (C, H, W) or (H, W, C)."""
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(_has_pixels(each, 3) and (each.shape[0] in CHANNELS or each.shape[2] in CHANNELS) for each in value)
    )


def is_gray_batch(value: Any) -> bool:
    """(N, H, W)."""
    return _has_pixels(value, 3)


def _has_pixels(value: Any, dimensions: int) -> bool:
    shape, dtype = getattr(value, "shape", ()), str(getattr(value, "dtype", "")).removeprefix("torch.")
    return len(shape) == dimensions and 0 not in shape and dtype.startswith(("float", "bfloat", "uint8", "bool"))


def captions_of(outputs: Any, count: int) -> list[str]:
    """`pred 3, true 5` of each sample, where a step gives `(preds, target)` of a classifier; otherwise none."""
    if isinstance(outputs, Mapping):
        outputs = (outputs.get("preds"), outputs.get("target"))
    if not isinstance(outputs, Sequence) or len(outputs) != 2 or not all(hasattr(each, "ndim") for each in outputs):
        return []
    preds, target = outputs
    if preds.ndim == 2 and preds.shape[1] > 1:
        preds = preds.argmax(1)
    if not all(each.ndim == 1 and len(each) == count and "int" in str(each.dtype) for each in (preds, target)):
        return []
    return [f"pred {said}, true {right}" for said, right in zip(preds.tolist(), target.tolist(), strict=True)]


def in_rows(texts: Sequence[str], columns: int) -> str:
    """Captions as their images stand in the grid."""
    return "\n".join(" | ".join(texts[at : at + columns]) for at in range(0, len(texts), columns))
