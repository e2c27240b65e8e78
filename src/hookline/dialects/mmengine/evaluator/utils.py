"""Look up a metric by its name, with or without its prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.errors import did_you_mean


def get_metric_value(indicator: str, metrics: Mapping[str, Any]) -> Any:
    """Return the metric with this name. The prefix may be omitted if only one metric matches."""
    if indicator in metrics:
        return metrics[indicator]
    meant = [name for name in metrics if "/" not in indicator and name.rpartition("/")[2] == indicator]
    if len(meant) == 1:
        return metrics[meant[0]]
    if meant:
        raise ConfigValueError(f"'{indicator}' is ambiguous: it may be {' or '.join(meant)}; add the prefix")
    raise ConfigValueError(f"unknown metric '{indicator}'; {did_you_mean(indicator, metrics)}")
