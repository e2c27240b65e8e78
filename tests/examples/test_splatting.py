"""The splatting example: the files of a run, bit-exact resume, the renderer and the hooks."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hookline.dialects.pointrix.utils.config import load_config
from tests.examples.splatting import FOLDER, example

# Points change after steps 10 and 20; checkpoints and validations happen after 8, 16, 24 and 30.
SHORT = [
    *("--steps", "30", "--points", "60"),
    *("trainer.first_points=30", "trainer.refine_interval=10", "trainer.refine_until=0.7"),
    *("trainer.val_interval=8", "trainer.hooks.save.save_step=8"),
]


@pytest.fixture
def modules() -> Iterator[SimpleNamespace]:
    with example() as found:
        yield found


def train(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return _run(folder, [str(FOLDER / "train.py")], [*SHORT, *options])


def killed(folder: Path, point: str, step: int) -> subprocess.CompletedProcess[str]:
    return _run(folder, ["-m", "tests.examples.splatting", point, str(step)], SHORT)


def _run(folder: Path, words: list[str], options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words, "--out", str(folder), *options]
    return subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Run:
    folder: Path
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        return self.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run from its beginning to its end."""
    folder = tmp_path_factory.mktemp("splatting") / "whole"
    done = train(folder)
    assert done.returncode == 0, done.stderr
    return Run(folder, done.stdout, done.stderr)


def left_in(folder: Path) -> list[str]:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(re.sub(r"events\.out\..*", "events", name) for name in names)


def saved(folder: Path, step: int) -> dict[str, Any]:
    return torch.load(folder / f"chkpnt{step:05d}.pth", weights_only=True)  # type: ignore[no-any-return]  # a dict


def points_in(checkpoint: dict[str, Any]) -> dict[str, int]:
    return {name: len(rows) for name, rows in checkpoint["state_dict"].items()}


def same(one: Any, other: Any) -> bool:
    """Return whether two nested values are equal to the bit and have the same types and shapes."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


# -- runs


def test_a_run_ends_with_its_psnr_and_writes_pictures_records_and_checkpoints(whole: Run) -> None:
    assert whole.stderr == ""
    assert re.fullmatch(r"PSNR [0-9]+\.[0-9]{2} dB", whole.last_line)
    assert whole.stdout.endswith(f"\n{whole.last_line}\n")
    assert left_in(whole.folder) == [
        "chkpnt00024.pth",
        "chkpnt00030.pth",
        "config.yaml",
        "events.jsonl",
        "hooks.json",
        "last_checkpoint",
        "plan.txt",
        "progress/00008.png",
        "progress/00016.png",
        "progress/00024.png",
        "progress/00030.png",
        "report.html",
        "run.log",
        "tensorboard/events",
    ]


def recorded(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = EventAccumulator(str(folder / "tensorboard"), {"images": 0, "scalars": 0})
    records.Reload()
    return records


def points_recorded(folder: Path) -> list[tuple[int, float]]:
    return [(number.step, number.value) for number in recorded(folder).Scalars("num_pt")]


def test_the_pictures_and_the_number_of_points_go_to_the_writer(whole: Run) -> None:
    images = recorded(whole.folder).Images("test_view_astronaut_128/render")
    assert [image.step for image in images] == [8, 16, 24, 30]
    assert points_recorded(whole.folder) == list(enumerate([30] * 10 + [45] * 10 + [60] * 10, start=1))


def test_the_picture_becomes_good(tmp_path: Path) -> None:
    more = ("trainer.first_points=300", "trainer.refine_interval=15", "trainer.val_interval=50")
    done = train(tmp_path / "run", "--steps", "150", "--points", "800", *more)
    assert float(done.stdout.splitlines()[-1].split()[1]) > 26


@pytest.mark.parametrize(("point", "step"), [("refine_points", 20), ("after_val_iter", 24)])
def test_a_killed_run_resumes_with_its_number_of_points_and_ends_in_the_same_bits(
    point: str, step: int, whole: Run, tmp_path: Path
) -> None:
    folder, last = tmp_path / "run", 24 if point == "after_val_iter" else 16
    assert killed(folder, point, step).returncode == -9
    names = [f"point_cloud.{name}" for name in ("position", "scaling", "rotation", "color", "opacity")]
    assert points_in(saved(folder, last)) == dict.fromkeys(names, 60 if last == 24 else 45)

    resumed = train(folder, "--resume")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert f"resumed from {folder}/chkpnt{last:05d}.pth: step {last}\n" in resumed.stdout
    assert resumed.stdout.splitlines()[-1] == whole.last_line
    ours, theirs = saved(whole.folder, 30), saved(folder, 30)
    assert points_in(ours) == dict.fromkeys(names, 60)
    for part in ("state_dict", "optimizer", "rng", "position"):
        assert same(ours[part], theirs[part]), part
    assert points_recorded(folder) == points_recorded(whole.folder)
    assert left_in(folder / "progress") == left_in(whole.folder / "progress")
    for picture in (whole.folder / "progress").iterdir():
        assert picture.read_bytes() == (folder / "progress" / picture.name).read_bytes()


def test_resuming_a_finished_run_prints_the_same_and_a_fresh_run_removes_its_pictures(tmp_path: Path) -> None:
    first, again = train(tmp_path / "run", "--steps", "12"), train(tmp_path / "run", "--steps", "12", "--resume")
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert left_in(tmp_path / "run/progress") == ["00008.png", "00012.png"]
    assert train(tmp_path / "run", "--steps", "9").returncode == 0
    assert left_in(tmp_path / "run/progress") == ["00008.png", "00009.png"]


def test_numbers_below_one_are_refused(tmp_path: Path) -> None:
    refused = train(tmp_path / "run", "--points", "0")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == "train.py: error: argument --points: 0 is less than 1"


# -- the renderer


def some_points(count: int) -> dict[str, Tensor]:
    torch.manual_seed(3)
    points = {
        "position": torch.rand(count, 2) * torch.tensor([21.0, 13.0]),
        "scale": torch.rand(count, 2) * 4 + 0.5,
        "rotation": torch.rand(count) * 7 - 2,
        "color": torch.rand(count, 3),
        "opacity": torch.rand(count) * 0.9 + 0.05,
    }
    return {name: values.double().requires_grad_() for name, values in points.items()}


def painted(points: dict[str, Tensor], height: int, width: int) -> Tensor:
    """Paint every Gaussian over the earlier ones in every pixel: the reference for the renderer."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    picture = torch.zeros(3, height, width, dtype=torch.double)
    for (px, py), (sx, sy), angle, color, opacity in zip(*points.values(), strict=True):
        along = (x - px) * angle.cos() + (y - py) * angle.sin()
        across = (y - py) * angle.cos() - (x - px) * angle.sin()
        alpha = opacity * (-((along / sx) ** 2 + (across / sy) ** 2) / 2).exp()
        picture = picture * (1 - alpha) + color[:, None, None] * alpha
    return picture


def test_the_renderer_paints_gaussians_over_each_other(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, weights = some_points(40), torch.rand(3, 13, 21)
    expected = painted(points, 13, 21)
    expected_grads = torch.autograd.grad((expected * weights).sum(), list(points.values()))
    single = {name: values.float().detach().requires_grad_() for name, values in points.items()}

    rendered = modules.renderer.Renderer(13, 21).render_batch(single, {})["rgb"]
    torch.testing.assert_close(rendered, expected.float(), atol=0.01, rtol=0)  # it leaves out what is invisible

    monkeypatch.setattr(modules.renderer, "INVISIBLE", 1e-7)
    rendered = modules.renderer.Renderer(13, 21).render_batch(single, {})["rgb"]
    torch.testing.assert_close(rendered, expected.float(), atol=2e-5, rtol=0)
    grads = torch.autograd.grad((rendered * weights).sum(), list(single.values()))
    wanted = {name: grad.float() for name, grad in zip(points, expected_grads, strict=True)}
    torch.testing.assert_close(dict(zip(single, grads, strict=True)), wanted, atol=1e-3, rtol=1e-3)


def test_a_picture_without_any_gaussian_in_it_is_black(modules: SimpleNamespace) -> None:
    points = {name: values.float() for name, values in some_points(2).items()}
    points["position"] = points["position"] + 1000
    rendered = modules.renderer.Renderer(16, 16).render_batch(points, {})["rgb"]
    assert torch.equal(rendered, torch.zeros(3, 16, 16))


def test_the_backward_pass_of_the_layers_is_their_derivative(modules: SimpleNamespace) -> None:
    torch.manual_seed(0)
    log_alpha = (torch.rand(2, 5, 4, dtype=torch.double) * -4 - 0.05).requires_grad_()
    color = torch.rand(2, 5, 3, dtype=torch.double).requires_grad_()
    assert torch.autograd.gradcheck(modules.renderer.Blend.apply, (log_alpha, color))


# -- removing and adding points


@pytest.fixture
def trainer(modules: SimpleNamespace, tmp_path: Path) -> Any:
    """A trainer with six points after one step, so that Adam has a state for each."""
    changes = ["trainer.max_steps=1", "trainer.points=6", "trainer.val_interval=0"]
    cfg = load_config(FOLDER / "config.yaml", cli_args=changes, exp_dir=str(tmp_path))
    trainer = modules.train.SplatTrainer(cfg.trainer, cfg.exp_dir)
    trainer.hooks = ()
    trainer.train_loop()
    return trainer


def rows_of(trainer: Any) -> dict[str, Tensor]:
    return {name: rows.detach().clone() for name, rows in trainer.model.point_cloud.named_parameters()}


def moments_of(trainer: Any) -> dict[str, Tensor]:
    adam = trainer.optimizer.optimizer
    return {group["name"]: adam.state[group["params"][0]]["exp_avg"].clone() for group in adam.param_groups}


def test_faint_and_huge_points_are_pruned_with_their_adam_state(modules: SimpleNamespace, trainer: Any) -> None:
    points = trainer.model.point_cloud
    with torch.no_grad():
        points.opacity.copy_(torch.tensor([0.1, 0.3, 0.19, 0.21, 0.9, 0.9]).logit())
        points.scaling.copy_(torch.tensor([[1.0, 1], [1, 31], [1, 1], [1, 1], [33, 1], [1, 33]]).log())
    rows, moments = rows_of(trainer), moments_of(trainer)
    trainer.register_hook(modules.densify.PruneHook(min_opacity=0.2, max_scale=32))
    trainer.call_hook("refine_points", rendered=None, photograph=None, calls_left=1)
    assert len(points) == 2
    assert same(rows_of(trainer), {name: values[[1, 3]] for name, values in rows.items()})
    assert same(moments_of(trainer), {name: values[[1, 3]] for name, values in moments.items()})
    assert [group["params"][0] for group in trainer.optimizer.param_groups] == list(points.parameters())


def test_points_grow_where_the_picture_is_wrong(modules: SimpleNamespace, trainer: Any) -> None:
    photograph = torch.full((3, 4, 5), 0.5)
    rendered = photograph.clone()
    wrong = [(1, 2), (3, 4), (0, 0)]
    for y, x in wrong:
        photograph[:, y, x] = torch.tensor([0.2, 0.4, 1.0])
    rows, moments = rows_of(trainer), moments_of(trainer)
    trainer.register_hook(modules.densify.GrowHook(max_points=12, scale=1.5))
    trainer.call_hook("refine_points", rendered=rendered, photograph=photograph, calls_left=2)
    now = rows_of(trainer)
    assert all(same(now[name][:6], rows[name]) for name in rows)
    assert sorted(now["position"][6:].tolist()) == sorted([x + 0.5, y + 0.5] for y, x in wrong)
    torch.testing.assert_close(now["color"][6:].sigmoid(), torch.tensor([[0.2, 0.4, 0.98]] * 3))
    torch.testing.assert_close(now["scaling"][6:], torch.full((3, 2), math.log(1.5)))
    assert same(now["opacity"][6:], torch.zeros(3))
    for name, values in moments_of(trainer).items():
        assert same(values, torch.cat([moments[name], torch.zeros_like(values[6:])]))


def test_points_do_not_grow_beyond_their_maximum(modules: SimpleNamespace, trainer: Any) -> None:
    rows = rows_of(trainer)
    trainer.register_hook(modules.densify.GrowHook(max_points=6))
    picture = torch.rand(3, 4, 4)
    trainer.call_hook("refine_points", rendered=picture, photograph=1 - picture, calls_left=1)
    assert same(rows_of(trainer), rows)
