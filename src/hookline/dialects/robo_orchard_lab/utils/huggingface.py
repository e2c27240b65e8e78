"""`robo_orchard_lab.utils.huggingface`: checkpoints of accelerate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.dialects.errors import SettingValueError
from hookline.dialects.robo_orchard_lab.pipeline import contents, folders

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

__all__ = ["accelerator_load_state", "get_accelerate_project_last_checkpoint_id"]


def get_accelerate_project_last_checkpoint_id(project_dir: str | Path) -> int:
    """Return the number of the newest checkpoint in a project; -1 if it has none."""
    found = folders.checkpoints(Path(project_dir) / "checkpoints")
    return folders.number_of(found[-1]) if found else -1


def accelerator_load_state(accelerator: Accelerator, input_dir: str | Path, **unused: Any) -> None:
    """Load accelerate's part of a checkpoint, without running any code in its files. It must be on this machine."""
    if "://" in str(input_dir):
        raise SettingValueError(f"input_dir must be a folder, not {str(input_dir)!r}; copy it to this machine first")
    if not Path(input_dir).is_dir():
        raise SettingValueError(f"the checkpoint {input_dir} does not exist")
    contents.load_accelerator(accelerator, Path(input_dir))
