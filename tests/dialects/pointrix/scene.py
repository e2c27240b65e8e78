"""A small scene: colored points that are blurred onto a 4 x 4 image, with every part that a trainer needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline.dialects.pointrix.engine.default_trainer import DefaultTrainer
from hookline.dialects.pointrix.hook import Hook
from hookline.dialects.pointrix.optimizer import BaseOptimizer

SIDE = 4


class Points(nn.Module):
    def __init__(self, number: int = 6) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.rand(number, 2))
        self.color = nn.Parameter(torch.rand(number, 3))

    def __len__(self) -> int:
        return len(self.position)


class Scene(nn.Module):
    """A model with the methods that a trainer calls."""

    def __init__(self, number: int = 6) -> None:
        super().__init__()
        self.point_cloud = Points(number)

    def forward(self, batch: Any) -> dict[str, Tensor]:
        return {"position": self.point_cloud.position, "color": self.point_cloud.color}

    def get_loss_dict(self, results: dict[str, Tensor], batch: Tensor) -> dict[str, Tensor]:
        loss = (results["rgb"] - batch).square().mean()
        return {"loss": loss, "L1_loss": (results["rgb"] - batch).abs().mean()}

    def get_optimizer_dict(self, losses: dict[str, Tensor], results: Any, white_bg: bool) -> dict[str, Any]:
        return {"loss": losses["loss"], "white_bg": white_bg}

    def get_metric_dict(self, results: dict[str, Tensor], batch: Tensor) -> dict[str, Any]:
        error = (results["rgb"] - batch).square().mean()
        images = {"images": results["rgb"].reshape(SIDE, SIDE, 3), "gt_images": batch.reshape(SIDE, SIDE, 3)}
        return {"psnr": -10 * error.log10(), "rgb_file_name": "views/front.png", **images}


class Blur:
    """The renderer."""

    def __init__(self) -> None:
        self.degrees: list[int] = []

    def update_sh_degree(self, step: int) -> None:
        self.degrees.append(step)

    def render_batch(self, points: dict[str, Tensor], batch: Any) -> dict[str, Tensor]:
        line = torch.linspace(0, 1, SIDE)
        pixels = torch.cartesian_prod(line, line)
        weights = torch.exp(-20 * (pixels[:, None] - points["position"]).square().sum(-1))
        return {"rgb": weights @ points["color"]}


class Views:
    """The data pipeline: images that depend only on the step."""

    def __init__(self, validation: int = 2) -> None:
        self.validation_dataset = list(range(validation))
        self.asked: list[int] = []

    def next_train(self, step: int) -> Tensor:
        self.asked.append(step)
        return torch.rand(SIDE * SIDE, 3, generator=torch.Generator().manual_seed(step))

    def next_val(self, index: int) -> Tensor:
        return torch.rand(SIDE * SIDE, 3, generator=torch.Generator().manual_seed(1000 + index))


class Fall:
    """The schedulers."""

    def step(self, global_step: int, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / global_step


class SceneTrainer(DefaultTrainer):
    """A trainer that sets its parts itself, as a user's subclass does."""

    points = 6

    def __init__(self, cfg: Any, exp_dir: str | Path, device: str | None = "cpu") -> None:
        super().__init__(cfg, exp_dir, device)
        self.datapipeline = Views()
        self.model = Scene(self.points)
        self.renderer = Blur()
        self.schedulers = Fall()
        points = self.model.point_cloud
        groups = [
            {"params": [points.position], "name": "point_cloud.position"},
            {"params": [points.color], "name": "point_cloud.color"},
        ]
        self.optimizer = BaseOptimizer(None, torch.optim.Adam(groups, lr=0.1))


class Densify(Hook):
    """Duplicates a random point every few steps, at a custom hook point."""

    def __init__(self, every: int = 2) -> None:
        self.every = every
        self.added: list[int] = []

    def after_train_iter(self, trainner: Any) -> None:
        if trainner.global_step % self.every == 0:
            trainner.call_hook("densify", step=trainner.global_step)

    def densify(self, trainner: Any, step: int) -> None:
        chosen = int(torch.randint(len(trainner.model.point_cloud), ()))
        optimizer = trainner.optimizer.optimizer
        for group in optimizer.param_groups:
            (parameter,) = group["params"]
            state = optimizer.state[parameter]
            parameter.data = torch.cat([parameter.data, parameter.data[chosen : chosen + 1] + 0.01])
            parameter.grad = None
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.cat([state[name], torch.zeros_like(state[name][:1])])
        self.added.append(step)

    def state_dict(self) -> dict[str, Any]:
        return {"added": self.added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.added = list(state["added"])


def config(**changes: Any) -> dict[str, Any]:
    """Return a config for a few steps, without hooks."""
    return {"max_steps": 5, "val_interval": 2, "seed": 0, **changes}
