"""The same training, written natively and for four other systems, produces bit-identical results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hookline.checkpoint import store
from tests.dialects.one_training import as_imix, as_mmengine, as_pointrix, as_robo_orchard, natively, shared

DIALECTS: dict[str, Callable[[Path], shared.Ended]] = {
    "mmengine": as_mmengine.train,
    "imix": as_imix.train,
    "pointrix": as_pointrix.train,
    "robo_orchard_lab": as_robo_orchard.train,
}


@pytest.fixture(scope="module")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native") / "run"


@pytest.fixture(scope="module")
def native(native_folder: Path) -> shared.Ended:
    return natively.train(native_folder)


def test_the_training_is_worth_comparing(native: shared.Ended) -> None:
    """Check that the best epoch is neither the first nor the last, and that the compared values change in training."""
    assert native.best_epoch == 2
    start, names = shared.Net().state_dict(), native.averaged.keys()
    assert {name.removeprefix("/") for name in native.weights} == start.keys()
    assert not any(torch.equal(native.weights[f"/{name}"], value) for name, value in start.items())
    assert not any(torch.equal(native.weights[name], native.averaged[name]) for name in names)
    first, *others = native.checkpoints.values()
    for other in others:
        assert other.keys() == first.keys()
        assert {name for name in first if torch.equal(first[name], other[name])} <= {"/rng/numpy/1", "/rng/python/1"}
    assert {name.split("/")[1] for name in first} == {"weights", "optimizer", "average", "rng"}


@pytest.mark.parametrize("name", DIALECTS)
def test_it_ends_as_natively_in_weights_averages_best_epoch_and_checkpoints(
    native: shared.Ended, name: str, tmp_path: Path
) -> None:
    shared.assert_ended_alike(DIALECTS[name](tmp_path / "run"), native)


def test_in_mmengines_dialect_the_files_are_the_native_ones(
    native: shared.Ended, native_folder: Path, tmp_path: Path
) -> None:
    as_mmengine.train(tmp_path / "run")
    names = sorted(path.name for path in native_folder.glob("*.pth"))
    assert names == ["best_accuracy_epoch_2.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == names
    for name in names:
        ours, theirs = (store.read(folder / name, sealed=True) for folder in (native_folder, tmp_path / "run"))
        for part in ("state_dict", "optimizer", "param_schedulers", "hooks", "rng"):
            shared.assert_same(shared.tensors(theirs[part]), shared.tensors(ours[part]))
