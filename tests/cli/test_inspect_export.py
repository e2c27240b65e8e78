from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from hookline.checkpoint import store
from hookline.hooks import EMAHook
from hookline.testing import toy_model, toy_runner
from tests.faults.children import command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect") / "toy"
    hooks = {"checkpoint": {"save_best": "accuracy", "published_keys": "state_dict"}}
    toy_runner(max_epochs=2, work_dir=folder, default_hooks=hooks, custom_hooks=[EMAHook(momentum=0.5)]).train()
    return folder


def test_inspect_shows_the_contents_origin_and_integrity_of_a_file(run: Path) -> None:
    code, output = command("inspect", "epoch_1.pth", cwd=run)
    assert code == 0
    rows = [(line[:16].strip(), line[18:]) for line in output.splitlines()]
    assert [name for name, _ in rows] == [
        *["file", "", "run", "saved", "on", "hooks", "position", "state_dict", "optimizer", "param_schedulers"],
        *["scaler", "modules", "metrics", "writers", "metric states", "hook states", "rng", "use"],
    ]
    found = dict(rows)
    assert re.fullmatch(r"epoch_1.pth, [0-9.]+ kB", found["file"])
    assert found[""] == "intact: its bytes match its SHA-256"
    assert found["run"] == "toy, seed 0"
    assert found["position"] == "after 1 epochs, 4 iterations, 0 validations"
    assert found["state_dict"] == "4 tensors, 58 numbers, 232 bytes"
    assert found["hook states"] == "EMAHook, LoggerHook; 232 bytes"
    assert found["hooks"].startswith("RuntimeInfoHook, IterTimerHook, ")
    assert found["use"] == "a run can resume from it"


def test_inspect_of_a_folder_lists_checkpoints_in_order_and_the_one_to_resume_from(run: Path) -> None:
    code, output = command("inspect", ".", cwd=run)
    assert code == 0
    lines = [re.split(r"  +", line) for line in output.splitlines()]
    kinds = [[re.sub("-[0-9a-f]{8}", "-*", line[0]), *line[2:]] for line in lines[:-1]]
    best = next(line[0] for line in kinds if line[0].startswith("best") and "*" not in line[0])
    assert ["epoch_1.pth", "iteration 4", "intact"] in kinds
    assert [
        "epoch_2-*.pth",
        "iteration 8",
        "intact, saved without its optimizer, schedulers, position and random generators",
    ] in kinds
    newest = best if best == "best_accuracy_epoch_2.pth" else "epoch_2.pth"
    assert output.splitlines()[-1] == f"a run with --resume continues from {newest}"


def test_inspect_says_whether_a_run_can_resume(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path)
    runner.train()
    runner.saving.write_now(tmp_path / "half.pth", complete=False)
    code, output = command("inspect", "half.pth", cwd=tmp_path)
    assert (code, output.splitlines()[-1]) == (0, "use               only its weights can be used (load_from)")
    code, output = command("inspect", ".", cwd=tmp_path)
    *table, last, why = output.splitlines()
    kinds = [re.split(r"  +", line)[::3] for line in table]
    assert kinds == [["epoch_1.pth", "intact"], ["half.pth", "intact, saved in the middle of a step"]]
    assert last == "a run with --resume continues from epoch_1.pth"
    assert why == "  not from half.pth, which is newer: it was saved in the middle of a step"


def test_inspect_of_odd_parts_shows_them(tmp_path: Path) -> None:
    torch.save({"message_hub": {"scalars": 5}, "hooks": 3, "meta": {"hooks": 4}, "rng": [1]}, tmp_path / "odd.pth")
    code, output = command("inspect", "odd.pth", cwd=tmp_path)
    assert code == 0
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in output.splitlines() if line[0] != " ")
    assert [rows[name] for name in ("metrics", "hook states", "hooks", "rng")] == ["scalars", "int", "4", "list"]


@pytest.mark.filterwarnings("ignore:(?i).*deprecated")
def test_export_refuses_what_safetensors_cannot_store(tmp_path: Path) -> None:
    quantized = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
    for kind, value in (("sparse", torch.eye(2).to_sparse()), ("quantized", quantized)):
        torch.save({"state_dict": {"a": torch.ones(2), "b": value}}, tmp_path / "odd.pth")
        code, output = command("export", "odd.pth", cwd=tmp_path)
        assert code == 5
        assert output.splitlines()[-1] == (  # torch warns about quantized tensors
            f"hookline: odd.pth cannot be exported: b is a {kind} tensor, which safetensors cannot store"
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "odd.pth"]


def test_inspect_of_a_damaged_file_ends_with_5(run: Path, tmp_path: Path) -> None:
    data = (run / "epoch_1.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(data[:-300])
    (tmp_path / "flipped.pth").write_bytes(data[:999] + bytes([data[999] ^ 1]) + data[1000:])
    code, output = command("inspect", "flipped.pth", cwd=tmp_path)
    assert (code, output) == (5, "hookline: flipped.pth cannot be used: its bytes do not match its SHA-256\n")
    code, output = command("inspect", "cut.pth", cwd=tmp_path)
    assert code == 5
    assert output == "hookline: cut.pth cannot be read as a checkpoint: it was cut short or damaged\n"
    assert command("inspect", "none.pth", cwd=tmp_path) == (
        5,
        "hookline: there is no checkpoint none.pth; to list a run's checkpoints: hookline inspect FOLDER\n",
    )
    os.mkdir(tmp_path / "empty")
    assert command("inspect", "empty", cwd=tmp_path) == (5, "hookline: there is no checkpoint in empty\n")


def test_inspect_reports_that_a_file_was_written_by_another_program(tmp_path: Path) -> None:
    torch.save({"state_dict": toy_model().state_dict()}, tmp_path / "other.pth")
    code, output = command("inspect", "other.pth", cwd=tmp_path)
    assert code == 0
    assert "cannot be verified: it was not written by hookline" in output
    assert output.splitlines()[-1].endswith("only its weights can be used (load_from)")


def test_export_writes_safetensors_that_the_library_reads(run: Path, tmp_path: Path) -> None:
    checkpoint = store.read(run / "epoch_2.pth", sealed=True)
    code, output = command("export", str(run / "epoch_2.pth"), cwd=tmp_path)
    written = run / "epoch_2.safetensors"
    raw = "exported the raw weights; to export the averaged weights instead, add --averaged\n"
    assert (code, output) == (0, f"{written}: 4 tensors, {written.stat().st_size} bytes\n{raw}")
    found = load_file(written)
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in checkpoint["state_dict"].items()
    }
    with safe_open(written, "pt") as file:
        assert file.metadata() == {
            "format": "pt", "weights": "raw", "experiment_name": "toy", "epoch": "2", "iter": "8"
        }  # fmt: skip
    code, output = command(
        "export", str(run / "epoch_2.pth"), "--averaged", "--out", "new/ema.safetensors", cwd=tmp_path
    )
    assert code == 0
    averaged = load_file(tmp_path / "new" / "ema.safetensors")
    expected = checkpoint["hooks"]["EMAHook"]["averaged"]
    assert all(value.equal(expected[name]) for name, value in averaged.items())
    assert not averaged["0.weight"].equal(found["0.weight"])


def test_export_refuses_existing_files_and_missing_weights(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there.safetensors").write_text("mine")
    path = str(run / "epoch_1.pth")
    assert command("export", path, "--out", "there.safetensors", cwd=tmp_path) == (
        2,
        "hookline: there.safetensors already exists; choose another file with --out, or overwrite it with --force\n",
    )
    assert (tmp_path / "there.safetensors").read_text() == "mine"
    assert command("export", path, "--out", "there.safetensors", "--force", cwd=tmp_path)[0] == 0
    torch.save({"state_dict": toy_model().state_dict(), "hooks": {}}, tmp_path / "other.pth")
    assert command("export", "other.pth", "--averaged", cwd=tmp_path) == (
        5,
        "hookline: other.pth has no averaged weights: its run had no EMAHook\n",
    )
    torch.save({"state_dict": {"a": 3}}, tmp_path / "odd.pth")
    assert command("export", "odd.pth", cwd=tmp_path) == (5, "hookline: odd.pth has no weights\n")


def test_tied_weights_are_exported_once_each(tmp_path: Path) -> None:
    shared = torch.ones(3)
    torch.save({"state_dict": {"a": shared, "b": shared}}, tmp_path / "tied.pth")
    assert command("export", "tied.pth", cwd=tmp_path)[0] == 0
    assert sorted(load_file(tmp_path / "tied.safetensors")) == ["a", "b"]
