"""SaveCheckpoint and SaveModel: save the state of a run, or only the weights, at an interval of epochs or steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline.folder_writer import (
    FolderRequest,
    Target,
    checkpoint_target,
    model_target,
    write_folder,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks import frequency
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks, PipelineHooksConfig

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

__all__ = ["SaveCheckpoint", "SaveCheckpointConfig", "SaveModel", "SaveModelConfig"]

logger = logger_of(__name__)

SaveT = TypeVar("SaveT", bound=PipelineHooks)


class SaveHookConfig(PipelineHooksConfig[SaveT]):
    """The settings that SaveCheckpoint and SaveModel share."""

    save_root: str | None = None
    save_epoch_freq: int | None = 1
    save_step_freq: int | None = None
    save_when_loop_end: bool = True
    save_model: bool = True

    def __post_init__(self) -> None:
        """Refuse a config that never saves, and invalid frequencies."""
        frequency.check_frequencies(self, "save_epoch_freq", "save_step_freq")


class SavingHook(ConfiguredHooks["SaveHookConfig[Any]"]):
    """Requests a save at the end of steps, epochs and the loop. After a failure, it requests none.

    In a trainer, the save is written at the end of the step, the epoch or the loop, after all hooks. Without a trainer,
    it is written at once.
    """

    _warned = False

    def __init__(self, cfg: SaveHookConfig[SavingHook]) -> None:
        super().__init__(cfg)
        self.save_root = cfg.save_root
        self.save_epoch_freq, self.save_step_freq = cfg.save_epoch_freq, cfg.save_step_freq
        if cfg.save_when_loop_end:
            self.at("on_loop", after=self._on_loop_end)
        if cfg.save_epoch_freq is not None:
            self.at("on_epoch", after=self._on_epoch_end)
        if cfg.save_step_freq is not None:
            self.at("on_step", after=self._on_step_end)

    #: Finds the destination of the saves for an Accelerator and a `save_root`.
    find_target: Callable[[Accelerator, str | None], Target]

    def target(self, accelerator: Accelerator) -> Target:
        """Return the destination of this hook's saves."""
        self._warn_of_root(accelerator)
        return self.find_target(accelerator, self.cfg.save_root)

    def save(self, args: PipelineHookArgs, when: str) -> None:
        """Request a save, or write it at once without a trainer."""
        request = FolderRequest(target=self.target(args.accelerator), when=when, **self._describe_save(args))
        if args._trainer is not None:
            args._trainer.saving.request(request)
        else:
            write_folder(args.accelerator, request, {}, args.global_step_id + 1)

    def _describe_save(self, args: PipelineHookArgs) -> dict[str, Any]:
        """Return the fields of a request that say what is saved."""
        raise NotImplementedError

    def _warn_of_root(self, accelerator: Accelerator) -> None:
        """Warn once if `save_root` has no effect."""
        automatic = accelerator.project_configuration.automatic_checkpoint_naming
        if automatic and self.save_root is not None and not self._warned and accelerator.is_main_process:
            self._warned = True
            logger.warning(
                "%s: save_root=%r is ignored, because the Accelerator has automatic_checkpoint_naming: saves are in "
                "its project_dir, %s",
                type(self).__name__,
                self.save_root,
                accelerator.project_dir,
            )

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        if frequency.due_after_step(args, self.cfg.save_step_freq):
            self.save(args, f"step {args.global_step_id}")

    def _on_epoch_end(self, args: PipelineHookArgs) -> None:
        if frequency.due_after_epoch(args, self.cfg.save_epoch_freq):
            self.save(args, f"epoch {args.epoch_id}")

    def _on_loop_end(self, args: PipelineHookArgs) -> None:
        if args.exception is None:
            self.save(args, "training")


class SaveCheckpoint(SavingHook):
    """Saves the complete state of a run, so that it can be resumed exactly.

    Checkpoints are `checkpoints/checkpoint_<n>` in accelerate's project; the oldest are removed if there are more than
    its `total_limit`. Without automatic names, they are `checkpoint_<n>` in `save_root`, which also has links to the
    files of the newest one. With `save_model`, each one also contains the weights as a model that can be loaded
    separately.
    """

    find_target = staticmethod(checkpoint_target)

    def _describe_save(self, args: PipelineHookArgs) -> dict[str, Any]:
        return {"with_model": self.cfg.save_model}


class SaveModel(SavingHook):
    """Saves only the weights: `model_epoch_<e>_step_<s>/<i>` in `saved_models/` of the project, or in `save_root`."""

    find_target = staticmethod(model_target)

    def _describe_save(self, args: PipelineHookArgs) -> dict[str, Any]:
        return {"label": f"model_epoch_{args.epoch_id}_step_{args.step_id}"}


class SaveCheckpointConfig(SaveHookConfig[SaveCheckpoint]):
    """The config of SaveCheckpoint."""

    class_type: type[SaveCheckpoint] = SaveCheckpoint


class SaveModelConfig(SaveHookConfig[SaveModel]):
    """The config of SaveModel."""

    class_type: type[SaveModel] = SaveModel
