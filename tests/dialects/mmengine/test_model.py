"""Models: their steps, their losses, weight initialization, and averaged models."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.common import averaging
from hookline.dialects.mmengine.model import (
    BaseAveragedModel,
    BaseDataPreprocessor,
    BaseModel,
    BaseModule,
    ExponentialMovingAverage,
    ImgDataPreprocessor,
    ModuleDict,
    ModuleList,
    MomentumAnnealingEMA,
    Sequential,
    StochasticWeightAverage,
    bias_init_with_prob,
    is_model_wrapper,
    merge_dict,
)
from hookline.dialects.mmengine.registry import MODELS
from hookline.dialects.mmengine.runner import save_checkpoint
from hookline.errors import ConfigError
from tests.dialects.mmengine.parts import ToyNet


class Notes:
    """An optim that only records the losses."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def optim_context(self, model: nn.Module) -> Any:
        return nullcontext()

    def update_params(self, loss: Tensor) -> None:
        self.losses.append(loss)


class Several(BaseModel):
    def __init__(self, losses: Any) -> None:
        super().__init__()
        self.losses = losses

    def forward(self, *inputs: Any, mode: str = "tensor", **named: Any) -> Any:
        return self.losses if mode == "loss" else [mode, inputs, named]


def test_a_step_updates_with_the_sum_of_the_losses_and_returns_the_values_to_log() -> None:
    losses = {"loss_a": torch.tensor([1.0, 3.0]), "loss_b": [torch.tensor(1.0), torch.tensor([2.0, 4.0])]}
    optim, model = Notes(), Several({**losses, "accuracy": torch.tensor(0.5)})
    logged = model.train_step((torch.zeros(1),), optim)
    assert {name: value.item() for name, value in logged.items()} == {
        "loss": 6.0, "loss_a": 2.0, "loss_b": 4.0, "accuracy": 0.5,
    }  # fmt: skip
    assert list(logged) == ["loss", "loss_a", "loss_b", "accuracy"]
    assert [loss.item() for loss in optim.losses] == [6.0]


def test_steps_pass_the_batch_to_the_model_unchanged() -> None:
    model = Several({})
    assert model.val_step((1, 2)) == ["predict", (1, 2), {}]
    assert model.test_step({"x": 1}) == ["predict", (), {"x": 1}]
    assert model([1]) == ["tensor", ([1],), {}]


@pytest.mark.parametrize(
    ("losses", "batch", "message"),
    [
        ({"loss": "much"}, [1], "the loss 'loss' must be a tensor or a list of tensors, not 'much'"),
        (torch.tensor(1.0), [1], "Several.forward(mode='loss') must return a dict of losses, not a Tensor"),
        ({}, 3, "the data_preprocessor of Several must return a dict, list or tuple for forward, not a int"),
    ],
)
def test_invalid_losses_and_batches_are_refused(losses: Any, batch: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Several(losses).train_step(batch, Notes())
    assert str(caught.value) == message


def test_a_preprocessor_is_built_and_knows_the_device() -> None:
    model = ToyNet(data_preprocessor={"type": "BaseDataPreprocessor"})
    assert type(model.data_preprocessor) is BaseDataPreprocessor
    assert model.data_preprocessor.device == torch.device("cpu")
    assert model.to("meta").data_preprocessor.device == torch.device("meta")
    assert not any("data_preprocessor" in name for name in model.state_dict())
    with pytest.raises(TypeError, match="^ToyNet: data_preprocessor must be a module or a dict with a 'type', not 3$"):
        ToyNet(data_preprocessor=3)


def test_images_are_normalized_reordered_and_padded() -> None:
    preprocessor = ImgDataPreprocessor(mean=[1.0], std=[2.0], pad_size_divisor=4, pad_value=9, bgr_to_rgb=True)
    images = [torch.stack([torch.full((2, 3), float(value)) for value in (1, 3, 5)]), torch.ones(3, 4, 4)]
    found = preprocessor({"inputs": images})
    assert found["inputs"].shape == (2, 3, 4, 4)
    assert found["inputs"][0, :, 0, 0].tolist() == [2.0, 1.0, 0.0]
    assert found["inputs"][0, 0, 3, 3] == 9
    assert found["data_samples"] is None
    assert (
        MODELS.build({"type": "ImgDataPreprocessor"})({"inputs": torch.ones(1, 3, 2, 2)})["inputs"].dtype == torch.float
    )


@pytest.mark.parametrize(
    "given", [{"bgr_to_rgb": True, "rgb_to_bgr": True}, {"mean": [1.0]}, {"mean": [1.0, 2.0], "std": [1.0, 2.0]}]
)
def test_invalid_image_settings_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="^ImgDataPreprocessor: "):
        ImgDataPreprocessor(**given)


# -- weight initialization


class Net(BaseModule):
    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        self.conv = nn.Conv1d(1, 2, 3)
        self.head = nn.Linear(2, 2)


def test_weights_are_initialized_as_described() -> None:
    net = Net([
        {
            **{"type": "Constant", "val": 0.5, "bias": 0.25, "layer": ["Conv1d", "Linear"]},
            "override": {"name": "head", "type": "Constant", "val": 2.0, "bias_prob": 0.01},
        },
    ])  # fmt: skip
    assert not net.is_init
    net.init_weights()
    assert net.is_init
    assert net.conv.weight.unique().tolist() == [0.5]
    assert net.conv.bias is not None
    assert net.conv.bias.unique().tolist() == [0.25]
    assert net.head.weight.unique().tolist() == [2.0]
    assert net.head.bias[0].item() == pytest.approx(bias_init_with_prob(0.01))


@pytest.mark.parametrize("kind", ["Normal", "TruncNormal", "Uniform", "Xavier", "Kaiming", "Caffe2Xavier"])
def test_every_initializer_changes_weights_and_zeroes_biases(kind: str) -> None:
    net = Net({"type": kind, "layer": "Linear"})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.init_weights()
    assert not torch.equal(net.head.weight, before["head.weight"])
    assert net.head.bias.tolist() == [0.0, 0.0]
    assert torch.equal(net.conv.weight, before["conv.weight"])


def test_an_initializer_without_layers_changes_nothing_and_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    net = Net({"type": "Constant", "val": 3.0})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.init_weights()
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert caplog.messages == [
        "the init_cfg of Net changes nothing, because it has no 'layer': {'type': 'Constant', 'val': 3.0}"
    ]


def test_weights_are_initialized_once(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    net.init_weights()
    net.init_weights()
    assert caplog.messages == ["init_weights of Net was already called; the weights are not changed"]


def test_children_are_initialized_too_and_pretrained_weights_last(tmp_path: Path) -> None:
    stored = Net().state_dict()
    save_checkpoint({"state_dict": {f"backbone.{name}": value for name, value in stored.items()}}, tmp_path / "x.pth")
    whole = Sequential(
        Net({"type": "Constant", "val": 1.0, "layer": "Linear"}),
        ModuleList([Net({"type": "Pretrained", "checkpoint": str(tmp_path / "x.pth"), "prefix": "backbone"})]),
        ModuleDict({"a": nn.Linear(1, 1)}, init_cfg={"type": "Constant", "val": 3.0, "layer": "Linear"}),
    )
    whole.init_weights()
    state = whole.state_dict()
    assert state["0.head.weight"].unique().tolist() == [1.0]
    assert torch.equal(state["1.0.conv.weight"], stored["conv.weight"])
    assert state["2.a.weight"].tolist() == [[3.0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "Constant"}, "ConstantInit: the setting 'val' is required"),
        ({"type": "Kaimin"}, "unknown weight initializer 'Kaimin'; did you mean 'Kaiming'?"),
        (
            {"type": "Xavier", "distribution": "even", "layer": "Linear"},
            "the distribution of weights must be 'normal' or 'uniform', not 'even'",
        ),
        (
            {"type": "Constant", "val": 1, "override": {"name": "haed"}},
            "init_cfg overrides 'haed', but Net has no such module",
        ),
        (["Constant"], "init_cfg must be a dict with a 'type' or a list of such dicts, not 'Constant'"),
    ],
)
def test_invalid_initializations_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Net(given).init_weights()
    assert message in str(caught.value)


# -- averages


@pytest.mark.parametrize(
    ("made", "native"),
    [
        (lambda model: ExponentialMovingAverage(model, momentum=0.1), averaging.ExponentialMovingAverage(0.1)),
        (
            lambda model: MomentumAnnealingEMA(model, momentum=0.1, gamma=3, interval=2),
            averaging.MomentumAnnealingEMA(0.1, 3, 2),
        ),
        (lambda model: StochasticWeightAverage(model, update_buffers=True), averaging.StochasticWeightAverage(1, True)),
    ],
)
def test_an_averaged_model_equals_hooklines_average(made: Any, native: averaging.WeightAverage) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    averaged = made(model)
    for seed in range(6):
        with torch.no_grad():
            for number, tensor in enumerate([*model.parameters(), *model.buffers()]):
                torch.manual_seed(10 * seed + number)
                tensor.copy_(torch.rand(tensor.shape) * 9)
        averaged.update_parameters(model)
        native.update(model)
    expected = native.state_dict(model)["averaged"]
    for name, value in averaged.module.state_dict().items():
        assert torch.allclose(value.float(), expected[name].float()), name
    assert int(averaged.steps) == 6
    assert averaged(torch.ones(2, 3)).shape == (2, 3)
    assert not any(parameter.requires_grad for parameter in averaged.parameters())


def test_invalid_averages_are_refused() -> None:
    with pytest.raises(ConfigError, match="^ExponentialMovingAverage: momentum must be between 0 and 1, not 2$"):
        ExponentialMovingAverage(nn.Linear(1, 1), momentum=2)
    with pytest.raises(ConfigError, match="^MomentumAnnealingEMA: gamma must be greater than 0, not 0$"):
        MomentumAnnealingEMA(nn.Linear(1, 1), gamma=0)
    lazy = BaseAveragedModel(nn.Linear(1, 1))
    lazy.update_parameters(nn.Linear(1, 1))
    with pytest.raises(NotImplementedError, match="^BaseAveragedModel must define avg_func"):
        lazy.update_parameters(nn.Linear(1, 1))


def test_model_wrappers_are_detected() -> None:
    assert is_model_wrapper(nn.DataParallel(nn.Linear(1, 1)))
    assert not is_model_wrapper(nn.Linear(1, 1))
    assert merge_dict({"a": 1}, {"b": 2}, {"a": 3}) == {"a": 3, "b": 2}
