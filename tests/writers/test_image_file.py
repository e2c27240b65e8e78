"""images.jsonl: a bounded file of images for the page of a run, the same after a resume."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline import EvalLoop, Hook, Runner
from hookline.errors import ConfigError
from hookline.metrics import accuracy
from hookline.report.gather import gather
from hookline.steps import predict
from hookline.testing import toy_data, toy_runner
from hookline.writers import image_file
from hookline.writers.image_file import as_small_png
from hookline.writers.jsonl import JsonlWriter


def lines(folder: Path, name: str = "images.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def kept(folder: Path) -> list[tuple[str, int, str]]:
    return [(each["name"], each["step"], each["caption"]) for each in lines(folder)]


def size_of(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return height, width


def pixel(png: bytes) -> int:
    """Return the first pixel of a gray image."""
    begin = png.index(b"IDAT") + 4
    return zlib.decompress(png[begin : png.index(b"IEND") - 8])[1]


class Shows(Hook):
    """Writes an image after every iteration and in every validation. Its first pixel is the step."""

    def after_train_iter(self, runner: Runner) -> None:
        step = runner.iter + 1
        runner.writers.write_image("train/step", np.full((2, 2), step, np.uint8), step)

    def after_val(self, runner: Runner) -> None:
        runner.writers.write_image("val/step", np.full((2, 2), runner.iter, np.uint8), runner.iter, "a caption")

    def after_test(self, runner: Runner) -> None:
        runner.writers.write_image("test/step", np.full((2, 2), runner.iter, np.uint8), runner.iter)


def runner_in(folder: Path, epochs: int = 3, **parts: Any) -> Runner:
    return toy_runner(work_dir=folder, max_epochs=epochs, batches=4, custom_hooks=[Shows()], **parts)


def test_a_run_with_jsonl_alone_shows_its_images_on_its_page(tmp_path: Path) -> None:
    runner_in(tmp_path, epochs=1).train()
    assert kept(tmp_path) == [*(("train/step", step, "") for step in range(1, 5)), ("val/step", 4, "a caption")]
    (run,) = gather(tmp_path)["runs"]
    assert [(each["name"], [item["step"] for item in each["items"]]) for each in run["images"]] == [
        ("train/step", [1, 2, 3, 4]),
        ("val/step", [4]),
    ]
    assert run["images"][1]["items"][0]["caption"] == "a caption"
    shown = base64.b64decode(run["images"][0]["items"][2]["source"].partition(",")[2])
    assert pixel(shown) == 3
    assert run["warnings"] == []
    assert [each["name"] for each in run["metrics"] if "step" in each["name"]] == [], "it is not read as records"


def test_a_run_without_images_has_no_such_file(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    assert not (tmp_path / "images.jsonl").exists()


def test_images_can_be_turned_off_and_the_file_is_named_after_the_records(tmp_path: Path) -> None:
    runner_in(tmp_path, 1, writers=[JsonlWriter(images=False), JsonlWriter("more.jsonl")]).train()
    assert not (tmp_path / "images.jsonl").exists()
    assert len(lines(tmp_path, "more_images.jsonl")) == 5
    assert not JsonlWriter(images=False).keeps_images
    with pytest.raises(ConfigError, match="JsonlWriter: images must be true or false, not 'no'"):
        JsonlWriter(images="no")  # type: ignore[arg-type]  # a mistake in a config


@pytest.mark.parametrize("stop_at", [2, 4, 6, 11])
def test_a_resumed_run_has_the_same_file_as_an_uninterrupted_one(
    tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_file, "FIRST", 3)
    runner_in(tmp_path / "whole").train()
    broken = runner_in(tmp_path / "broken")

    @broken.on("after_train_iter", priority="LOWEST")
    def fail(runner: Runner) -> None:
        if runner.iter + 1 == stop_at:
            raise RuntimeError("a failure")

    with pytest.raises(RuntimeError, match="a failure"):
        broken.train()
    runner_in(tmp_path / "broken", resume=True).train()
    assert (tmp_path / "broken/images.jsonl").read_bytes() == (tmp_path / "whole/images.jsonl").read_bytes()
    assert kept(tmp_path / "whole")[-1] == ("train/step", 12, ""), "the newest one is there, at the end"


def test_images_of_a_test_survive_a_resume_and_a_new_run_moves_all_away(tmp_path: Path) -> None:
    test = EvalLoop(toy_data(1), predict, metrics={"accuracy": accuracy})
    runner = runner_in(tmp_path, 1, test=test)
    runner.train()
    runner.test()
    assert kept(tmp_path)[-1] == ("test/step", 4, "")
    runner_in(tmp_path, 2, resume=True, test=test).train()
    assert [each for each in kept(tmp_path) if each[0] == "test/step"] == [("test/step", 4, "")]
    assert [step for name, step, _ in kept(tmp_path) if name == "train/step"] == list(range(1, 9))
    runner_in(tmp_path, 1).train()
    assert len(kept(tmp_path / "old-1")) == 11
    assert len(kept(tmp_path)) == 5


def test_the_file_is_bounded_in_steps_names_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = JsonlWriter()
    writer.begin(tmp_path, "x")
    image = np.zeros((2, 2), np.uint8)
    for step in range(1, 1001):
        writer.write_image("a", image, step)
    for number in range(100):
        writer.write_image(f"name {number}", image, 1)
    writer.close()
    found = kept(tmp_path)
    of_a = [step for name, step, _ in found if name == "a"]
    assert of_a[:42] == [*range(1, 41), 41, 43]
    assert (len(of_a), of_a[-1]) == (40 + 20 * 4 + 12 + 1, 1000)
    assert len({name for name, _, _ in found}) == image_file.MOST_NAMES
    monkeypatch.setattr(image_file, "MOST_BYTES", 1000)
    (tmp_path / "small").mkdir()
    writer.begin(tmp_path / "small", "x")
    for step in range(20):
        writer.write_image("a", image, step)
    writer.close()
    assert (tmp_path / "small/images.jsonl").stat().st_size <= 1000
    assert caplog.messages == [f"{tmp_path}/small/images.jsonl has 0 MiB; further images are not kept"]


def test_a_large_image_is_kept_as_a_smaller_copy() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (800, 601, 3), np.uint8)
    png = as_small_png(noise)
    assert len(png) <= image_file.LARGEST
    assert size_of(png) == (200, 150)
    flat = as_small_png(np.full((3000, 3000), 7, np.uint8))
    assert (size_of(flat), pixel(flat)) == ((3000, 3000), 7), "one that is small as a file stays as it is"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        '{"name": 5, "step": 1, "png": ""}',
        '{"name": "a", "step": "1", "png": ""}',
        '{"name": "a", "step": true, "png": ""}',
        f'{{"name": "a", "step": {10**30}, "png": ""}}',
        '{"name": "a", "step": 1, "png": "<svg onload=alert(1)>"}',
        '{"name": "a", "step": 1, "png": "PHN2Zz4="}',
        '{"name": "a", "step": 1, "png": ["x"]}',
        '{"name": "a", "step": 1}',
        "[" * 100_000,
        "x" * 3_000_000,
    ],
)
def test_a_line_that_is_no_image_is_left_out(tmp_path: Path, line: str) -> None:
    runner_in(tmp_path, epochs=1).train()
    with open(tmp_path / "images.jsonl", "a") as file:
        file.write(line + "\n")
    (run,) = gather(tmp_path)["runs"]
    assert [(each["name"], len(each["items"])) for each in run["images"]] == [("train/step", 4), ("val/step", 1)]


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(image_file, "appending", refuse)
    runner = runner_in(tmp_path, epochs=2)
    runner.train()
    assert runner.iter == 8
    assert torch.load(tmp_path / "epoch_2.pth", weights_only=True)["writers"]["JsonlWriter"]["images"]["size"] == 0
