"""A photograph as a thousand Gaussians: python examples/splatting/train.py, and with --resume after any kind of end."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hooks  # noqa: F401  # registers what the config names
import numpy as np
import torch
from model import Splats
from optimizer import Decay, PointAdam
from PIL import Image
from renderer import Renderer

from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.utils.config import load_config

HERE = Path(__file__).parent
PHOTOGRAPH = HERE / "astronaut_128.png"


class OnePhotograph:
    """The data: the same photograph, in every step and every validation."""

    def __init__(self, path: Path) -> None:
        pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB")))
        self.batch = {"image": pixels.permute(2, 0, 1) / 255, "name": path.stem}
        self.validation_dataset = [path]

    def next_train(self, step: int) -> dict[str, Any]:
        """What the step sees."""
        return self.batch

    def next_val(self, index: int) -> dict[str, Any]:
        """What a validation sees."""
        return self.batch


class SplatTrainer(DefaultTrainer):
    """The trainer, with parts of its own and one more point: `refine_points`, where hooks remove and add points."""

    @dataclass
    class Config(DefaultTrainer.Config):
        """What the config says besides."""

        first_points: int = 250
        points: int = 1000
        refine_interval: int = 50
        refine_until: float = 0.6
        learning_rates: dict = field(default_factory=dict)  # type: ignore[type-arg]  # OmegaConf reads these types
        final_rate: float = 0.05

    def __init__(self, cfg: Any, exp_dir: str | Path) -> None:
        super().__init__(cfg, exp_dir)
        self.datapipeline = OnePhotograph(PHOTOGRAPH)
        photograph = self.datapipeline.batch["image"]
        self.model = Splats(photograph, min(self.cfg.first_points, self.cfg.points))
        self.renderer = Renderer(*photograph.shape[1:])
        self.optimizer = PointAdam(self.model.point_cloud, dict(self.cfg.learning_rates))
        self.schedulers = Decay(self.cfg.max_steps, self.cfg.final_rate)

    def train_iter(self, iteration: int) -> None:
        """A step, and every so often the point of our own."""
        super().train_iter(iteration)
        every, until = self.cfg.refine_interval, math.floor(self.cfg.refine_until * self.cfg.max_steps)
        if iteration % every == 0 and iteration <= until:
            batch = self.datapipeline.next_train(iteration)
            with torch.no_grad():
                rendered = self.render(batch)["rgb"]
            calls_left = until // every - iteration // every + 1
            self.call_hook("refine_points", rendered=rendered, photograph=batch["image"], calls_left=calls_left)

    @torch.no_grad()
    def psnr(self) -> float:
        """How near the picture is to the photograph now."""
        batch = self.datapipeline.next_val(0)
        return float(self.model.get_metric_dict(self.render(batch), batch)["psnr"])


def main() -> None:
    """Train as the command line says, and print how good the picture is."""
    parser = argparse.ArgumentParser(description="Fit 2D Gaussians to a photograph.")
    parser.add_argument("--steps", type=int, help="how long to train (1000)")
    parser.add_argument("--points", type=int, help="how many Gaussians there may be (1000)")
    parser.add_argument("--out", help="the folder of the run (runs/splatting)")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the folder")
    parser.add_argument("changes", nargs="*", metavar="key=value", help="any value of config.yaml, as trainer.seed=1")
    given = parser.parse_args()
    values = {"trainer.max_steps": given.steps, "trainer.points": given.points, "exp_dir": given.out}
    changes = [f"{key}={value}" for key, value in values.items() if value is not None]
    cfg = load_config(HERE / "config.yaml", cli_args=[*given.changes, *changes, f"trainer.resume={given.resume}"])

    # These tensors are small: a second thread waits more than it helps. With one, all machines add in the same order.
    torch.set_num_threads(1)
    trainer = SplatTrainer(cfg.trainer, cfg.exp_dir)
    trainer.train_loop()
    print(f"PSNR {trainer.psnr():.2f} dB")


if __name__ == "__main__":
    main()
