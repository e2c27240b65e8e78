"""imixCheckpointer: reads the weights of a checkpoint into a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import store
from hookline.checkpoint.compatibility import refuse_lacking
from hookline.errors import StorageError

if TYPE_CHECKING:
    from torch import nn


class imixCheckpointer:  # noqa: N801  # the name in iMIX
    """Reads the weights of checkpoints, of iMIX or of hookline, without running any code in them.

    CheckPointHook writes checkpoints, and an engine resumes from them (`cfg.resume_from`).

    Args:
        model: The model.
        save_dir: The folder of checkpoints, for a CheckPointHook.
        more: Ignored; the engine saves its optimizer and scheduler.
    """

    def __init__(self, model: nn.Module, save_dir: str = "", **more: Any) -> None:
        self.model = model
        self.save_dir = save_dir

    def resume_or_load(self, path: str | Path, resume: bool = False) -> dict[str, Any]:
        """Load the weights of a checkpoint that has all weights of the model, and return the rest of it."""
        if resume:
            raise StorageError(f"{path}: an engine resumes a run, not a checkpointer; set resume_from in the config")
        checkpoint = store.read(Path(path), sealed=False)
        key = "model" if "model" in checkpoint else "state_dict"
        state = checkpoint.pop(key, None)
        if not isinstance(state, dict):
            raise StorageError(f"{path} has no weights: it has neither a model nor a state_dict")
        state = {str(name).removeprefix("module."): value for name, value in state.items()}
        refuse_lacking(self.model, state, str(path))
        self.model.load_state_dict(state, strict=False)
        return checkpoint

    load_checkpoint = resume_or_load
