"""The capsule of a failed run."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner, TrainLoop
from hookline.common import escape
from hookline.data import ResumableLoader
from hookline.errors import HooklineError, NumericsError, StorageError
from hookline.rundir import capsule, loss_bits
from hookline.testing import toy_data, toy_runner


class Fails(Hook):
    """Raises in a step, for some calls of train."""

    def __init__(self, at: int, text: str = "planned") -> None:
        self.at, self.text = at, text

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter + 1 == self.at:
            raise ValueError(self.text)


def failed(folder: Path, hook: Fails, **options: Any) -> capsule.Capsule:
    with pytest.raises(ValueError, match=hook.text):
        toy_runner(work_dir=folder, custom_hooks=[hook], **options).train()
    return capsule.read(folder / "capsule.json")


def test_a_capsule_says_where_the_run_failed_and_where_to_start(tmp_path: Path) -> None:
    found = failed(tmp_path, Fails(7)).data
    assert found["error"] == {
        "type": "ValueError",
        "text": "ValueError: planned",
        "code": 1,
        "relayed": False,
        "where": "hook Fails at after_train_iter",
        "hook": "Fails",
    }
    assert (found["step"], found["position"]) == (7, {"epoch": 1, "iter": 6, "batch": 2})
    assert (found["checkpoint"]["path"], found["checkpoint"]["step"]) == ("epoch_1.pth", 4)
    assert (found["rank"], found["processes"], found["seed"]) == (0, 1, 0)
    assert found["losses"] == {"first": 1, "bits": loss_bits.read(tmp_path)}
    assert found["batch"] == {"epoch": 1, "number": 2, "position": 7, "kind": "batches", "ids": [2], "size": 1}
    assert [event["kind"] for event in found["events"]] == ["start", "save", "validation"]
    assert found["origin"].keys() == {"kind", "file", "folder", "words", "starts_itself"}


def test_a_run_that_fails_before_its_first_checkpoint_begins_at_the_start(tmp_path: Path) -> None:
    assert failed(tmp_path, Fails(3)).checkpoint is None


def test_the_samples_of_the_failed_batch_are_named(tmp_path: Path) -> None:
    seen: list[int] = []

    class Data:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            return torch.full((4,), float(index)), torch.tensor(index % 2)

    class Sees(Hook):
        def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
            seen[:] = [int(value) for value in data_batch[0][:, 0]]

    loader = ResumableLoader(Data(), batch_size=3, shuffle=True)
    runner = toy_runner(work_dir=tmp_path, custom_hooks=[Sees(), Fails(6)])
    runner._host.replace_training(TrainLoop(loader, runner.train_loop.step, max_epochs=2))
    with pytest.raises(ValueError, match="planned"):
        runner.train()
    batch = capsule.read(tmp_path / "capsule.json").data["batch"]
    assert batch == {"epoch": 1, "number": 1, "position": 6, "kind": "samples", "ids": seen, "size": 3}


def test_a_loss_of_nan_is_a_failure_of_its_step_however_late_it_is_noticed(tmp_path: Path) -> None:
    def step(model: Any, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = model(batch[0]).square().mean()
        return loss * float("nan") if bool((batch[0] == data[5][0]).all()) else loss

    data = toy_data(8)
    with pytest.raises(NumericsError, match="at iteration 6"):
        toy_runner(work_dir=tmp_path, batches=8, step=step).train()
    found = capsule.read(tmp_path / "capsule.json").data
    assert (found["step"], found["position"]["iter"]) == (6, 7)
    assert found["batch"]["ids"] == [5]


@pytest.mark.parametrize("refused", ["config", "signal", "finished"])
def test_only_a_failure_of_training_leaves_a_capsule(tmp_path: Path, refused: str) -> None:
    class Ends(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if refused == "signal" and runner.iter == 3:
                raise KeyboardInterrupt

    options: Any = (
        {"val": None, "default_hooks": {"checkpoint": {"save_best": "accuracy"}}} if refused == "config" else {}
    )
    expected: Any = {"config": HooklineError, "signal": KeyboardInterrupt}.get(refused)
    with nullcontext() if expected is None else pytest.raises(expected):
        toy_runner(work_dir=tmp_path, custom_hooks=[Ends()], **options).train()
    assert capsule.find(tmp_path) == []


def test_a_capsule_is_removed_once_the_run_has_passed_the_step(tmp_path: Path) -> None:
    failed(tmp_path, Fails(7))
    toy_runner(work_dir=tmp_path, resume=True, custom_hooks=[Fails(0)]).train()
    assert capsule.find(tmp_path) == []


def test_a_fresh_run_archives_the_capsules(tmp_path: Path) -> None:
    failed(tmp_path, Fails(7))
    capsule.write(tmp_path, {**capsule.read(tmp_path / "capsule.json").data, "rank": 1})
    toy_runner(work_dir=tmp_path).train()
    assert [path.name for path in capsule.find(tmp_path / "old-1")] == ["capsule.json", "capsule-rank1.json"]
    assert capsule.find(tmp_path) == []


def test_a_run_that_fails_at_once_leaves_the_earlier_run_as_it_was(tmp_path: Path) -> None:
    failed(tmp_path, Fails(7))
    before = (tmp_path / "capsule.json").read_bytes()
    with pytest.raises(ValueError, match="planned"):
        toy_runner(work_dir=tmp_path, custom_hooks=[Fails(1)]).train()
    assert (tmp_path / "capsule.json").read_bytes() == before


def test_the_checkpoint_of_a_capsule_is_not_removed(tmp_path: Path) -> None:
    failed(tmp_path, Fails(7), default_hooks={"checkpoint": {"interval": 4, "by_epoch": False}})
    kept: list[list[str]] = []

    class Looks(Hook):
        def before_train_iter(self) -> None:
            kept.append(sorted(path.name for path in tmp_path.glob("*.pth")))

    often = {"checkpoint": {"interval": 1, "by_epoch": False, "max_keep_ckpts": 1}}
    toy_runner(work_dir=tmp_path, default_hooks=often, resume=True, custom_hooks=[Looks()]).train()
    assert kept == [["iter_4.pth"], ["iter_4.pth", "iter_5.pth"], ["iter_4.pth", "iter_6.pth"], ["iter_7.pth"]]


def test_a_capsule_stays_small(tmp_path: Path) -> None:
    data = {**failed(tmp_path, Fails(7, "x" * 100_000)).data, "notes": ["y" * 4000] * 40, "code": {"z" * 3000: "0"}}
    data["events"] = [{"kind": "warning", "text": "w" * 4000}] * 20
    path = capsule.write(tmp_path, data)
    assert path.stat().st_size < 100_000
    assert capsule.read(path).data["error"]["text"] == "ValueError: " + "x" * 3987 + "…"
    assert (capsule.read(path).data["events"], len(capsule.read(path).data["notes"])) == ([], 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('"step": 7', '"step": 8'), "was changed after the run had written it"),
        (lambda text: text[:100], "is not a capsule: it is not valid JSON"),
        (lambda text: "[]", "is not a capsule that a run has written"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "has the version 9, but this hookline reads"),
    ],
    ids=["edited", "cut off", "a list", "another version"],
)
def test_a_capsule_that_no_run_has_written_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    failed(tmp_path, Fails(7))
    path = tmp_path / "capsule.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(StorageError, match=message):
        capsule.read(path)


@pytest.mark.parametrize(
    ("key", "value", "odd"),
    [
        ("step", "7", "step"),
        ("error", {}, "error.type"),
        ("origin", {"kind": 1}, "origin.kind"),
        ("rank", None, "rank"),
    ],
)
def test_entries_of_other_types_are_refused_even_with_a_checksum(
    tmp_path: Path, key: str, value: Any, odd: str
) -> None:
    data = {**failed(tmp_path, Fails(7)).data, key: value}
    path = tmp_path / "capsule.json"
    path.write_text(json.dumps({**data, "sha256": capsule._checksum(data)}))
    with pytest.raises(StorageError, match=rf"is not a capsule that a run has written: .*{odd}"):
        capsule.read(path)


def test_a_value_of_the_environment_is_in_no_capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(escape._references, "a-secret-value", "${oc.env:KEY}")
    found = failed(tmp_path, Fails(7, "cannot log in with a-secret-value"))
    assert "a-secret-value" not in (tmp_path / "capsule.json").read_text()
    assert found.data["error"]["text"] == "ValueError: cannot log in with ${oc.env:KEY}"
