"""Build the parts of a trainer from the sections of its config, and save and restore their states."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hookline.checkpoint import compatibility
from hookline.common.modes import in_mode
from hookline.dialects.errors import SettingKeyError
from hookline.dialects.pointrix.engine.default_datapipeline import BaseDataPipeline
from hookline.dialects.pointrix.logger import parse_writer
from hookline.dialects.pointrix.model import parse_model
from hookline.dialects.pointrix.optimizer import OptimizerList, parse_optimizer, parse_scheduler
from hookline.dialects.pointrix.renderer import parse_renderer
from hookline.engine.steps import describe
from hookline.errors import ConfigError, StorageError
from hookline.optim.refusals import explain_backward

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer

log = logging.getLogger("hookline")

#: Sections that are ignored. Training is the same without a viewer or an exporter.
LEFT_OUT = ("exporter", "gui")
NAMES = ("datapipeline", "model", "renderer", "writer", "schedulers", "optimizer")


# -- building


def build(trainer: BaseTrainer) -> None:
    """Build the parts that have a section in the config. The others are None, for a subclass to set."""
    cfg = trainer.cfg
    for name in NAMES:
        if not hasattr(trainer, name):  # a hook may have set one at `before_run`
            setattr(trainer, name, None)
    _refuse_left_out(cfg)
    device, seed = trainer.device, cfg.seed or 0
    if cfg.datapipeline:
        trainer.datapipeline = BaseDataPipeline(cfg.datapipeline, device, seed)
    data = trainer.datapipeline
    if cfg.model:
        trainer.model = parse_model(cfg.model, data, device)
        if isinstance(trainer.model, nn.Module):
            trainer.model.to(device)
    if cfg.renderer:
        trainer.renderer = parse_renderer(cfg.renderer, white_bg=getattr(data, "white_bg", False), device=device)
    if cfg.writer:
        trainer.writer = parse_writer(cfg.writer, trainer.exp_dir, experiment_name=trainer.name, logcfg=cfg)
    if cfg.training:
        extent = getattr(getattr(data, "training_dataset", None), "radius", 1.0)
        if cfg.scheduler:
            trainer.schedulers = parse_scheduler(cfg.scheduler, extent if cfg.spatial_lr_scale else 1.0)
        if cfg.optimizer:
            _refuse_without_model(trainer)
            trainer.optimizer = parse_optimizer(cfg.optimizer, trainer.model, data, cameras_extent=extent)


def _refuse_left_out(cfg: Any) -> None:
    """Warn about sections that are not supported. Refuse those without which training would be different."""
    for section in LEFT_OUT:
        if cfg[section]:
            log.warning("the section '%s' of the trainer's config is ignored: it is not supported here", section)
    if cfg.controller:
        raise ConfigError(
            "controllers are not supported: leave the section 'controller' empty, and add and remove points in a hook, "
            "at a custom point or at after_train_iter"
        )


def _refuse_without_model(trainer: BaseTrainer) -> None:
    if trainer.model is None:
        raise ConfigError(
            "the config has a section 'optimizer' but no section 'model'; if you set the model after "
            "super().__init__, set the optimizer there, too: parse_optimizer(cfg, model) of pointrix.optimizer"
        )


def refuse_missing(trainer: BaseTrainer) -> None:
    """Refuse to train without the parts that the loop needs."""
    for name in ("datapipeline", "model", "optimizer"):
        if getattr(trainer, name) is None:
            raise ConfigError(
                f"trainer.{name} is not set, and training needs it: add a section '{name}' to the config, or set "
                f"trainer.{name} after super().__init__"
            )
    _refuse_unfit_optimizer(trainer.optimizer)
    if not hasattr(trainer, "white_bg"):
        trainer.white_bg = getattr(trainer.datapipeline, "white_bg", False)


def _refuse_unfit_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer, or one of several, that cannot train a model or cannot be saved."""
    who = type(optimizer).__name__
    if not hasattr(optimizer, "update_model"):
        raise ConfigError(
            f"the optimizer ({who}) has no update_model; wrap it: BaseOptimizer(None, optimizer) of pointrix.optimizer"
        )
    missing = [name for name in ("state_dict", "load_state_dict") if not hasattr(optimizer, name)]
    if missing:
        raise ConfigError(
            f"the optimizer ({who}) has no {' and no '.join(missing)}, which checkpoints need; write "
            "state_dict(self), which returns its state, and load_state_dict(self, state), which restores it, or "
            "inherit from BaseOptimizer of pointrix.optimizer, which has both"
        )
    if isinstance(optimizer, OptimizerList):
        for each in optimizer.optimizer_dict.values():
            _refuse_unfit_optimizer(each)


def backward(model: Any, losses: Any) -> None:
    """Compute the gradients of the losses that `get_loss_dict` returned."""
    loss = losses.get("loss") if isinstance(losses, Mapping) else None
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise SettingKeyError(
            f"{type(model).__name__}.get_loss_dict returned {_describe_losses(losses)}; it must return a mapping with "
            "the sum of all losses as 'loss', a tensor with one element, because train_step calls its backward()"
        )
    try:
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
    except RuntimeError as error:
        explain_backward(error, loss)
        raise


def _describe_losses(losses: Any) -> str:
    if not isinstance(losses, Mapping):
        return describe(losses)
    if "loss" not in losses:
        return f"{', '.join(repr(name) for name in losses) or 'an empty mapping'}, and no 'loss'"
    return f"{describe(losses['loss'])} as 'loss'"


def evaluating(model: Any) -> AbstractContextManager[Any]:
    """Put a model in evaluation mode, without gradients, for the duration of a `with` block."""
    return in_mode(model, training=False) if isinstance(model, nn.Module) else torch.no_grad()


# -- states


def takes(function: Any, name: str) -> bool:
    """Return whether a function takes a keyword. Newer models take the step and the mode, which older ones do not."""
    names = _names_of_keywords(getattr(function, "__func__", function))
    return names is None or name in names


@cache
def _names_of_keywords(function: Any) -> frozenset[str] | None:
    """Return the names of a function's parameters, except the first; None if it takes any keyword."""
    parameters = list(signature(function).parameters.values())
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return None
    return frozenset(each.name for each in parameters[1:])


def get_state(part: Any) -> Any:
    """Return the state of a part; an empty dict if it has none."""
    for name in ("get_state_dict", "state_dict"):
        if hasattr(part, name):
            return getattr(part, name)()
    return {}


def with_native_keys(checkpoint: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return a checkpoint of Pointrix with the weights of the model as `state_dict`; any other checkpoint as it is.

    Pointrix's trainer saves the `model`, with numbers such as `num_pts` that only a model with its own
    `load_state_dict` knows. Its CheckPointHook saves the `point_cloud` alone; the rest of the model then
    stays as it is.
    """
    if "state_dict" in checkpoint:
        return checkpoint
    if isinstance(saved := checkpoint.get("model"), Mapping):
        known = has_own_loading(model)
        return checkpoint | {"state_dict": {k: v for k, v in saved.items() if known or isinstance(v, Tensor)}}
    if isinstance(points := checkpoint.get("point_cloud"), Mapping):
        rest = {name: value for name, value in get_state(model).items() if not name.startswith("point_cloud.")}
        return checkpoint | {"state_dict": rest | {f"point_cloud.{name}": value for name, value in points.items()}}
    return checkpoint


def may_lose_state(datapipeline: Any) -> bool:
    """Return whether a pipeline saves no state and is not known to return the same batch for the same step."""
    known = getattr(type(datapipeline), "next_train", None) is BaseDataPipeline.next_train
    return not known and not any(hasattr(datapipeline, name) for name in ("get_state_dict", "state_dict"))


def restore_state(part: Any, state: Any, name: str) -> None:
    """Restore the state of a part."""
    if not hasattr(part, "load_state_dict"):
        raise StorageError(f"the checkpoint has a state for the {name}, which has no load_state_dict to restore it")
    part.load_state_dict(state)


def load_model(trainer: BaseTrainer, state: Mapping[str, Any]) -> None:
    """Load the state of the model. Refuse a model that creates new parameters, which the optimizer does not have."""
    model, optimizer = trainer.model, trainer.optimizer
    foreign = _foreign_parameters(model, optimizer)
    model.load_state_dict(dict(state))
    if _foreign_parameters(model, optimizer) != foreign:
        raise StorageError(
            f"{trainer.loading.source}: the model created new parameters in load_state_dict, and the optimizer still "
            "has the old ones; grow the model in grow_model or at after_load_checkpoint, and pass the new parameters "
            "to the optimizer there"
        )


def has_own_loading(model: Any) -> bool:
    """Return whether a model has its own `load_state_dict`, which may change shapes."""
    return not isinstance(model, nn.Module) or type(model).load_state_dict is not nn.Module.load_state_dict


def model_misfits(model: Any, state: Mapping[str, Any]) -> list[str]:
    """Return the mismatches of a model's state; none for a model with its own `load_state_dict`."""
    return [] if has_own_loading(model) else compatibility.misfits(model, state)


def optimizer_misfits(optimizer: Any, saved: Any) -> list[str]:
    """Return the mismatches of the state of an optimizer, or of the torch optimizers in it."""
    if isinstance(optimizer, Optimizer):
        if not isinstance(saved, Mapping) or "param_groups" not in saved:
            return ["the optimizer: the checkpoint has no state for it"]
        return compatibility.optimizer_misfits(
            "the optimizer", [group["params"] for group in optimizer.param_groups], saved
        )
    if isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        return optimizer_misfits(inner, saved)
    several = getattr(optimizer, "optimizer_dict", None)
    if isinstance(several, Mapping) and isinstance(saved, Mapping):
        return [each for name, one in several.items() for each in optimizer_misfits(one, saved.get(name))]
    return []


def _foreign_parameters(model: Any, optimizer: Any) -> set[int]:
    """Return the ids of the optimizer's parameters that do not belong to the model."""
    groups = getattr(optimizer, "param_groups", None)
    if groups is None or not isinstance(model, nn.Module):
        return set()
    own = {id(parameter) for parameter in model.parameters()}
    return {id(parameter) for group in groups for parameter in group["params"]} - own


def fit_point_cloud(model: Any, state: Mapping[str, Any]) -> list[str]:
    """Resize the point cloud of a model to the number of points in a checkpoint."""
    if not isinstance(model, nn.Module) or not hasattr(model, "point_cloud"):
        return []
    return compatibility.fit_lengths(model, state, within="point_cloud.")
