"""A photograph as a thousand Gaussians: python examples/splatting/train.py, with --resume to continue."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import densify  # noqa: F401  # registers hooks that the config uses
import numpy as np
import pictures  # noqa: F401  # registers one more
import torch
from model import Splats
from PIL import Image
from renderer import Renderer

from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.optimizer import BaseOptimizer
from hookline.dialects.pointrix.utils.config import load_config

HERE = Path(__file__).parent


class OnePhotograph:
    """The data: the same photograph for every step and every validation."""

    def __init__(self, path: Path) -> None:
        pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB")))
        self.batch = {"image": pixels.permute(2, 0, 1) / 255, "name": path.stem}
        self.validation_dataset = [path]

    def next_train(self, step: int) -> dict[str, Any]:
        """Return the batch of a training step."""
        return self.batch

    def next_val(self, index: int) -> dict[str, Any]:
        """Return the batch of a validation."""
        return self.batch


class SplatTrainer(DefaultTrainer):
    """A trainer with custom parts and a custom point, `refine_points`, where hooks remove and add Gaussians."""

    @dataclass
    class Config(DefaultTrainer.Config):
        """The additional settings of this trainer."""

        first_points: int = 250
        points: int = 1000
        refine_interval: int = 50
        refine_until: float = 0.6

    def __init__(self, cfg: Any, exp_dir: str | Path) -> None:
        super().__init__(cfg, exp_dir)
        self.datapipeline = OnePhotograph(HERE / "astronaut_128.png")
        photograph = self.datapipeline.batch["image"]
        self.model = Splats(photograph, min(self.cfg.first_points, self.cfg.points))
        self.renderer = Renderer(*photograph.shape[1:])
        groups = [{"params": [parameter], "name": name} for name, parameter in self.model.named_parameters()]
        self.optimizer = BaseOptimizer(None, torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-15))

    def train_iter(self, iteration: int) -> None:
        """Run a step, and call the custom point at every `refine_interval`."""
        super().train_iter(iteration)
        call, rest = divmod(iteration, self.cfg.refine_interval)
        calls = int(self.cfg.refine_until * self.cfg.max_steps) // self.cfg.refine_interval
        if rest == 0 and call <= calls:
            batch = self.datapipeline.next_train(iteration)
            with torch.no_grad():
                rendered = self.render(batch)["rgb"]
            arguments = {"rendered": rendered, "photograph": batch["image"], "calls_left": calls - call + 1}
            self.call_hook("refine_points", **arguments)

    @torch.no_grad()
    def psnr(self) -> float:
        """Return the PSNR of the current picture."""
        batch = self.datapipeline.next_val(0)
        return float(self.model.get_metric_dict(self.render(batch), batch)["psnr"])


def positive(text: str) -> int:
    """Parse a positive number from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main() -> None:
    """Train with the options of the command line, and print the PSNR of the picture."""
    parser = argparse.ArgumentParser(description="Fit 2D Gaussians to a photograph.")
    parser.add_argument("--steps", type=positive, help="number of training steps")
    parser.add_argument("--points", type=positive, help="maximum number of Gaussians")
    parser.add_argument("--out", help="folder of the run (default: runs/splatting)")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint in the folder")
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="override any value of config.yaml: trainer.seed=1"
    )
    given = parser.parse_intermixed_args()
    options = {"max_steps": given.steps, "points": given.points, "resume": given.resume or None}
    changes = [f"trainer.{name}={value}" for name, value in options.items() if value is not None]
    where = {} if given.out is None else {"exp_dir": given.out}
    cfg = load_config(HERE / "config.yaml", cli_args=[*given.changes, *changes], **where)

    # A second thread saves little time and mostly waits on a busy machine. Also, the results of sums depend on the
    # number of threads.
    torch.set_num_threads(1)
    # Until a larger block was freed once, the C library requests blocks of megabytes from the system in every step.
    torch.empty(31, 2**20, dtype=torch.uint8)

    trainer = SplatTrainer(cfg.trainer, cfg.exp_dir)
    trainer.train_loop()
    print(f"PSNR {trainer.psnr():.2f} dB")


if __name__ == "__main__":
    main()
