"""Parts that OpenMMLab projects import: test-time augmentation, pictures, recomputed activations, small helpers."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.evaluator.metric import _to_cpu
from hookline.dialects.mmengine.hooks import NaiveVisualizationHook
from hookline.dialects.mmengine.hooks.test_time_aug_hook import PrepareTTAHook, build_runner_with_tta
from hookline.dialects.mmengine.model import BaseTTAModel, revert_sync_batchnorm
from hookline.dialects.mmengine.registry import DATASETS, MODELS
from hookline.dialects.mmengine.runner import load_checkpoint, turn_on_activation_checkpointing
from hookline.dialects.mmengine.structures import BaseDataElement, InstanceData
from hookline.dialects.mmengine.utils.dl_utils.parrots_wrapper import is_rocm_pytorch
from hookline.errors import ConfigError
from tests.dialects.mmengine.parts import TRAIN, VAL, runner_of


class Versions(torch.utils.data.Dataset[Any]):
    """Samples with two versions each, of which the second one is mirrored, if the pipeline says so."""

    def __init__(self, pipeline: Any = "plain") -> None:
        self.pipeline = pipeline

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        one = torch.arange(4.0) + index
        label = torch.tensor(index % 2)
        if self.pipeline == "plain":
            return {"inputs": one, "labels": label}
        return {"inputs": [one, one.flip(0)], "labels": [label, label]}


class Merged(BaseTTAModel):
    """Adds up the predictions for the versions of a sample."""

    def test_step(self, data: Any) -> Any:
        stacked = {name: [torch.stack(list(each)) for each in value] for name, value in data.items()}
        return super().test_step(stacked)

    def merge_preds(self, data_samples_list: list[Any]) -> list[Any]:
        return [
            {"prediction": sum(each["prediction"] for each in versions), "label": versions[0]["label"]}
            for versions in data_samples_list
        ]


@pytest.fixture(autouse=True)
def _registered() -> None:
    MODELS.register_module(module=Merged, force=True)
    DATASETS.register_module(module=Versions, force=True)


def test_prepare_tta_hook_puts_the_model_into_one_for_augmented_batches(tmp_path: Path) -> None:
    data = {"dataset": {"type": "Versions", "pipeline": "both"}, "batch_size": 2}
    hook = {"type": "PrepareTTAHook", "tta_cfg": {"type": "Merged"}}
    runner = runner_of(tmp_path, (*TRAIN, *VAL), test_dataloader=data, custom_hooks=[hook])
    model = runner.model
    found = runner.test()
    assert isinstance(runner.model, Merged)
    assert runner.model.module is model
    expected = []
    for index in range(4):
        one = torch.arange(4.0) + index
        votes = sum(int(model(each[None]).argmax(1)) for each in (one, one.flip(0)))
        expected.append(float(votes == index % 2))
    assert found == {"accuracy": sum(expected) / 4}


def test_a_runner_with_test_time_augmentation_is_built_from_a_config(tmp_path: Path) -> None:
    cfg = Config(
        {
            "model": {"type": "ToyNet"},
            "work_dir": str(tmp_path),
            "test_dataloader": {"dataset": {"type": "Versions"}, "batch_size": 2},
            "test_cfg": {},
            "test_evaluator": {"type": "ToyAccuracy"},
            "log_level": "WARNING",
        }
    )
    with pytest.raises(AssertionError, match="the config needs 'tta_model'"):
        build_runner_with_tta(cfg)
    cfg.tta_model, cfg.tta_pipeline = {"type": "Merged"}, "both"
    runner = build_runner_with_tta(cfg)
    runner.test()
    assert isinstance(runner.model, Merged)
    assert any(isinstance(hook, PrepareTTAHook) for hook in runner.hooks)


def test_a_model_for_augmented_batches_starts_with_the_weights_of_the_model_in_it(tmp_path: Path) -> None:
    trained = runner_of(tmp_path / "trained")
    trained.train()
    file = tmp_path / "trained" / "epoch_2.pth"
    data = {"dataset": {"type": "Versions", "pipeline": "both"}, "batch_size": 2}
    model = {"type": "Merged", "module": {"type": "ToyNet"}}
    tested = runner_of(tmp_path / "tested", (*TRAIN, *VAL), model=model, test_dataloader=data, load_from=str(file))
    tested.test()
    loaded = Merged({"type": "ToyNet"})
    load_checkpoint(loaded, str(file), strict=True)
    for one, *others in zip(trained.model.parameters(), tested.model.parameters(), loaded.parameters(), strict=True):
        assert all(torch.equal(one, other) for other in others)


#: The pictures that MMEngine 0.10.7 passes on: cut to 2 x 2 pixels, and stretched to 3 x 5 without the scaling.
CUT = [[[2, 1, 0], [5, 4, 3]], [[14, 13, 12], [17, 16, 15]]]
STRETCHED = [
    [[7, 2.5, 1], [10, 3.25, 1.75], [13, 4, 2.5]],
    [[9.4, 3.1, 1.6], [12.4, 3.85, 2.35], [15.4, 4.6, 3.1]],
    [[19, 5.5, 4], [22, 6.25, 4.75], [25, 7, 5.5]],
    [[28.6, 7.9, 6.4], [31.6, 8.65, 7.15], [34.6, 9.4, 7.9]],
    [[31, 8.5, 7], [34, 9.25, 7.75], [37, 10, 8.5]],
]


def test_the_naive_visualization_passes_restored_images_to_the_visualizer() -> None:
    calls: list[Any] = []
    runner = SimpleNamespace(visualizer=SimpleNamespace(add_datasample=lambda *args: calls.append(args)))
    inputs = torch.arange(48.0).reshape(1, 4, 4, 3).permute(0, 3, 1, 2)
    meta = {"scale": (2, 2), "pad_shape": (4, 4), "ori_width": 2, "ori_height": 2, "img_path": "a/b.jpg"}
    scaling = {"mean": (1, 2, 3), "std": (0.5, 0.5, 2)}
    samples = [
        BaseDataElement(metainfo=meta),
        BaseDataElement(metainfo=meta),
        BaseDataElement(metainfo=meta | {"ori_width": 3, "ori_height": 5, "img_norm_cfg": scaling}),
    ]
    prediction, hook = BaseDataElement(), NaiveVisualizationHook(interval=2, draw_gt=False)
    for batch_idx, sample in zip((0, 1, 3), samples, strict=True):
        hook.after_test_iter(runner, batch_idx, [{"inputs": inputs, "data_sample": sample}], [prediction])
    hook.after_test_iter(runner, 4, [{"inputs": inputs, "data_sample": samples[2]}], [prediction])
    assert [(name, rest) for name, _, *rest in calls] == [
        ("b.jpg", [samples[1], prediction, False, True]),
        ("b.jpg", [samples[2], prediction, False, True]),
    ]
    assert calls[0][1].dtype == np.float32
    assert np.array_equal(calls[0][1], CUT)
    assert np.allclose(calls[1][1], STRETCHED, rtol=1e-6)


class Counting(nn.Sequential):
    """Counts its forward passes."""

    calls = 0

    def forward(self, inputs: Any, scale: float = 1.0) -> Any:
        type(self).calls += 1
        whole: Any = super()
        return whole.forward(inputs) * scale


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counting(nn.Linear(3, 3), nn.Tanh())

    def forward(self, inputs: Any) -> Any:
        return self.inner(inputs, scale=2.0).sum()


def test_activations_are_computed_again_and_the_gradients_are_the_same() -> None:
    torch.manual_seed(0)
    usual = Outer()
    saving = copy.deepcopy(usual)
    turn_on_activation_checkpointing(saving, "inner")
    copied = copy.deepcopy(saving)
    inputs = torch.randn(4, 3)
    for model in (usual, saving, copied):
        Counting.calls = 0
        model(inputs).backward()
        assert Counting.calls == (1 if model is usual else 2)
    for one, *others in zip(usual.parameters(), saving.parameters(), copied.parameters(), strict=True):
        assert all(torch.equal(one.grad, other.grad) for other in others)  # type: ignore[arg-type]  # it has one
    assert saving.state_dict().keys() == usual.state_dict().keys()
    with pytest.raises(ConfigError, match="activation_checkpointing: no module 'iner'; did you mean 'inner'"):
        turn_on_activation_checkpointing(usual, ["iner"])


def test_a_run_recomputes_the_activations_that_its_config_names(tmp_path: Path) -> None:
    runs = [
        runner_of(tmp_path / name, cfg=Config({"activation_checkpointing": modules} if modules else {}))
        for name, modules in (("usual", None), ("saving", ["net"]))
    ]
    for runner in runs:
        runner.train()
    assert "forward" in vars(runs[1].model.net)
    for one, other in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_settings_that_have_no_effect_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runner_of(tmp_path, cfg=Config({"compile": True, "efficient_conv_bn_eval": None})).train()
    assert [each for each in caplog.messages if "no effect" in each] == [
        "the config has 'compile', which has no effect here; the model trains as it is"
    ]


def test_synchronized_batch_norms_become_ordinary_ones_with_their_state() -> None:
    net: Any = nn.Sequential(
        nn.Linear(2, 3), nn.SyncBatchNorm(3, eps=0.1, momentum=0.3), nn.Sequential(nn.SyncBatchNorm(3))
    )
    net[1].running_mean += 2
    net[1].eval()
    state = copy.deepcopy(net.state_dict())
    reverted: Any = revert_sync_batchnorm(net)
    norm: Any = reverted[1]
    assert not any(isinstance(module, nn.SyncBatchNorm) for module in reverted.modules())
    assert (norm.eps, norm.momentum, norm.training) == (0.1, 0.3, False)
    assert all(torch.equal(state[name], value) for name, value in reverted.state_dict().items())
    assert reverted(torch.zeros(4, 2)).shape == (4, 3)


def test_small_helpers() -> None:
    assert is_rocm_pytorch() is False
    element = BaseDataElement(boxes=InstanceData(scores=torch.ones(2, requires_grad=True)))
    found = _to_cpu({"a": [element, torch.ones(1, requires_grad=True)], "b": ("text", 3)})
    assert found["b"] == ("text", 3)
    assert not found["a"][1].requires_grad
    assert found["a"][0].boxes.scores.tolist() == [1, 1]
