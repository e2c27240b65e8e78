"""Checkpoints of every earlier version resume exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

import hookline
from hookline import Runner
from hookline.checkpoint import store
from tests.engine.exact_run import SAVED_AT, CountBatches, build, train_half

CHECKPOINTS = sorted((Path(__file__).parent / "checkpoints").glob("*.pth"))


def state_of(folder: Path) -> dict[str, object]:
    """Return the contents of the last checkpoint, without facts about the process that wrote it."""
    checkpoint = store.read(folder / "epoch_3.pth", sealed=True)
    return {key: value for key, value in checkpoint.items() if key not in ("meta", "writers")}


def draws_of(runner: Runner) -> list[int]:
    return next(entry.hook.drawn for entry in runner.plan if isinstance(entry.hook, CountBatches))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = build(tmp_path_factory.mktemp("whole"))
    runner.train()
    return runner


def test_there_is_a_checkpoint_of_this_version_or_the_one_before() -> None:
    assert hookline.__version__ in [path.stem for path in CHECKPOINTS]


@pytest.mark.parametrize("saved", CHECKPOINTS, ids=lambda path: path.stem)
def test_a_checkpoint_of_an_earlier_version_resumes_to_the_same_bits(
    tmp_path: Path, uninterrupted: Runner, saved: Path
) -> None:
    resumed = build(tmp_path, resume=saved)
    recorded: list[int] = []
    resumed.on("before_train_iter")(lambda runner: recorded.append(runner.iter))
    resumed.train()
    assert recorded == list(range(SAVED_AT, 15))
    assert draws_of(resumed) == draws_of(uninterrupted)
    ours, theirs = state_of(tmp_path), state_of(uninterrupted.work_dir)
    assert ours.keys() == theirs.keys()
    for state in (ours, theirs):
        hub = state["message_hub"]
        assert isinstance(hub, dict)
        for name in ("train/time", "train/data_time", "val/time", "val/data_time"):
            hub["scalars"].pop(name, None)
        hub["info"].pop("eta", None)
    assert str(ours) == str(theirs)
    assert resumed.model.weight.tolist() == uninterrupted.model.weight.tolist()  # type: ignore[operator]


def test_the_run_saves_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    saved = store.read(train_half(tmp_path), sealed=True)
    assert (saved["position"]["epoch"], saved["position"]["batch"], saved["position"]["iter"]) == (1, 2, 7)
