"""Two processes with FSDP2: the same result as DDP and as one process, and checkpoints that any number can resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hookline.checkpoint import seal, store
from hookline.checkpoint.export import export
from tests.distributed.fsdp_cases import WRAPPED, build
from tests.distributed.ranks import run

run_case = partial(run, module="fsdp_cases")

#: Runs that end in the same weights with DDP, FSDP and in one process.
SAME: dict[str, dict[str, Any]] = {
    "fifty_steps": {"epochs": 13},
    "empty_share": {"samples": 49},
    "clip_norm": {"clip": {"clip_norm": 0.1}},
    "clip_infinity": {"clip": {"clip_norm": 0.05, "norm_type": float("inf")}},
    "clip_value": {"clip": {"clip_value": 0.01}},
    "windows": {"accumulate": 4},
    "partial_window": {"accumulate": 4, "stream": 6},
    "dropped_window": {"accumulate": 4, "skip": 5},
    "average": {"ema": True},
    "tokens": {"weigh": True},
    "tokens_in_windows": {"weigh": True, "accumulate": 4, "ema": True},
}
for options in SAME.values():
    options["saves"] = False
RESUMED = {"strategy": WRAPPED, "resume": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fsdp")


@pytest.fixture(scope="module")
def two(folder: Path) -> dict[str, Any]:
    """Run everything that two processes do first, and return the results of rank 0."""
    runs = {
        f"{kind}_{name}": {**options, "strategy": strategy}
        for kind, strategy in (("ddp", "ddp"), ("fsdp", WRAPPED))
        for name, options in SAME.items()
    }
    for kind, strategy in (("ddp", "ddp"), ("fsdp", WRAPPED)):
        runs[f"{kind}_buffers"] = {"plain": False, "samples": 48, "strategy": strategy}
    runs["fsdp_freeze"] = {"freeze": True, "strategy": WRAPPED}
    runs["straight"] = {"strategy": WRAPPED}
    averaged = {"ema": True, "plain": False, "samples": 48}
    runs["ema_straight"] = {**averaged, "strategy": WRAPPED}
    for epochs in (1, 2, 3):
        runs[f"ema_again:{epochs}"] = {**averaged, **RESUMED, "epochs": epochs, "background": True}
    runs["changing:1"] = {"strategy": WRAPPED, "epochs": 1}
    for epochs in (1, 2, 3):
        runs[f"again:{epochs}"] = {**RESUMED, "epochs": epochs, "background": True}
    done = run_case("several", folder, runs)
    assert done.code == 0, done.output
    hashes = [{name: found["hash"] for name, found in rank.items() if name != "seconds"} for rank in done.ranks]
    assert hashes[0] == hashes[1]
    return done.ranks[0]


@pytest.fixture(scope="module")
def one(folder: Path, two: dict[str, Any]) -> dict[str, Any]:
    """Train the same in one process, and continue what two have begun."""
    runs = {f"one_{name}": options for name, options in SAME.items()}
    runs |= {"one_freeze": {"freeze": True}, "again:one": {"resume": True}, "changing:2": {"resume": True, "epochs": 2}}
    runs["ema_straight:one"] = {"ema": True, "plain": False, "samples": 48, "resume": True}
    done = run_case("several", folder, runs, nproc=0)
    assert done.code == 0, done.output
    return done.ranks[0]


def apart(one: dict[str, Any], two: dict[str, Any]) -> float:
    """Return how far the weights of two runs are apart."""
    return (torch.tensor(one["weights"]) - torch.tensor(two["weights"])).abs().max().item()


@pytest.mark.parametrize("name", [*SAME, "buffers"])
def test_ddp_and_fsdp_agree(two: dict[str, Any], name: str) -> None:
    ddp, fsdp = two[f"ddp_{name}"], two[f"fsdp_{name}"]
    assert apart(ddp, fsdp) < 1e-5
    for key in ("iter", "updates", "lr"):
        assert ddp[key] == fsdp[key]
    for then, now in zip(ddp["metrics"], fsdp["metrics"], strict=True):
        assert then["accuracy"] == now["accuracy"]
        assert then["loss"] == pytest.approx(now["loss"], abs=1e-5)


def test_the_comparison_has_fifty_steps_and_the_windows_that_it_names(two: dict[str, Any]) -> None:
    updates = {name: two[f"fsdp_{name}"]["updates"] for name in SAME}
    assert updates["fifty_steps"] == 52
    assert (updates["windows"], updates["partial_window"], updates["dropped_window"]) == (12, 4, 11)


@pytest.mark.parametrize("name", [*SAME, "freeze"])
def test_fsdp_trains_as_one_process_does(two: dict[str, Any], one: dict[str, Any], name: str) -> None:
    assert apart(one[f"one_{name}"], two[f"fsdp_{name}"]) < 1e-6


@pytest.mark.parametrize("name", ["tokens", "tokens_in_windows"])
def test_a_loss_by_tokens_and_its_average_are_those_of_one_process(
    two: dict[str, Any], one: dict[str, Any], name: str
) -> None:
    alone, together = one[f"one_{name}"], two[f"fsdp_{name}"]
    assert [each["loss"] for each in together["metrics"]] == pytest.approx([each["loss"] for each in alone["metrics"]])
    assert len(together["averaged"]) == len(alone["averaged"])
    for ours, theirs in zip(together["averaged"], alone["averaged"], strict=True):
        assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), atol=1e-6)
    assert apart(one["one_average"], one["one_tokens"]) > 1e-3  # the same run, in which samples count the same


def test_a_resumed_run_ends_in_the_same_bits_and_keeps_the_newest_and_the_best(
    folder: Path, two: dict[str, Any]
) -> None:
    assert two["again:3"]["hash"] == two["straight"]["hash"]
    names = sorted(path.name for path in (folder / "again" / "run").iterdir() if path.name.endswith((".dcp", ".pth")))
    assert names[-2:] == ["epoch_2.dcp", "epoch_3.dcp"]
    assert len(names) == 3
    assert names[0].startswith("best_accuracy_epoch_")
    inside = sorted(path.name for path in (folder / "again" / "run" / "epoch_3.dcp").iterdir())
    assert inside == [".metadata", "__0_0.distcp", "__1_0.distcp", "checkpoint.pth"]


def test_a_checkpoint_of_two_processes_is_resumed_by_one_and_back(
    folder: Path, two: dict[str, Any], one: dict[str, Any]
) -> None:
    assert one["again:one"]["hash"] == two["straight"]["hash"]
    back = run_case("several", folder, {"changing:3": RESUMED, "again:ddp": {**RESUMED, "strategy": "ddp"}})
    assert back.code == 0, back.output
    assert apart(back.ranks[1]["changing:3"], two["straight"]) < 1e-6
    assert back.ranks[1]["again:ddp"]["hash"] == two["straight"]["hash"]
    saved = sorted(path.name for path in (folder / "changing" / "run").glob("epoch_*"))
    assert saved == ["epoch_1.dcp", "epoch_2.pth", "epoch_3.dcp"]


def test_an_average_of_sharded_weights_is_saved_and_resumed_by_any_number_of_processes(
    folder: Path, two: dict[str, Any], one: dict[str, Any]
) -> None:
    straight, again = two["ema_straight"], two["ema_again:3"]
    assert (again["hash"], again["averaged"]) == (straight["hash"], straight["averaged"])
    assert again["metrics"] == straight["metrics"][1:]  # the missed validation is repeated
    assert one["ema_straight:one"]["averaged"] == straight["averaged"] != []
    saved = export(folder / "ema_straight" / "run" / "epoch_3.dcp", folder / "average.pth").path
    averaged = torch.load(saved, weights_only=True)["hooks"]["EMAHook"]["averaged"]
    assert [value.tolist() for value in averaged.values()] == straight["averaged"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_validation_evaluates_the_buffers_that_are_saved(folder: Path, two: dict[str, Any], kind: str) -> None:
    path = folder / f"{kind}_buffers" / "run" / f"epoch_3.{'pth' if kind == 'ddp' else 'dcp'}"
    runner = build(str(folder / f"{kind}_evaluated"), plain=False, samples=48)
    runner.model.load_state_dict(store.read(path, sealed=True)["state_dict"])
    found, recorded = runner.val(), two[f"{kind}_buffers"]["metrics"][-1]
    assert found["accuracy"] == recorded["accuracy"]
    assert found["loss"] == pytest.approx(recorded["loss"], rel=1e-6)


def test_a_checkpoint_of_two_processes_is_resumed_by_three(folder: Path, two: dict[str, Any]) -> None:
    three = run_case("several", folder, {"straight:three": RESUMED}, nproc=3)
    assert three.code == 0, three.output
    assert [found["straight:three"]["hash"] for found in three.ranks] == [two["straight"]["hash"]] * 3


def test_a_folder_is_exported_to_one_file(folder: Path, two: dict[str, Any]) -> None:
    path = folder / "again" / "run" / "epoch_3.dcp"
    whole = export(path, folder / "whole.pth").path
    weights = export(path, folder / "weights.safetensors").path
    plain = torch.load(whole, weights_only=True)["state_dict"]
    assert torch.cat([value.flatten() for value in plain.values()]).tolist() == two["straight"]["weights"]
    assert {name: value.tolist() for name, value in load_file(weights).items()} == {
        name: value.tolist() for name, value in plain.items()
    }
    assert (seal.damage(whole), seal.read_note(whole)) == ("", seal.read_note(path))
    assert store.read(whole, sealed=True)["optimizer"]["state"][0]["step"] == 12


def test_a_kill_during_a_save_leaves_the_older_checkpoint_and_the_resumed_run_ends_in_the_same_bits(
    tmp_path: Path, two: dict[str, Any]
) -> None:
    done = run_case("killed", tmp_path, restarts=1)
    assert done.code == 0, done.output
    for found in done.ranks:
        assert found["attempt"] == 1
        assert [name for name in found["before"] if not name.startswith(".")] == ["epoch_1.dcp"]
        assert found["hash"] == two["straight"]["hash"]
    saved = sorted(path.name for path in (tmp_path / "run").iterdir() if ".dcp" in path.name)
    assert saved == ["epoch_1.dcp", "epoch_2.dcp", "epoch_3.dcp"]


def test_a_process_that_cannot_write_its_part_ends_all_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_case("limited", tmp_path)
    assert [found["code"] for found in done.ranks] == [5, 5]
    reason = f"{tmp_path / 'run' / 'epoch_2.dcp'} cannot be written: File too large (rank 1)"
    assert all(reason in found["message"] for found in done.ranks)
    assert sorted(each.name for each in (tmp_path / "run").iterdir() if ".dcp" in each.name) == ["epoch_1.dcp"]


def test_a_signal_to_one_process_ends_all_with_a_sharded_checkpoint(tmp_path: Path) -> None:
    done = run_case("act", tmp_path, "SIGTERM")
    assert [(found["error"], found["code"]) for found in done.ranks] == [("SystemExit", 143)] * 2
    saved = sorted(path.name for path in (tmp_path / "run").iterdir() if ".dcp" in path.name)
    assert saved == ["epoch_1.dcp", "iter_7.dcp"]
    assert seal.damage(tmp_path / "run" / "iter_7.dcp") == ""
