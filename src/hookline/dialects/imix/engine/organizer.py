"""Organizer: builds the parts of an engine from a config: model, losses, data, optimizer and hooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.dialects.imix.data import build_imix_test_loader, build_imix_train_loader
from hookline.dialects.imix.engine.hook_list import custom_hooks, default_hooks
from hookline.dialects.imix.engine.hooks.evaluate import EvaluateHook
from hookline.dialects.imix.engine.settings import Settings, read_settings
from hookline.dialects.imix.evaluation import inference_on_dataset
from hookline.dialects.imix.models import build_loss, build_model
from hookline.dialects.imix.models.losses.base_loss import Losser
from hookline.dialects.imix.solver import build_lr_scheduler, build_optimizer
from hookline.dialects.imix.utils.config import read
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


class Organizer:
    """The parts of an engine. What is not given is built from the config, by the names that it registers.

    A model is `cfg.model` from VQA_MODELS, the losses are `cfg.loss` from LOSSES, and the data is `cfg.train_data` from
    DATASETS. If the data is built here and the config has `test_data`, an EvaluateHook evaluates it during training.

    Args:
        cfg: The config; see `imixEngine`.
        model: The model.
        data_loader: The batches.
        optimizer: The optimizer, or a dict in the form of `cfg.optimizer`.
        loss_fn: The losses of the model's output.
    """

    def __init__(
        self,
        cfg: Any,
        model: nn.Module | None = None,
        data_loader: Any = None,
        optimizer: Any = None,
        loss_fn: Any = None,
    ) -> None:
        self.settings: Settings = read_settings(cfg)
        self.cfg = self.settings.cfg
        self.model = self.build_model(self.cfg) if model is None else model
        if loss_fn is None and read(self.cfg, "loss") is not None:
            loss_fn = Losser(self.cfg.loss)
        self.losses_fn = loss_fn
        evaluates = data_loader is None and read(self.cfg, "test_data") is not None
        self.train_data_loader = self.build_train_loader(self.cfg) if data_loader is None else data_loader
        if not hasattr(optimizer, "param_groups"):
            optimizer = build_optimizer(self.settings.optimizer if optimizer is None else optimizer, self.model)
        self.optimizer = optimizer
        self.by_epoch = self.settings.by_epoch
        self.max_epoch = self.settings.total_epochs
        self.max_iter = self.settings.count_iters(self.train_data_loader)
        self.start_epoch = self.start_iter = 0
        #: The hooks, each with its level from the config, or None for the level of the hook.
        self.leveled = self._hooks(evaluates)

    @property
    def hooks(self) -> list[Any]:
        """Return the hooks that the engine registers: the default hooks, then `custom_hooks`."""
        return [hook for hook, _ in self.leveled]

    # -- the parts, each from the config

    @classmethod
    def build_model(cls, cfg: Any) -> Any:
        """Build the model from `cfg.model`, on the device of the config."""
        return build_model(cfg)

    @classmethod
    def build_loss(cls, cfg: Any) -> Any:
        """Build the losses from `cfg.loss`: one, or a list."""
        return build_loss(cfg.loss)

    @classmethod
    def build_optimizer(cls, cfg: Any, model: nn.Module) -> Any:
        """Build the optimizer from `cfg.optimizer`."""
        return build_optimizer(cfg.optimizer, model)

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: Any) -> Any:
        """Build the scheduler from `cfg.lr_config`."""
        return build_lr_scheduler(cfg.lr_config, optimizer)

    @classmethod
    def build_train_loader(cls, cfg: Any) -> Any:
        """Build the loader of the training data from `cfg.train_data`."""
        return build_imix_train_loader(cfg)

    @classmethod
    def build_test_loader(cls, cfg: Any, dataset_name: str = "") -> Any:
        """Build the loader of the test data from `cfg.test_data`."""
        return build_imix_test_loader(cfg, dataset_name)

    @classmethod
    def test(cls, cfg: Any, model: Any) -> dict[str, Any]:
        """Evaluate a model on `cfg.test_data` with `cfg.post_processor`, for each of `cfg.test_datasets`.

        Return the results; if there are several data sets, by their names.
        """
        names = list(read(cfg, "test_datasets") or [""])
        found = {name: inference_on_dataset(cfg, model, cls.build_test_loader(cfg, name)) for name in names}
        return found if len(found) > 1 else found[names[0]]

    # -- hooks

    def _hooks(self, evaluates: bool) -> list[tuple[Any, Any]]:
        customs = custom_hooks(self.settings)
        hooks = default_hooks(self.settings, self.optimizer, [hook for hook, _ in customs])
        if evaluates and not any(isinstance(hook, EvaluateHook) for hook, _ in customs):
            hooks.append(self._evaluate_hook())
        return [*((hook, None) for hook in hooks), *customs]

    def _evaluate_hook(self) -> EvaluateHook:
        def evaluate(model: Any) -> Any:
            return self.test(self.cfg, model)

        enabled = read(self.cfg.test_data, "is_run_eval", True)
        if enabled and not isinstance(read(self.cfg, "post_processor"), Mapping):
            raise ConfigError(
                "the config has test_data but no post_processor, which evaluates it; add one: post_processor=dict("
                "type='Evaluator', metrics=[...], dataset_converters=[...]), or test_data=dict(..., is_run_eval=False)"
            )
        return EvaluateHook(evaluate, read(self.cfg, "eval_iter_period"), bool(enabled))
