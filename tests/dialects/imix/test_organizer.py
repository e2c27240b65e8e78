"""Organizer, and iMIX's `tools/run.py`: an engine whose parts a config names."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.dialects import alias
from hookline.dialects.imix.data import DATASETS, build_imix_train_loader
from hookline.dialects.imix.engine.hooks import CheckPointHook, EvaluateHook, OptimizerHook
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.dialects.imix.engine.organizer import Organizer
from hookline.dialects.imix.evaluation import DATASET_CONVERTER, METRICS
from hookline.dialects.imix.evaluation.metric import BaseMetric
from hookline.dialects.imix.models import LOSSES, VQA_MODELS
from hookline.dialects.imix.models.losses.base_loss import BaseLoss, Losser
from hookline.dialects.imix.utils.config import Config
from hookline.dialects.imix.utils.imix_checkpoint import imixCheckpointer
from hookline.dialects.imix.utils.launch import launch
from hookline.errors import ConfigError, StorageError

# The shape of iMIX's script: a config file, arguments over it, then training or evaluation.
RUN = """
from imix.engine.imix_engine import imixEngine
from imix.engine.organizer import Organizer
from imix.utils.config import Config
from imix.utils.default_argument import default_argument_parser, default_setup
from imix.utils.imix_checkpoint import imixCheckpointer
from imix.utils.launch import launch


def main(args):
    cfg = Config.fromfile(args.config_file)
    for name, value in vars(args).items():
        if value is not None:
            cfg[name] = value
    default_setup(args, cfg)
    if cfg.eval_only:
        model = Organizer.build_model(cfg)
        imixCheckpointer(model, save_dir=cfg.work_dir).resume_or_load(cfg.load_from, resume=False)
        global results
        results = Organizer.test(cfg, model)
    else:
        imixEngine(cfg).train()


args = default_argument_parser().parse_args()
launch(run_fn=main, gpus=args.gpus, machines=args.machines, master_addr=args.master_addr,
       master_port=args.master_port, run_fn_args=(args,))
"""


@VQA_MODELS.register()
class Answers(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, 2)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.head(batch["inputs"]), "target": batch["target"]}


@LOSSES.register()
class Entropy(BaseLoss):
    loss_name = "entropy_loss"

    def forward(self, model_output: Any) -> Tensor:
        return nn.functional.cross_entropy(model_output["scores"], model_output["target"])


@DATASETS.register()
class Questions:
    def __init__(self, size: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(size, 4, generator=generator)
        self.target = (self.inputs[:, 0] > 0).long()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs[index], "target": self.target[index]}


@DATASET_CONVERTER.register()
class Choices:
    def __init__(self, post_process_type: str) -> None:
        assert post_process_type == "evaluator"

    def convert(self, batch_data: Any, model_outputs: Any) -> Any:
        return model_outputs["scores"].argmax(1), batch_data["target"]


@METRICS.register()
class Accuracy(BaseMetric):
    metric_name = "accuracy"

    def calculate(self, predictions: Any, labels: Any, **kwargs: Any) -> Any:
        return (predictions == labels).float().mean()


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    data = {"type": "Questions", "size": 16}
    return {
        "total_epochs": 2,
        "work_dir": str(folder),
        "model_device": "cpu",
        "quiet": True,
        "seed": 13,
        "dataset_type": "Questions",
        "model": {"type": "Answers", "features": 4},
        "loss": [{"type": "Entropy"}],
        "optimizer": {"type": "SGD", "lr": 0.5, "training_encoder_lr_multiply": 1},
        "train_data": {"samples_per_gpu": 4, "workers_per_gpu": 0, "data": data, "shuffle": True, "drop_last": True},
        "test_data": {"samples_per_gpu": 8, "data": {**data, "seed": 1}, "is_run_eval": True},
        "post_processor": {
            "type": "Evaluator",
            "metrics": [{"type": "Accuracy"}],
            "dataset_converters": [{"type": "Choices"}],
        },
        **changes,
    }


def test_tools_run_trains_evaluates_and_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alias("imix")
    work = tmp_path / "work"
    (tmp_path / "cfg.yaml").write_text(json.dumps(settings(tmp_path / "elsewhere")))
    (tmp_path / "run.py").write_text(RUN)
    arguments = ["run.py", "--config-file", str(tmp_path / "cfg.yaml"), "--work-dir", str(work)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(tmp_path / "run.py"))
    last = work / "Answers_Questions_model_final.pth"
    assert last.is_file()
    evaluated = [json.loads(line) for line in (work / "eval_result.json").read_text().splitlines()]
    assert [sorted(each) for each in evaluated] == [["accuracy", "epoch", "iter", "max_epoch", "max_iter"]] * 2
    monkeypatch.setattr(sys, "argv", [*arguments, "--eval-only", "--load-from", str(last)])
    ran = runpy.run_path(str(tmp_path / "run.py"))
    assert float(ran["results"]["accuracy"]) == evaluated[-1]["accuracy"] > 0.5


def test_an_organizer_has_all_parts_and_the_hooks_in_order(tmp_path: Path) -> None:
    given = settings(tmp_path, custom_hooks=[{"type": "TextLoggerHook", "text": "hi", "level": "LOW"}])
    organizer = Organizer(given)
    assert (type(organizer.model), organizer.max_epoch, organizer.max_iter, organizer.by_epoch) == (Answers, 2, 8, True)
    assert [type(hook).__name__ for hook in organizer.hooks] == [
        "OptimizerHook",
        "LRSchedulerHook",
        "IterationTimerHook",
        "CheckPointHook",
        "PeriodicLogger",
        "EvaluateHook",
        "TextLoggerHook",
    ]
    engine = imixEngine(given)
    kinds = {type(hook): hook for hook in engine.hooks}
    assert {OptimizerHook, CheckPointHook, EvaluateHook} <= kinds.keys()
    assert kinds[EvaluateHook].trainer is engine
    engine.train()
    trained = {name: engine.log_buffer.history(name).latest() for name in ("entropy_loss", "total_loss", "loss")}
    assert len(set(trained.values())) == 1


def test_parts_that_are_passed_are_used_and_the_evaluation_may_be_off_or_replaced(tmp_path: Path) -> None:
    given = settings(tmp_path)
    own = build_imix_train_loader(Config(given))
    passed = Organizer(given, model := Answers(4), own, loss_fn=Losser({"type": "Entropy"}))
    assert (passed.model, passed.train_data_loader) == (model, own)
    assert not any(isinstance(hook, EvaluateHook) for hook in passed.hooks)
    mine = EvaluateHook(lambda: {"accuracy": 1.0})
    replaced = Organizer({**given, "custom_hooks": [mine]})
    assert [hook for hook in replaced.hooks if isinstance(hook, EvaluateHook)] == [mine]
    off = {**given["test_data"], "is_run_eval": False}
    imixEngine({**given, "total_epochs": 1, "test_data": off}).train()
    assert not (tmp_path / "eval_result.json").exists()


def test_missing_and_misspelled_settings_are_refused(tmp_path: Path) -> None:
    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(ConfigError, match=message):
            imixEngine({key: value for key, value in settings(tmp_path, **changes).items() if value is not None})

    refused(
        r"unknown model 'Answer'; did you mean 'Answers'\?\. iMIX's own models are not included",
        model={"type": "Answer"},
    )
    refused(r"the config has no 'model': pass one", model=None)
    refused(r"the config needs train_data=dict\(data=dict\(type=", train_data=None)
    refused(r"train_data has no 'samples_per_gpus'; did you mean", train_data={"data": {}, "samples_per_gpus": 1})
    refused(r"the config has test_data but no post_processor", post_processor=None)
    sampler = {"data": {"type": "Questions", "size": 4}, "sampler": "RandomSampel"}
    refused(r"train_data: sampler: unknown sampler 'RandomSampel'; did you mean 'RandomSampler'", train_data=sampler)
    refused(r"has 'test_dat', which nothing reads; did you mean 'test_data'", test_data=None, test_dat={})


@pytest.mark.parametrize(
    "section",
    [
        {"samples_per_gpu": 4, "sampler": "SequentialSampler"},
        {
            "batch_sampler": {
                "type": "BatchSampler",
                "sampler": "SequentialSampler",
                "batch_size": 4,
                "drop_last": False,
            }
        },
    ],
)
def test_samplers_are_named_in_the_config(section: dict[str, Any]) -> None:
    loader = build_imix_train_loader(Config(train_data={"data": {"type": "Questions", "size": 6}, **section}))
    assert [len(batch["target"]) for batch in loader] == [4, 2]


def test_a_checkpointer_reads_weights_of_imix_and_refuses_others(tmp_path: Path) -> None:
    theirs, ours = Answers(4), Answers(4)
    wrapped = {f"module.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"model": wrapped, "epoch": 3}, tmp_path / "theirs.pth")
    assert imixCheckpointer(ours, save_dir="x").resume_or_load(tmp_path / "theirs.pth", resume=False) == {"epoch": 3}
    assert torch.equal(ours.head.weight, theirs.head.weight)
    with pytest.raises(StorageError, match="does not fit the model"):
        imixCheckpointer(Answers(5)).resume_or_load(tmp_path / "theirs.pth")
    with pytest.raises(StorageError, match="an engine resumes a run"):
        imixCheckpointer(ours).resume_or_load(tmp_path / "theirs.pth", resume=True)
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with pytest.raises(StorageError, match="has neither a model nor a state_dict"):
        imixCheckpointer(ours).load_checkpoint(tmp_path / "empty.pth")


def test_several_gpus_need_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"torchrun --nproc-per-node 2 -m hookline run-as imix SCRIPT"):
        launch(print, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    called: list[int] = []
    launch(called.append, 2, run_fn_args=(1,))
    assert called == [1]


def test_a_loss_without_a_name_that_contains_loss_is_refused() -> None:
    class Nameless(Entropy):
        loss_name = "entropy"

    LOSSES.register("Nameless", force=True)(Nameless)
    output = {"scores": torch.zeros(1, 2), "target": torch.zeros(1, dtype=torch.long)}
    with pytest.raises(ConfigError, match="no name of a loss contains 'loss': entropy"):
        Losser({"type": "Nameless"})(output)
