"""Pictures of the progress that you can view without a log viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook
from hookline.images import as_grid, as_png


@HOOK_REGISTRY.register()
class PictureHook(Hook):
    """Saves the photograph and its rendering side by side after every validation: `progress/00050.png`.

    Args:
        zoom: The enlargement: every pixel becomes `zoom` x `zoom` pixels.
    """

    def __init__(self, zoom: int = 3) -> None:
        self.zoom = zoom

    def before_train(self, trainer: Any) -> None:
        """Remove pictures of later steps: they come from an earlier run."""
        for path in self._folder(trainer).glob("[0-9]*.png"):
            if int(path.stem) >= trainer.start_steps:
                path.unlink()

    def after_val_iter(self, trainer: Any) -> None:
        """Save a picture of this validation."""
        pair = [trainer.metric_dict[name] for name in ("gt_images", "images")]
        large = [image.repeat_interleave(self.zoom, 1).repeat_interleave(self.zoom, 2) for image in pair]
        folder = self._folder(trainer)
        folder.mkdir(exist_ok=True)
        (folder / f"{trainer.iter:05d}.png").write_bytes(as_png(as_grid(large, columns=2)))

    def _folder(self, trainer: Any) -> Path:
        return Path(trainer.exp_dir) / "progress"
