"""The names of the metrics that a config's validation returns, found by validating one batch."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from hookline.errors import ConfigError, HooklineError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig

log = logging.getLogger("hookline")


def find_metrics(loaded: LoadedConfig, allow: Sequence[str]) -> list[str] | None:
    """Return the names of the metrics; None if one batch is not enough to know them."""
    from hookline.strategies import pick_device

    if not loaded.data.get("val"):
        raise ConfigError(
            f"{loaded.title}: a sweep compares the results of the validation, but this config has none; add a 'val' "
            "section"
        )
    if pick_device(loaded.data.get("device", "auto")).type == "cpu":
        return validate_one_batch(loaded, allow)
    # In a separate process: this one would occupy memory of the device until the end of the sweep.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(validate_one_batch, loaded, allow).result()


def validate_one_batch(loaded: LoadedConfig, allow: Sequence[str]) -> list[str] | None:
    """Build the run in a temporary folder, without writers, and validate one batch."""
    from hookline.config import build_runner

    with tempfile.TemporaryDirectory(prefix="hookline-sweep-") as folder:
        runner = build_runner(loaded, allow=allow, work_dir=folder, resume=False, quiet=True, writers=())
        runner._host.shorten(1)
        try:
            return list(runner.val())
        except HooklineError:
            raise
        except Exception as error:  # some metrics need more than one batch
            log.warning(
                "the metrics cannot be checked before the first trial: %s: %s", type(error).__name__, str(error)[:500]
            )
            return None
