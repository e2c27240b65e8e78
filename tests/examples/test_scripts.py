"""The short examples: each one runs, shows its idea, and resumes where that is the idea."""

from __future__ import annotations

import difflib
import json
import math
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import hookline.steps
from hookline import runs
from hookline.cli import main
from tests.examples.running import EXAMPLES, Examples, code_lines


def saved(path: str) -> dict[str, Any]:
    return torch.load(path, weights_only=True)  # type: ignore[no-any-return]  # a dict


def same_tensors(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def values_of(folder: str, prefix: str) -> dict[str, list[float]]:
    """Return all records whose name has this prefix, except for times."""
    metrics = runs.load(folder).metrics
    names = [name for name in metrics.names if name.startswith(prefix) and not name.endswith("time")]
    return {name: metrics.series(name)[1].tolist() for name in names}


def test_the_mlp_has_ten_lines_and_learns_the_digits(examples: Examples) -> None:
    assert code_lines((EXAMPLES / "mlp.py").read_text(encoding="utf-8")) == 10
    done = examples.run("mlp.py")
    assert len(done.lines) == 30  # a record, a save and a validation in each of ten epochs
    run = runs.load("runs/mlp")
    assert run.best("val/accuracy").value > 0.93
    assert [each.path.name for each in run.checkpoints] == [f"epoch_{n}.pth" for n in range(1, 11)]


def test_a_loop_of_your_own_differs_from_the_plain_one_in_three_lines(examples: Examples) -> None:
    plain, ours = (
        (EXAMPLES / "own_loop" / name).read_text(encoding="utf-8") for name in ("plain.py", "with_hookline.py")
    )
    before, after = (text[text.index("loader = ") :].splitlines() for text in (plain, ours))
    added = [line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    assert [line.split("(")[0] for line in added] == ["with hookline.session", "for inputs, target in run:", "run.step"]
    examples.run("own_loop/plain.py")
    examples.run("own_loop/with_hookline.py")
    assert [each.path.name for each in runs.load("runs/own_loop").checkpoints] == [f"epoch_{n}.pth" for n in (1, 2, 3)]


def test_the_gpt_continues_after_ctrl_c_and_writes_the_same_sample(examples: Examples) -> None:
    whole = examples.run("gpt.py", "--iters", "4").lines
    Path("runs/gpt").rename("runs/whole")
    trial = 1  # a call before training
    examples.interrupt(torch.nn.functional, "cross_entropy", trial + 3, "gpt.py", "--iters", "4")
    assert [each.path.name for each in runs.load("runs/gpt").checkpoints] == ["iter_3.pth"]
    resumed = examples.run("gpt.py", "--iters", "4", "--resume").lines

    assert sample_in(whole) == sample_in(resumed)
    one, other = saved("runs/whole/iter_4.pth"), saved("runs/gpt/iter_4.pth")
    assert same_tensors(one["state_dict"], other["state_dict"])
    assert values_of("runs/whole", "val/") == values_of("runs/gpt", "val/")


def sample_in(lines: list[str]) -> list[str]:
    start = next(index for index, line in enumerate(lines) if line.startswith("--- 4 iterations, "))
    return lines[start : lines.index("---", start)]


@pytest.mark.long
def test_the_gpt_learns_to_spell(examples: Examples) -> None:
    done = examples.run("gpt.py", "--iters", "300")
    losses = values_of("runs/gpt", "val/")["val/loss"]
    letters = len(done.names["LETTERS"])
    assert len(losses) == 2
    assert losses[1] < losses[0] < math.log(letters)
    assert losses[1] < 2.6


def test_the_gan_updates_both_nets_and_draws_six_digits(examples: Examples) -> None:
    done = examples.run("gan.py", "--iters", "200")
    drawing = done.lines[-8:]
    assert {len(line) for line in drawing} == {6 * 16 + 5 * 2}
    assert set("".join(drawing)) <= set(done.names["SHADES"])
    optimizers = saved("runs/gan/iter_200.pth")["optimizer"]
    assert list(optimizers) == ["generator", "critic"]
    for name in optimizers:
        assert {int(state["step"]) for state in optimizers[name]["state"].values()} == {200}, name
    assert list(values_of("runs/gan", "train/")) == [
        *("train/generator/lr", "train/generator/grad_norm", "train/critic/lr", "train/critic/grad_norm"),
        *("train/critic_loss", "train/generator_loss", "train/loss"),
    ]


@pytest.mark.long
def test_the_gan_continues_after_ctrl_c_and_draws_the_same_digits(examples: Examples) -> None:
    whole = examples.run("gan.py", "--iters", "200").lines
    calls_per_step = 3
    examples.interrupt(
        *(torch.nn.functional, "binary_cross_entropy_with_logits", 100 * calls_per_step),
        *("gan.py", "--iters", "200"),
    )
    assert [each.path.name for each in runs.load("runs/gan").checkpoints] == ["iter_100.pth"]
    resumed = examples.run("gan.py", "--iters", "200", "--resume").lines
    assert resumed[-8:] == whole[-8:]
    one, other = saved("runs/gan/old-1/iter_200.pth"), saved("runs/gan/iter_200.pth")
    assert same_tensors(one["state_dict"], other["state_dict"])


def test_the_stream_continues_in_the_middle_of_its_buffer_and_ends_with_the_same_bits(examples: Examples) -> None:
    options = ("--iters", "30")
    whole = examples.run("stream.py", *options)
    examples.interrupt(hookline.steps, "cross_entropy", 13, "stream.py", *options)
    assert [each.path.name for each in runs.load("runs/stream").checkpoints] == ["iter_13.pth"]
    resumed = examples.run("stream.py", *options, "--resume")

    one, other = saved("runs/stream/old-1/iter_30.pth"), saved("runs/stream/iter_30.pth")
    assert same_tensors(one["state_dict"], other["state_dict"])
    assert whole.names["stream"].state_dict() == resumed.names["stream"].state_dict()
    # The end is known (30 batches of 32), so no batch is read ahead.
    assert resumed.lines[-1] == whole.lines[-1] == "1,215 samples left the source, 255 of them wait in the buffer"
    assert values_of("runs/stream/old-1", "val/") == values_of("runs/stream", "val/")


def test_each_validation_set_has_its_metrics_and_one_of_them_decides(examples: Examples) -> None:
    done = examples.run("validation_sets.py")
    run = runs.load("runs/validation_sets")
    values = values_of("runs/validation_sets", "val/")
    assert list(values) == [
        f"val/{name}/{metric}" for name in ("clean", "noisy", "shifted") for metric in ("accuracy", "loss")
    ]
    noisy = values["val/noisy/accuracy"]
    best = noisy.index(max(noisy)) + 1
    assert len(noisy) == min(best + 3, 20)
    assert [each.path.name for each in run.checkpoints if each.is_best] == [f"best_noisy_accuracy_epoch_{best}.pth"]
    assert done.lines[-3:] == [
        f"{name:8}best accuracy {max(values[f'val/{name}/accuracy']):.3f}" for name in ("clean", "noisy", "shifted")
    ]


def test_each_result_of_a_custom_metric_is_recorded_and_one_selects_the_best_checkpoint(examples: Examples) -> None:
    done = examples.run("custom_metric.py")
    names = ["mean", "worst", *map(str, range(10))]
    values = values_of("runs/custom_metric", "val/")
    assert list(values) == [*(f"val/recall/{name}" for name in names), "val/accuracy"]
    worst = values["val/recall/worst"]
    assert worst == [min(row) for row in zip(*(values[f"val/recall/{digit}"] for digit in range(10)), strict=True)]
    best = worst.index(max(worst)) + 1
    assert done.lines[-1] == f"the worst digit was best at step {17 * best}: {max(worst):.2f}"
    assert Path(f"runs/custom_metric/best_recall_worst_epoch_{best}.pth").exists()

    metric = done.names["Recall"](3)
    metric.update(torch.eye(3)[[0, 0, 1, 2]], torch.tensor([0, 1, 1, 2]))
    found = {name: float(value) for name, value in metric.compute().items()}
    assert found == {"mean": pytest.approx(2.5 / 3), "worst": 0.5, "0": 1.0, "1": 0.5, "2": 1.0}


def test_the_custom_writer_has_the_records_of_the_run_also_after_a_resume(examples: Examples) -> None:
    done = examples.run("custom_writer.py")
    whole = rows_of("runs/custom_writer")
    assert [row[:2] for row in whole] == records_of("runs/custom_writer")
    assert done.lines[-5:] == [
        f"step {step}: accuracy {value:.3f}" for step, name, value in whole if name == "val/accuracy"
    ]
    examples.interrupt(hookline.steps, "cross_entropy", 40, "custom_writer.py")
    assert Path("runs/custom_writer/old-1/metrics.db").exists()
    with sqlite3.connect("runs/custom_writer/metrics.db") as database:
        database.execute("INSERT INTO metrics VALUES (41, 'a row after the checkpoint', 0.0)")
    database.close()
    examples.run("custom_writer.py", "--resume")
    resumed = rows_of("runs/custom_writer")
    assert resumed == whole


def rows_of(folder: str) -> list[tuple[int, str, float]]:
    database = sqlite3.connect(f"{folder}/metrics.db")
    query = "SELECT step, name, value FROM metrics WHERE name != 'epoch' AND name NOT LIKE '%time' ORDER BY rowid"
    found = database.execute(query).fetchall()
    database.close()
    return found


def records_of(folder: str) -> list[tuple[int, str]]:
    records = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [
        (record["step"], name)
        for record in records
        for name in record
        if name not in ("step", "epoch") and "time" not in name
    ]


def test_the_custom_point_is_called_in_every_step_and_its_hooks_measure_and_stop(examples: Examples) -> None:
    done = examples.run("custom_point.py")
    runner = done.names["runner"]
    shares = runner.hub.get_scalar("train/attacks_succeeded")
    assert runner.stopped.reason == "fewer than a fifth of the attacks succeed"
    assert runner.stopped.by == "Enough"
    assert 1 < runner.epoch < 20
    assert len(shares.values) == 17 * runner.epoch // 5
    assert shares.mean(3) < 0.2
    assert done.lines[-3:-1] == ["who runs at the new point:", "└── after_attack"]
    assert done.lines[-1].startswith("    └── 0: Robustness.after_attack  NORMAL (50), every 5 iterations")


def test_gradients_that_vanish_are_seen_inside_the_model(examples: Examples) -> None:
    lines = examples.run("inside_the_model.py").lines
    silent = [line for line in lines if line.startswith("iteration 80: ")]
    assert [line.split()[-3] for line in silent] == [f"layers.{number}" for number in range(2, 21, 2)] * 2
    ratios = {}
    for name in ("small", "usual"):
        metrics = runs.load(f"runs/inside_{name}").metrics
        steps, first = metrics.series("train/gradients/layers.1/norm")
        assert steps.tolist() == [20, 40, 60, 80]
        ratios[name] = first[-1] / metrics.series("train/gradients/layers.19/norm")[1][-1]
    assert ratios["small"] < 1e-2
    assert ratios["usual"] > 0.1
    assert [line.partition(":")[0] for line in lines if "the gradient is" in line] == ["small weights", "usual weights"]


def train(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["hookline", "train", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


def test_fine_tuning_keeps_the_frozen_part_and_has_a_rate_for_each_group(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(monkeypatch, str(EXAMPLES / "finetuning" / "pretrain.yaml"))
    train(monkeypatch, str(EXAMPLES / "finetuning" / "finetune.yaml"), "default_hooks.checkpoint.interval=5")
    before = saved("runs/pretrained/epoch_6.pth")["state_dict"]
    frozen, tuned = (saved(f"runs/finetuned/epoch_{epoch}.pth")["state_dict"] for epoch in (5, 15))
    features = [name for name in before if name.startswith("features.")]
    assert [name for name in before if not torch.equal(before[name], frozen[name])] == [
        *("classify.1.weight", "classify.1.bias")
    ]
    assert not any(torch.equal(before[name], tuned[name]) for name in features)
    groups = saved("runs/finetuned/epoch_15.pth")["optimizer"]["param_groups"]
    assert [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups] == [
        *((0.01, 0.05, 1), (0.001, 0.05, 8), (0.01, 0, 1))
    ]
    run = runs.load("runs/finetuned")
    assert run.best("val/accuracy").value > 0.85


def test_the_config_of_the_sweep_trains_with_values_of_its_ranges(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(EXAMPLES / "sweep" / "config.yaml")
    train(monkeypatch, config, "optim.optimizer.lr=1e-2", "model.hidden=128")
    run = runs.load("runs/sweep")
    assert (run.config["optim"]["optimizer"]["lr"], run.config["model"]["hidden"]) == (0.01, 128)
    assert run.best("val/accuracy").value > 0.9


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the library, not of ours
def test_a_transformers_model_needs_no_step_and_is_saved_for_its_library(examples: Examples) -> None:
    done = examples.run("transformers_model.py")
    run = runs.load("runs/transformers")
    assert run.best("val/accuracy").value > 0.85
    assert done.lines[-1] == "a digit of the test set: 9 recognized as: 9"
    kept, best = done.names["loaded"].state_dict(), [each for each in run.checkpoints if each.is_best]
    assert same_tensors(kept, saved(str(best[-1].path))["state_dict"])
