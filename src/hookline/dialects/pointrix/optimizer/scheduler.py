"""ExponLRScheduler: exponential decay of learning rates, by the name of the parameter group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hookline.common.checks import check_int, check_number
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.errors import ConfigError

SCHEDULER_REGISTRY = Registry(
    "SCHEDULER", builtin={"ExponLRScheduler": "hookline.dialects.pointrix.optimizer.scheduler:ExponLRScheduler"}
)


class ExponLRScheduler:
    """Decays the learning rate of each parameter group from `init` to `final` in `max_steps` steps.

    Args:
        config: `{params: {"point_cloud.position": {init: 1.6e-4, final: 1.6e-6, max_steps: 30000}}}`.
        lr_scale: A factor for all rates.
    """

    def __init__(self, config: Mapping[str, Any], lr_scale: float = 1.0) -> None:
        self._decays = {
            name: _read_decay(name, values, lr_scale) for name, values in config_to_primitive(config)["params"].items()
        }

    def step(self, global_step: int, optimizer_list: Any) -> None:
        """Set the rates of a step. They depend only on its number."""
        for group in optimizer_list.param_groups:
            if group.get("name") in self._decays:
                group["lr"] = self.rate(group["name"], global_step)

    def rate(self, name: str, step: int) -> float:
        """Return the rate of a group at a step.

        >>> scheduler = ExponLRScheduler({"params": {"p": {"init": 1.0, "final": 0.01, "max_steps": 10}}})
        >>> [round(scheduler.rate("p", step), 6) for step in (0, 5, 10, 11)]
        [1.0, 0.1, 0.01, 0.01]
        """
        first, last, steps = self._decays[name]
        done = min(max(step / steps, 0.0), 1.0)
        return math.exp(math.log(first) * (1 - done) + math.log(last) * done)


def _read_decay(name: str, values: Mapping[str, Any], scale: float) -> tuple[float, float, int]:
    for key in ("init", "final", "max_steps"):
        if key not in values:
            raise ConfigError(f"scheduler: params of '{name}' have no '{key}'; available: {', '.join(values)}")
    check_number(f"scheduler: init of '{name}'", values["init"], above=0)
    check_number(f"scheduler: final of '{name}'", values["final"], above=0)
    check_int(f"scheduler: max_steps of '{name}'", values["max_steps"], least=1)
    return values["init"] * scale, values["final"] * scale, values["max_steps"]
