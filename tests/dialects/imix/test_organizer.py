"""Organizer: the settings, the optimizer and the hooks that a config describes."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
from torch.nn.functional import cross_entropy

from hookline.dialects.imix.engine.hooks import CheckPointHook, EvaluateHook, OptimizerHook
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.dialects.imix.engine.organizer import Organizer
from hookline.errors import ConfigError
from hookline.testing import toy_data, toy_model


def settings(work_dir: Path, **changes: Any) -> dict[str, Any]:
    return {
        "total_epochs": 2,
        "work_dir": str(work_dir),
        "optimizer": {"type": "SGD", "lr": 0.1},
        "lr_config": {"policy": "StepLR", "step_size": 4},
        **changes,
    }


def test_an_organizer_has_the_optimizer_and_the_hooks_in_order(tmp_path: Path) -> None:
    customs = [
        {"type": "EvaluateHook", "eval_function": lambda: {"accuracy": 1.0}},
        {"type": "TextLoggerHook", "text": "hi", "level": "LOW"},
    ]
    given = settings(tmp_path, custom_hooks=customs)
    organizer = Organizer(given, toy_model(), toy_data())
    assert (type(organizer.optimizer).__name__, organizer.max_iter) == ("SGD", 8)
    assert [type(hook).__name__ for hook in organizer.hooks] == [
        "OptimizerHook",
        "LRSchedulerHook",
        "IterationTimerHook",
        "CheckPointHook",
        "PeriodicLogger",
        "EvaluateHook",
        "TextLoggerHook",
    ]
    engine = imixEngine(given, toy_model(), toy_data(), loss_fn=cross_entropy)
    kinds = {type(hook): hook for hook in engine.hooks}
    assert {OptimizerHook, CheckPointHook, EvaluateHook} <= kinds.keys()
    assert kinds[EvaluateHook].trainer == weakref.proxy(engine)
    engine.train()
    assert (engine.iter, engine.log_buffer.history("accuracy").latest()) == (8, 1.0)


def test_missing_and_misspelled_settings_are_refused(tmp_path: Path) -> None:
    for parts in {}, {"model": toy_model()}, {"data_loader": toy_data()}:
        with pytest.raises(ConfigError, match=r"^imixEngine needs a model and data_loader: iMIX's own models"):
            imixEngine(settings(tmp_path), **parts)
    with pytest.raises(
        ConfigError, match="has .chekpoint_config., which nothing reads; did you mean .checkpoint_config"
    ):
        imixEngine(settings(tmp_path, chekpoint_config={}), toy_model(), toy_data())
