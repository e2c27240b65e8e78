"""Run every hook of the mmengine package in the dialect's Runner, and write the results as a docs page.

    python -m tests.dialects.mmengine.real_hooks docs/coming-from/mmengine-hooks.md

A test fails when the page is out of date.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline.testing import toy_data
from tests.dialects.mmengine.parts import runner_of, weights

if __name__ == "__main__":  # in a separate process: the other tests run without the package
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mmengine
        import mmengine.hooks as real
        from mmengine.registry import MODELS as REAL_MODELS

HEAD = """\
# MMEngine's own hooks in hookline

This table covers every hook in `mmengine.hooks` of the mmengine package {version} from PyPI. Each one ran unchanged as
a custom hook of the dialect's `Runner`. If the dialect has a default hook of the same name, that one was removed.
`tests/dialects/mmengine/real_hooks.py` generates this page, and a test fails when it is out of date.

| hook | result | observations |
| --- | --- | --- |
"""


class Verdict(NamedTuple):
    """The result of running a hook."""

    word: str
    seen: str


CASES: dict[str, Callable[[Path], Verdict]] = {}


def case(function: Callable[[Path], Verdict]) -> Callable[[Path], Verdict]:
    """Register the check of the hook with this name."""
    CASES[function.__name__] = function
    return function


def loader(seed: int = 0) -> DataLoader[Any]:
    inputs, labels = (torch.cat(parts) for parts in zip(*toy_data(4, seed=seed), strict=True))
    return DataLoader(TensorDataset(inputs, labels), batch_size=8)


def runner(folder: Path, *hooks: Any, instead_of: str | None = None, **parts: Any) -> Any:
    """Return a toy run with hooks, without the default hook that one of them replaces."""
    given = {
        "train_dataloader": loader(),
        "val_dataloader": loader(1),
        "test_dataloader": loader(2),
        "param_scheduler": {"type": "StepLR", "step_size": 1, "gamma": 0.5},
        "default_hooks": {instead_of: None} if instead_of else None,
        "custom_hooks": list(hooks),
        **parts,
    }
    return runner_of(folder / "run", **given)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run").glob("*.pth"))


@case
def RuntimeInfoHook(folder: Path) -> Verdict:  # noqa: N802  # named after the hook
    run = runner(folder, real.RuntimeInfoHook(), instead_of="runtime_info")
    run.train()
    names = ("train/lr", "train/loss", "val/accuracy")
    assert [len(run.message_hub.get_scalar(name)) for name in names] == [8, 8, 2]
    assert run.message_hub.get_info("max_iters") == 8
    return Verdict("works", "records learning rate, loss, metrics and its facts in the message hub")


@case
def IterTimerHook(folder: Path) -> Verdict:  # noqa: N802
    run = runner(folder, real.IterTimerHook(), instead_of="timer")
    run.train()
    assert [len(run.message_hub.get_scalar(f"train/{name}")) for name in ("data_time", "time")] == [8, 8]
    assert run.message_hub.get_info("eta") is not None
    return Verdict("works", "records data and step times, and an estimate of the remaining time")


@case
def DistSamplerSeedHook(folder: Path) -> Verdict:  # noqa: N802
    epochs_set: list[int] = []
    run = runner(folder, real.DistSamplerSeedHook(), instead_of="sampler_seed")
    run.train_dataloader.sampler.set_epoch = epochs_set.append
    run.train()
    assert epochs_set == [0, 1]
    return Verdict("works", "sets the epoch of the sampler at every epoch")


@case
def LoggerHook(folder: Path) -> Verdict:  # noqa: N802
    run = runner(folder, real.LoggerHook(interval=2), instead_of="logger")
    run.train()
    run.test()
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "loss" in record] == [2, 4, 6, 8]
    assert [record["step"] for record in records if "accuracy" in record][:2] == [1, 2]
    assert list((folder / "run").glob("2*.json"))
    return Verdict("works", "writes its lines to run.log and its numbers to metrics.jsonl, under its own names")


@case
def ParamSchedulerHook(folder: Path) -> Verdict:  # noqa: N802
    run = runner(folder, real.ParamSchedulerHook(), instead_of="param_scheduler")
    run.train()
    assert run.optim_wrapper.get_lr() == {"lr": [0.05]}
    return Verdict("works", "steps the dialect's schedulers as hookline's own hook does")


@case
def CheckpointHook(folder: Path) -> Verdict:  # noqa: N802
    publishing = {"published_keys": ["meta", "state_dict"], "save_best": "accuracy", "rule": "greater"}
    hook = real.CheckpointHook(interval=1, max_keep_ckpts=2, **publishing)
    whole = runner(folder, hook, instead_of="checkpoint", train_cfg={"max_epochs": 4}).train()
    published, regular = (
        list(filter(lambda name: ("-" in name) is is_published, files(folder))) for is_published in (True, False)
    )
    assert regular[1:] == ["epoch_3.pth", "epoch_4.pth"]
    assert regular[0].startswith("best_accuracy_epoch_")
    assert [sorted(weights(folder / "run" / name)) for name in published] == [["meta", "state_dict"]] * 2
    start: Any = {"load_from": folder / "run" / "epoch_3.pth", "resume": True, "train_cfg": {"max_epochs": 4}}
    again = runner(folder / "again", real.CheckpointHook(interval=1), instead_of="checkpoint", **start).train()
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), again.parameters(), strict=True))
    for epochs, resume in ((2, False), (4, True)):
        elsewhere = real.CheckpointHook(interval=1, out_dir=str(folder / "out"))
        parts: Any = {"train_cfg": {"max_epochs": epochs}, "resume": resume}
        runner(folder / "there", elsewhere, instead_of="checkpoint", **parts).train()
    assert files(folder / "out") == [f"epoch_{epoch}.pth" for epoch in (1, 2, 3, 4)]
    resumed = f"resumed from {folder / 'out' / 'run' / 'epoch_2.pth'}: epoch 2, iteration 8"
    assert resumed in (folder / "there" / "run" / "run.log").read_text()
    return Verdict(
        "works",
        "writes the newest, best and published files, also into an `out_dir`; each is written at the end of its epoch "
        "or validation, so a run resumed from it ends with bit-identical weights",
    )


@case
def EMAHook(folder: Path) -> Verdict:  # noqa: N802
    def hook() -> Any:
        return real.EMAHook(momentum=0.1)

    first, measured = hook(), []
    run = runner(folder, first, train_cfg={"max_epochs": 4})
    run.on("before_val_iter")(lambda runner: measured.append(runner.model.net[0].weight.detach().clone()))
    whole = run.train()
    assert torch.equal(measured[-1], first.ema_model.module.net[0].weight)
    saved = weights(folder / "run" / "epoch_4.pth", "state_dict")
    assert torch.equal(saved["net.0.weight"], first.ema_model.module.net[0].weight)
    start: Any = {"load_from": folder / "run" / "epoch_2.pth", "resume": True, "train_cfg": {"max_epochs": 4}}
    again = runner(folder / "again", hook(), **start).train()
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), again.parameters(), strict=True))
    return Verdict(
        "works",
        "validates with the average; as in the original, `state_dict` of a checkpoint holds the average, so a run must "
        "be resumed with this hook; the resumed run ends with bit-identical weights",
    )


@case
def EmptyCacheHook(folder: Path) -> Verdict:  # noqa: N802
    runner(folder, real.EmptyCacheHook(before_epoch=True, after_iter=True)).train()
    return Verdict("works", "ran on a CPU, where there is no cache to empty")


@case
def SyncBuffersHook(folder: Path) -> Verdict:  # noqa: N802
    runner(folder, real.SyncBuffersHook()).train()
    return Verdict("works", "ran in a single process, where there is nothing to average")


@case
def EarlyStoppingHook(folder: Path) -> Verdict:  # noqa: N802
    hook = real.EarlyStoppingHook(monitor="accuracy", rule="greater", patience=1, min_delta=1)
    run = runner(folder, hook, train_cfg={"max_epochs": 9})
    run.train()
    assert run.epoch == 2
    assert "epoch_2.pth" in files(folder)
    return Verdict("works", "stops the run, and the last checkpoint is saved; the hook has no state to save")


@case
def ProfilerHook(folder: Path) -> Verdict:  # noqa: N802
    hook = real.ProfilerHook(by_epoch=False, profile_times=2, json_trace_path=str(folder / "trace.json"))
    runner(folder, hook).train()
    assert "traceEvents" in json.loads((folder / "trace.json").read_text())
    return Verdict(
        "works", "works with training; with only `val()` or `test()`, it leaves its profiler open, as in the original"
    )


@case
def NaiveVisualizationHook(folder: Path) -> Verdict:  # noqa: N802
    shown: list[str] = []
    run = runner(folder, real.NaiveVisualizationHook())
    run.visualizer.add_graph = lambda model, data: shown.append(type(model).__name__)
    run.visualizer.add_datasample = lambda name, *rest: shown.append(name)
    run.train()
    assert shown == ["ToyNet"]
    sample = Sample(img_path="pictures/one.png", ori_width=6, ori_height=5)
    batch = [{"inputs": torch.rand(1, 3, 5, 6), "data_sample": sample}]
    run.call_hook("after_test_iter", batch_idx=0, data_batch=batch, outputs=[None])
    assert shown == ["ToyNet", "one.png"]
    return Verdict("works", "passes the model and, if batches have the expected format, samples to the visualizer")


class Sample(SimpleNamespace):
    """A sample with the attributes that NaiveVisualizationHook reads."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)


class Twice(nn.Module):
    """A wrapper around a model, as in test-time augmentation."""

    asked = 0

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def test_step(self, data: Any) -> Any:
        Twice.asked += 1
        return self.module.test_step(data)  # type: ignore[operator]  # the toy model has this method


@case
def PrepareTTAHook(folder: Path) -> Verdict:  # noqa: N802
    REAL_MODELS.register_module(module=Twice, force=True)
    run = runner(folder, real.PrepareTTAHook({"type": "Twice"}))
    assert list(run.test()) == ["accuracy"]
    assert Twice.asked == 4
    return Verdict("works", "the test calls the hook's wrapper around the model")


@case
def NPUProfilerHook(folder: Path) -> Verdict:  # noqa: N802
    try:
        real.NPUProfilerHook()
    except Exception as error:
        return Verdict("not tried", f"needs an NPU, as in the original: `{type(error).__name__}`")
    raise AssertionError("this machine has an NPU: write a check for the hook")


@case
def Hook(folder: Path) -> Verdict:  # noqa: N802
    class Own(real.Hook):  # type: ignore[misc]  # mmengine has no types
        def __init__(self) -> None:
            self.seen: list[str] = []

        def _before_epoch(self, runner: Any, mode: str = "train") -> None:
            self.seen.append(mode)

        def after_train(self, runner: Any) -> None:
            self.seen.append(f"{runner.epoch} {self.is_last_train_iter(runner)}")

    hook = Own()
    run = runner(folder, hook)
    run.train()
    run.test()
    assert hook.seen == ["train", "val", "train", "val", "2 False", "test"]
    (entry,) = [entry for entry in run.plan if entry.hook is hook]
    assert len(entry.calls) == 4
    return Verdict("works", "custom subclasses run, and only at the points that they override")


def page() -> str:
    """Return the page, with every hook of the package by name."""
    lines = []
    for name in sorted(real.__all__):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = CASES[name](Path(folder))
        lines.append(f"| {name} | {verdict.word} | {verdict.seen} |")
    return HEAD.format(version=mmengine.__version__) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
