"""PrepareTTAHook and `build_runner_with_tta`: test-time augmentation for a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.registry import MODELS, RUNNERS

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner import Runner


class PrepareTTAHook(Hook):
    """Puts the model into one for augmented batches before a test.

    Args:
        tta_cfg: Describes a subclass of BaseTTAModel, without its `module`.
    """

    def __init__(self, tta_cfg: Mapping[str, Any]) -> None:
        self.tta_cfg = tta_cfg

    def before_test(self, runner: Any) -> None:
        """Replace the model of the run."""
        runner.model = MODELS.build({**self.tta_cfg, "module": runner.model})


def build_runner_with_tta(cfg: Any) -> Runner:
    """Build a runner that tests with the `tta_pipeline` and the `tta_model` of a config."""
    for name in ("tta_model", "tta_pipeline"):
        assert name in cfg, f"the config needs '{name}'"  # as in MMEngine, whose callers catch this type
    cfg["test_dataloader"]["dataset"]["pipeline"] = cfg["tta_pipeline"]
    from hookline.dialects.mmengine.runner import Runner

    runner: Runner = RUNNERS.build(cfg) if "runner_type" in cfg else Runner.from_cfg(cfg)
    runner.register_hook(PrepareTTAHook(cfg["tta_model"]))
    return runner
