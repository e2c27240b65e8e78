"""Every optimizer of torch makes a step and is saved with every strategy, or is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed import ranks
from tests.distributed.optimizer_table import NEVER, NOT_SHARDED, OPTIMIZERS, STRATEGIES, WAYS, outcomes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_optimizer_trains_and_saves_or_is_refused_with_a_reason(tmp_path: Path, strategy: str) -> None:
    names = [name for name in OPTIMIZERS if name not in NEVER]
    arguments = ("table", tmp_path / "alone", "single", names, list(WAYS))
    alone = ranks.run(*arguments, nproc=0, module="optimizer_table").ranks[0]
    found = outcomes(tmp_path, strategy)
    refused = {
        "LBFGS": "the optimizer (LBFGS) needs a closure",
        "SparseAdam": (
            "the strategy 'fsdp': SparseAdam cannot update sharded parameters"
            if strategy == "fsdp"
            else "SparseAdam does not support dense gradients, please consider Adam instead"
        ),
        **{name: f"the strategy 'fsdp': {name} cannot update sharded parameters" for name in NOT_SHARDED},
    }
    for name in OPTIMIZERS:
        for way in WAYS:
            if name in NEVER or (name in NOT_SHARDED and strategy == "fsdp"):
                assert refused[name] in found[f"{name} {way}"][0]
            else:
                saved, weights = found[f"{name} {way}"]
                assert saved == ("iter_1.dcp" if strategy == "fsdp" else "iter_1.pth")
                assert weights == pytest.approx(alone[f"{name} {way}"][1], abs=1e-6)
