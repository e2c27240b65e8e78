"""A repr says in one line what an object is, how long it is, and where it is."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

from hookline import EvalLoop, Optim, TrainLoop
from hookline.data import ResumableLoader
from hookline.engine.steps import cross_entropy
from hookline.testing import toy_data, toy_runner


def test_of_a_runner_and_its_hub(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=2, work_dir=tmp_path / "run")
    assert repr(runner) == f"<Runner run: epoch 0 of 2, iteration 0 of 8, cpu, fp32, in {tmp_path}/run>"
    assert repr(runner.hub) == "<MessageHub: 0 scalars, 0 facts>"
    runner.train()
    assert repr(runner) == f"<Runner run: epoch 2 of 2, iteration 8 of 8, cpu, fp32, in {tmp_path}/run>"
    facts = len(runner.hub.info)
    assert repr(runner.hub) == (
        "<MessageHub: 7 scalars (train/lr, train/data_time, train/time, train/loss, val/data_time, val/time, "
        f"val/accuracy), {facts} facts>"
    )
    runner.hub.update_scalars({"a\n": 1.0, "b": 1.0})
    assert "val/accuracy, a\\n, and 1 more)" in repr(runner.hub)
    by_iterations = toy_runner(max_iters=5, work_dir=tmp_path / "run")
    assert repr(by_iterations) == f"<Runner run: iteration 0 of 5, cpu, fp32, in {tmp_path}/run>"
    stream = TrainLoop(iter(toy_data()), cross_entropy, max_epochs=1)
    runner = toy_runner(work_dir=tmp_path / "run")
    runner._host.loop_given = stream
    assert repr(runner) == f"<Runner run: epoch 0 of 1, iteration 0, cpu, fp32, in {tmp_path}/run>"


def test_of_loops() -> None:
    runner = toy_runner(max_epochs=1)
    assert repr(runner.train_loop) == ("<TrainLoop: 1 epoch of 4 batches, step cross_entropy, val_interval 1 epoch>")
    assert repr(runner.val_loop) == "<EvalLoop: 2 batches, step predict, metrics: accuracy>"
    loop = TrainLoop(iter(toy_data()), lambda model, batch: None, max_iters=10)
    assert repr(loop) == (
        "<TrainLoop: 10 iterations, an unknown number of batches per pass, step <lambda>, val_interval 1000 iterations>"
    )
    assert repr(EvalLoop(toy_data(1), loss=cross_entropy)) == "<EvalLoop: 1 batch, step call_model, metrics: loss>"


def test_of_an_optim_and_a_loader() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    assert repr(Optim(optimizer)) == "<Optim: SGD (lr 0.1), 0 updates>"
    optim = Optim(optimizer, [(StepLR(optimizer, 3), "epoch")], accumulate=2, clip_norm=1)
    assert repr(optim) == "<Optim: SGD (lr 0.1), StepLR per epoch, accumulate 2, clip_norm 1, 0 updates>"
    data = TensorDataset(torch.zeros(70, 2))
    assert repr(ResumableLoader(data)) == "<ResumableLoader: 70 batches of 1 from TensorDataset, 70 samples>"
    assert repr(ResumableLoader(data, batch_size=8, shuffle=True, num_workers=2)) == (
        "<ResumableLoader: 9 batches of 8 from TensorDataset, 70 samples, shuffled, 2 workers>"
    )
