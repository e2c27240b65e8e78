"""imixEngine: training that is described by a config."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.forwarding import forwarded
from hookline.dialects.imix.engine.base_engine import CommonEngine, EngineBase
from hookline.dialects.imix.engine.organizer import Organizer
from hookline.dialects.imix.engine.settings import choose_prefix
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["CommonEngine", "EngineBase", "imixEngine"]


class imixEngine(CommonEngine):  # noqa: N801  # the name in iMIX
    """An engine that trains a model as a config describes. `engine.train()` starts it.

    The config is a dict, or any object with attributes. The engine reads these keys: `total_epochs`, or `by_iter=True`
    and `max_iter`; `work_dir`; `optimizer_config` (`grad_clip`), `gradient_accumulation_steps`, `is_lr_accumulation`,
    `fp16`; `lr_config`; `log_config` (`period`, `hooks`); `checkpoint_config` (`iter_period`, `epoch_period`,
    `max_num_checkpoints`, `prefix`); `custom_hooks`; `seed`, `model_device`, `load_from`, `resume_from`. The engine
    does not change the config.

    Args:
        cfg: The config.
        model: Any module.
        data_loader: Yields the batches.
        optimizer: A torch optimizer, or a dict in the form of `cfg.optimizer`. The default is `cfg.optimizer`.
        loss_fn: Computes the losses: `loss_fn(output)`, `loss_fn(output, target)` or `loss_fn(model, batch)`. Without
            it, the model returns the losses.
        batch_processor: A function that takes the batch and returns the losses. It replaces the model call and
            `loss_fn`.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any] | Any,
        model: nn.Module | None = None,
        data_loader: Iterable[Any] | None = None,
        optimizer: Any = None,
        loss_fn: Callable[..., Any] | None = None,
        batch_processor: Callable[[Any], Any] | None = None,
    ) -> None:
        if model is None or data_loader is None:
            raise ConfigError(
                "imixEngine needs a model and data_loader: iMIX's own models and data sets are not included. Build "
                "yours, and pass them: imixEngine(cfg, model=..., data_loader=...)"
            )
        self.organizer = parts = Organizer(cfg, model, data_loader, optimizer)
        settings = parts.settings
        super().__init__(model, data_loader, parts.optimizer, loss_fn, batch_processor, settings.work_dir)
        self.cfg = settings.cfg
        self.by_epoch, self.max_epoch = settings.by_epoch, settings.total_epochs
        self._limit = settings.limit
        self.gradient_accumulation_steps = settings.gradient_accumulation_steps
        self.is_lr_accumulation = settings.is_lr_accumulation
        self.imixed_precision = settings.fp16 not in (None, False)
        self.log_period = settings.log_period
        self.seed, self.device = settings.seed, settings.device
        self.load_from, self.resume_from = settings.load_from, settings.resume_from
        self.experiment_name, self.quiet = settings.experiment_name, settings.quiet
        self.recorded_config = settings.recorded
        self.max_iter = parts.max_iter
        self._prefix = choose_prefix(settings, model)
        for hook, level in parts.leveled:
            self._register(hook, level)

    prefix: str = forwarded("_prefix", "Return the prefix of checkpoint names.")

    def run_by_epoch(self) -> None:
        """Train by epochs, until the end."""
        self.train_by_epoch(0, self._limit)

    def run_by_iter(self) -> None:
        """Train by iterations, until the end."""
        self.train_by_iter(0, self._limit)

    def train(self) -> nn.Module:
        """Train until the end and return the trained model."""
        if self.by_epoch:
            self.run_by_epoch()
        else:
            self.run_by_iter()
        trained: nn.Module = self.model
        return trained
