"""Complete, typical projects: a config file, classes in registries, and one line that trains."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.registry import DATASETS, HOOKS, MODELS, RUNNERS
from hookline.dialects.mmengine.runner import Runner
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import TEST, VAL, runner_of, weights

YAML = """
model: {type: ToyNet, dropout: 0.1}
work_dir: WORK_DIR
train_dataloader: &loader
  dataset: {type: Table, seed: 0}
  sampler: {type: DefaultSampler, shuffle: true}
  collate_fn: {type: default_collate}
  batch_size: 8
  num_workers: 0
val_dataloader:
  <<: *loader
  dataset: {type: Table, seed: 1}
  sampler: {type: DefaultSampler, shuffle: false}
train_cfg: {by_epoch: true, max_epochs: 2, val_interval: 1}
val_cfg: {}
optim_wrapper: {type: OptimWrapper, optimizer: {type: AdamW, lr: 0.01}, accumulative_counts: 2}
param_scheduler:
  - {type: LinearLR, start_factor: 0.1, by_epoch: false, begin: 0, end: 4}
  - {type: CosineAnnealingLR, T_max: 2, by_epoch: true, convert_to_iter_based: true}
val_evaluator: {type: ToyAccuracy}
default_hooks:
  checkpoint: {type: CheckpointHook, interval: 1, save_best: auto, rule: greater}
  logger: {type: LoggerHook, interval: 2}
  visualization: {type: Counts}
custom_hooks: [{type: EMAHook, momentum: 0.1}]
randomness: {seed: 3}
log_level: WARNING
"""

PYTHON = """
_base_ = "base.yaml"
optim_wrapper = dict(optimizer=dict(lr=0.01 * 5))
train_cfg = dict(max_epochs=1)
work_dir = _base_.work_dir + "-python"
"""


class Table(Dataset[Any]):
    def __init__(self, seed: int) -> None:
        inputs, labels = (torch.cat(parts) for parts in zip(*toy_data(5, seed=seed), strict=True))
        self.rows = list(zip(inputs, labels, strict=True))

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


class Counts(Hook):
    def __init__(self) -> None:
        self.batches = 0

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        self.batches += 1


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (HOOKS, DATASETS, MODELS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    DATASETS.register_module(module=Table)
    HOOKS.register_module(module=Counts)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(textwrap.dedent(YAML).replace("WORK_DIR", str(tmp_path / "run")))
    return path


def test_a_config_in_yaml(config: Path, tmp_path: Path) -> None:
    cfg = Config.fromfile(str(config))
    cfg.merge_from_dict({"randomness.seed": 4})
    runner = RUNNERS.build(cfg)
    assert type(runner) is Runner
    assert (runner.seed, runner.cfg.randomness.seed) == (4, 4)
    runner.train()
    files = sorted(path.name for path in (tmp_path / "run").glob("*.pth"))
    assert files[-2:] == ["epoch_1.pth", "epoch_2.pth"]
    assert files[0].startswith("best_accuracy_epoch_")
    (counts,) = [hook for hook in runner.hooks if isinstance(hook, Counts)]
    assert counts.batches == 2 * (5 + 5)
    assert runner.optim_wrapper.updates == 2 * 3
    assert "AdamW" in (tmp_path / "run" / "config.yaml").read_text()
    lr = [json.loads(line).get("train/lr") for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lr[0] == pytest.approx(0.01 * 0.4, rel=0.1)
    assert len({each for each in lr if each is not None}) == 4


def test_a_config_in_python_if_the_caller_allows_it(config: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    runner = Runner.from_cfg(Config.fromfile(tmp_path / "mine.py", allow_python_config=True))
    runner.train()
    assert (runner.epoch, runner.optim_wrapper.param_groups[0]["initial_lr"]) == (1, 0.05)
    assert (tmp_path / "run-python" / "epoch_1.pth").is_file()


def test_a_resumed_run_is_bit_identical(config: Path, tmp_path: Path) -> None:
    def last(name: str, **options: Any) -> dict[str, Tensor]:
        cfg = Config.fromfile(config)
        cfg.merge_from_dict({"work_dir": str(tmp_path / name), "train_cfg.max_epochs": 3, **options})
        Runner.from_cfg(cfg).train()
        return weights(tmp_path / name / "epoch_3.pth", "state_dict")  # type: ignore[no-any-return]

    whole = last("whole")
    again = last("again", resume=True, load_from=str(tmp_path / "whole" / "epoch_1.pth"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


class Pair(BaseModel):
    """Two networks with one optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        real, _ = self.data_preprocessor(data, True)
        with optim_wrapper["critic"].optim_context(self.critic):
            critic_loss = (self.critic(self.generator(real).detach()) - self.critic(real)).mean()
        optim_wrapper["critic"].update_params(critic_loss)
        with optim_wrapper["generator"].optim_context(self.generator):
            generator_loss = -self.critic(self.generator(real)).mean()
        optim_wrapper["generator"].update_params(generator_loss)
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}

    def forward(self, *args: Any, mode: str = "tensor", **kwargs: Any) -> Any:
        return self.generator(*args)


def test_two_optimizers(tmp_path: Path) -> None:
    from hookline.dialects.mmengine.optim import OptimWrapper, OptimWrapperDict

    def train(name: str, epochs: int, **more: Any) -> Runner:
        torch.manual_seed(0)
        model = Pair()
        optims = {
            part: OptimWrapper(torch.optim.Adam(getattr(model, part).parameters(), lr=0.01))
            for part in ("generator", "critic")
        }
        runner = runner_of(
            tmp_path / name, [*VAL, *TEST], model=model, train_cfg={"max_epochs": epochs},
            optim_wrapper=OptimWrapperDict(**optims),
            param_scheduler={"critic": [{"type": "ExponentialLR", "gamma": 0.5, "end": 9}]}, **more,
        )  # fmt: skip
        runner.train()
        return runner

    whole = train("whole", 3)
    assert whole.optim_wrapper["critic"].optimizer.param_groups[0]["lr"] == 0.01 * 0.5**3
    assert {name: len(found) for name, found in whole.param_schedulers.items()} == {"generator": 0, "critic": 1}
    assert len(whole.message_hub.get_scalar("train/generator_loss")) == 12
    again = train("again", 3, load_from=tmp_path / "whole" / "epoch_1.pth", resume=True)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lower_precision_on_a_cpu(tmp_path: Path, dtype: str) -> None:
    wrapper = {"type": "AmpOptimWrapper", "optimizer": {"type": "SGD", "lr": 0.1}, "dtype": dtype}
    runner = runner_of(tmp_path / "run", optim_wrapper=wrapper, val_cfg={"fp16": True})
    before = [weight.clone() for weight in runner.model.parameters()]
    runner.train()
    assert runner.optim_wrapper.updates == 8
    assert not any(torch.equal(one, two) for one, two in zip(before, runner.model.parameters(), strict=True))


def test_visualizer_backends_receive_the_numbers_of_the_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Draws(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.visualizer.add_scalar("mine", 0.5, runner.iter)
            runner.visualizer.add_image("picture", torch.zeros(4, 4, 3).numpy(), runner.iter)

    visualizer = {
        "type": "Visualizer",
        "vis_backends": [{"type": "LocalVisBackend"}, {"type": "TensorboardVisBackend"}],
    }
    runner_of(tmp_path / "run", visualizer=visualizer, custom_hooks=[Draws()]).train()
    (folder,) = {path.parent for path in (tmp_path / "run").rglob("events.out.*")}
    found = EventAccumulator(str(folder))
    found.Reload()
    assert {"mine", "train/loss", "val/accuracy"} <= set(found.Tags()["scalars"])
    assert found.Tags()["images"] == ["picture"]


def test_validation_without_training_works_with_save_best_and_early_stopping(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"type": "CheckpointHook", "save_best": ["accuracy"], "rule": "greater"}}
    stopping = [{"type": "EarlyStoppingHook", "monitor": "accuracy"}]
    runner = runner_of(tmp_path / "run", default_hooks=hooks, custom_hooks=stopping)
    assert list(runner.val()) == ["accuracy"]
    assert not list((tmp_path / "run").glob("*.pth"))


def test_logs_are_copied_to_one_folder_once(tmp_path: Path) -> None:
    logger = {"logger": {"type": "LoggerHook", "out_dir": str(tmp_path / "all")}}
    runner = runner_of(tmp_path / "run", default_hooks=logger)
    runner.train()
    runner.test()
    assert sorted(path.name for path in (tmp_path / "all" / "run").iterdir()) == [
        "events.jsonl",
        "hooks.json",
        "metrics.jsonl",
        "plan.txt",
        "run.log",
    ]
