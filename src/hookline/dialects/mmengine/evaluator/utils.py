"""Finding a metric by its name, with or without the prefix of who computes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.errors import did_you_mean


def get_metric_value(indicator: str, metrics: Mapping[str, Any]) -> Any:
    """The metric of a name; one without a prefix may stand for the only one that has it behind a prefix."""
    if indicator in metrics:
        return metrics[indicator]
    meant = [name for name in metrics if "/" not in indicator and name.rpartition("/")[2] == indicator]
    if len(meant) == 1:
        return metrics[meant[0]]
    if meant:
        raise ConfigValueError(f"'{indicator}' may be {' or '.join(meant)}; give it with its prefix")
    raise ConfigValueError(f"there is no metric '{indicator}'; {did_you_mean(indicator, metrics)}")
