"""OptimWrapper: updates through hookline's Optim, with MMEngine's names, in one call or in parts."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline import Optim, Runner, TrainLoop
from hookline.dialects.mmengine.optim import (
    AmpOptimWrapper,
    BaseOptimWrapper,
    DefaultOptimWrapperConstructor,
    OptimWrapper,
    OptimWrapperDict,
    build_optim_wrapper,
    build_param_schedulers,
)
from hookline.dialects.mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIMIZERS
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.optim.optims import Optims
from hookline.testing import toy_data, toy_model
from tests.dialects.mmengine.parts import VAL, ToyNet, runner_of, weights


def wrapped(model: nn.Module, kind: Any = OptimWrapper, **options: Any) -> Any:
    return kind(optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **options)


def same(ours: nn.Module, theirs: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def trained(update: Any, **options: Any) -> nn.Module:
    model = toy_model()
    optim = wrapped(model, **options)
    for batch in toy_data(6):
        update(optim, cross_entropy(model, batch))
    return model


@pytest.mark.parametrize(
    "options", [{}, {"accumulative_counts": 3}, {"clip_grad": {"max_norm": 0.1}}, {"accumulative_counts": 2}]
)
def test_one_call_and_its_parts_make_the_same_update(options: dict[str, Any]) -> None:
    def by_parts(optim: OptimWrapper, loss: torch.Tensor) -> None:
        optim.backward(optim.scale_loss(loss))
        if optim.should_update():
            optim.step()
            optim.zero_grad()

    def with_arguments(optim: OptimWrapper, loss: torch.Tensor) -> None:
        optim.update_params(loss, zero_kwargs={"set_to_none": True})

    def whole(optim: OptimWrapper, loss: torch.Tensor) -> None:
        optim.update_params(loss)

    def native(optim: OptimWrapper, loss: torch.Tensor) -> None:
        optim.update(loss)

    models = [trained(update, **options) for update in (whole, by_parts, with_arguments, native)]
    assert all(same(models[0], other) for other in models[1:])
    assert not same(models[0], toy_model())


def test_windows_are_counted_as_in_the_original() -> None:
    model = toy_model()
    optim = wrapped(model, accumulative_counts=5)
    optim.initialize_count_status(model, 0, 12)
    seen = []
    for batch in toy_data(12):
        sync, share = optim.should_sync(), round(1 / optim.scale_loss(torch.tensor(1.0)).item())
        optim.update_params(cross_entropy(model, batch))
        seen.append((optim.inner_count, sync, share, optim.should_update(), optim.updates))
    assert [number for number, _, _, updated, _ in seen if updated] == [5, 10, 12]
    assert [number for number, sync, _, _, _ in seen if sync] == [5, 10, 12]
    assert [share for _, _, share, _, _ in seen] == [5] * 10 + [2] * 2
    assert seen[-1][-1] == 3
    assert optim._accumulative_counts == 5


def test_gradients_are_not_synchronized_until_the_window_is_complete() -> None:
    class Spread(nn.Linear):
        entered = 0

        def no_sync(self) -> Any:
            self.entered += 1
            return nullcontext()

    model = Spread(2, 2)
    optim = wrapped(model, accumulative_counts=3)
    for _ in range(6):
        with optim.optim_context(model):
            loss = model(torch.ones(1, 2)).sum()
        optim.update_params(loss)
    assert model.entered == 4


@pytest.mark.parametrize(
    ("given", "largest"),
    [
        ({"max_norm": 0.5}, None),
        ({"max_norm": 0.5, "norm_type": 1.0}, None),
        ({"max_norm": 0.5, "error_if_nonfinite": True}, None),
        ({"type": "value", "clip_value": 0.01}, 0.01),
        ({"type": "value", "clip_value": 0.01, "foreach": False}, 0.01),
    ],
)
def test_gradients_are_clipped_as_torch_does(given: dict[str, Any], largest: float | None) -> None:
    models = [toy_model(), toy_model()]
    ours = OptimWrapper(torch.optim.SGD(models[0].parameters(), lr=1.0), clip_grad=given)
    kept = dict(given)
    ours.update_params(100 * cross_entropy(models[0], toy_data(1)[0]))
    assert given == kept
    (100 * cross_entropy(models[1], toy_data(1)[0])).backward()  # type: ignore[no-untyped-call]
    options = {name: value for name, value in given.items() if name != "type"}
    clip = torch.nn.utils.clip_grad_value_ if largest else torch.nn.utils.clip_grad_norm_
    norm = clip(models[1].parameters(), **options)
    torch.optim.SGD(models[1].parameters(), lr=1.0).step()
    assert same(*models)
    if not largest:
        assert ours.grad_norm is not None
        assert torch.equal(ours.grad_norm, norm)  # type: ignore[arg-type]


def test_invalid_clipping_is_refused() -> None:
    model = toy_model()
    with pytest.raises(ValueError, match=r"^clip_grad: type must be 'norm' or 'value', not 'nrom'$"):
        wrapped(model, clip_grad={"type": "nrom", "max_norm": 1})
    with pytest.raises(
        ValueError, match=r"^clip_grad of type 'norm' has no option 'max_nrom'; did you mean 'max_norm'\?$"
    ):
        wrapped(model, clip_grad={"max_nrom": 1})
    with pytest.raises(ValueError, match=r"^clip_grad of type 'value' needs 'clip_value'; it only has \['type'\]$"):
        wrapped(model, clip_grad={"type": "value"})
    with pytest.raises(TypeError, match=r"^clip_grad must be a dict such as dict\(max_norm=1.0\), not a float$"):
        wrapped(model, clip_grad=1.0)
    with pytest.raises(ConfigError, match=r"^accumulate must be the number of micro-batches per update"):
        wrapped(model, accumulative_counts=0)


def test_several_groups_have_one_more_with_the_base_settings(tmp_path: Path) -> None:
    model = toy_model()
    config = {"optimizer": {"type": "SGD", "lr": 0.1}, "paramwise_cfg": {"bias_lr_mult": 2.0}}
    optim = build_optim_wrapper(model, config)
    build_param_schedulers(optim, {"type": "StepLR", "step_size": 1, "gamma": 0.5})
    assert optim.get_lr() == {"base_lr": [0.1], "lr": [0.1, 0.2, 0.1, 0.2]}
    optim.schedulers[0].scheduler.step()
    assert optim.get_lr() == {"base_lr": [0.05], "lr": [0.05, 0.1, 0.05, 0.1]}
    assert len(optim.param_groups) == 5
    assert len(optim.optimizer.param_groups) == 4
    other = build_optim_wrapper(toy_model(), config)
    torch.save(optim.state_dict(), tmp_path / "state.pth")
    other.load_state_dict(torch.load(tmp_path / "state.pth", weights_only=True))
    assert other.get_lr() == optim.get_lr()


def test_of_many_groups_a_run_records_one_rate_and_the_base(tmp_path: Path) -> None:
    optim = {"optimizer": {"type": "SGD", "lr": 0.1}, "paramwise_cfg": {"custom_keys": {"net.0": {"lr_mult": 0.5}}}}
    runner = runner_of(tmp_path, optim_wrapper=optim, param_scheduler={"type": "StepLR", "step_size": 1, "gamma": 0.5})
    runner.train()
    rates = [name for name in runner.message_hub.log_scalars if "lr" in name]
    assert rates == ["train/base_lr", "train/lr"]
    assert runner.message_hub.get_scalar("train/base_lr").last(8) == [0.1] * 4 + [0.05] * 4
    assert runner.message_hub.get_scalar("train/lr").last(8) == [0.05] * 4 + [0.025] * 4


def test_one_group_reports_lr_and_momentum() -> None:
    optim = wrapped(toy_model())
    assert optim.get_lr() == {"lr": [0.1]}
    assert optim.get_momentum() == {"momentum": [0.9]}
    assert optim.defaults["momentum"] == 0.9
    assert optim.param_groups is optim.optimizer.param_groups
    assert OptimWrapper(torch.optim.Adam(toy_model().parameters())).get_momentum() == {"momentum": [0.9]}
    assert OptimWrapper(torch.optim.Adagrad(toy_model().parameters())).get_momentum() == {"momentum": [0]}
    assert isinstance(optim, BaseOptimWrapper)
    assert isinstance(optim, Optim)


# -- lower precision


@pytest.mark.parametrize(
    ("options", "dtype", "scale"),
    [
        ({}, torch.bfloat16, None),
        ({"dtype": "float16"}, torch.float16, 65536.0),
        ({"dtype": torch.bfloat16, "loss_scale": 128.0}, torch.bfloat16, 128.0),
        ({"loss_scale": {"init_scale": 32.0}}, torch.bfloat16, 32.0),
        ({"dtype": "float32"}, torch.float32, None),
    ],
)
def test_amp_works_on_the_cpu(options: dict[str, Any], dtype: torch.dtype, scale: float | None) -> None:
    model = toy_model()
    optim = wrapped(model, AmpOptimWrapper, **options)
    for batch in toy_data(3):
        with optim.optim_context(model):
            logits = model(batch[0])
        assert logits.dtype is dtype
        optim.update_params(nn.functional.cross_entropy(logits.float(), batch[1]))
    assert not same(model, toy_model())
    assert (optim.loss_scaler.get_scale() if optim.loss_scaler else None) == scale
    other = wrapped(toy_model(), AmpOptimWrapper, **options)
    other.load_state_dict(optim.state_dict())
    assert ("loss_scaler" in optim.state_dict()) == (scale is not None)


def test_a_fixed_scale_stays_after_an_overflow() -> None:
    model = toy_model()
    before = [parameter.clone() for parameter in model.parameters()]
    optim = wrapped(model, AmpOptimWrapper, loss_scale=64.0)
    optim.update_params(model(torch.full((1, 4), float("inf"))).sum())
    assert optim.loss_scaler.get_scale() == 64.0
    assert all(ours.equal(theirs) for ours, theirs in zip(before, model.parameters(), strict=True))


def test_invalid_amp_settings_are_refused() -> None:
    model = toy_model()
    with pytest.raises(
        TypeError, match=r"^loss_scale must be 'dynamic', a number, or a dict for GradScaler, not 'dynamc'$"
    ):
        wrapped(model, AmpOptimWrapper, loss_scale="dynamc")
    with pytest.raises(ValueError, match=r"^unknown dtype 'float15'; did you mean 'float16'\?$"):
        wrapped(model, AmpOptimWrapper, dtype="float15")
    with pytest.raises(ConfigError, match=r"sharded models are not supported yet"):
        wrapped(model, AmpOptimWrapper, use_fsdp=True)


def test_a_run_with_amp_resumes_with_its_scale(tmp_path: Path) -> None:
    config = {"type": "AmpOptimWrapper", "dtype": "float16", "optimizer": {"type": "SGD", "lr": 0.1}}
    whole = runner_of(tmp_path / "whole", optim_wrapper=config, train_cfg={"by_epoch": True, "max_epochs": 3}).train()
    runner_of(tmp_path / "parts", optim_wrapper=config, train_cfg={"by_epoch": True, "max_epochs": 2}).train()
    again = runner_of(
        tmp_path / "parts", optim_wrapper=config, train_cfg={"by_epoch": True, "max_epochs": 3}, resume=True
    )
    assert same(again.train(), whole)
    assert weights(tmp_path / "parts" / "epoch_3.pth", "scaler")["scale"] == 65536.0


# -- several optims


def test_several_optims_are_called_one_by_one() -> None:
    first, second = toy_model(), toy_model()
    optims: Any = OptimWrapperDict(first=wrapped(first), second=wrapped(second))
    assert optims.get_lr() == {"first.lr": [0.1], "second.lr": [0.1]}
    assert optims.get_momentum() == {"first.momentum": [0.9], "second.momentum": [0.9]}
    assert list(optims.keys()) == ["first", "second"]
    assert len(optims) == 2
    assert "first" in optims
    assert id(Optims.of(optims)) == id(optims)
    optims["first"].update_params(cross_entropy(first, toy_data(1)[0]))
    assert not same(first, second)
    for what in ("update_params", "backward"):
        with pytest.raises(
            NotImplementedError, match=rf"{what} must be called for one optimizer at a time: optim_wrapper\['fi"
        ):
            getattr(optims, what)(torch.ones(()))
    with pytest.raises(NotImplementedError):
        optims.step()
    with pytest.raises(NotImplementedError):
        optims.optim_context(first)
    cross_entropy(first, toy_data(1)[0]).backward()  # type: ignore[no-untyped-call]
    optims.zero_grad()
    assert all(parameter.grad is None for parameter in first.parameters())
    state = optims.state_dict()
    optims.load_state_dict(state)
    with pytest.raises(KeyError, match=r"^the state is for an unknown optimizer 'third'; available: first, second$"):
        optims.load_state_dict({"third": {}})
    with pytest.raises(TypeError, match=r"^OptimWrapperDict: 'bad' must be an OptimWrapper, not 3$"):
        OptimWrapperDict(bad=3)  # type: ignore[arg-type]


def test_a_model_with_two_optimizers_trains_them_in_a_run(tmp_path: Path) -> None:
    class Pair(ToyNet):
        def __init__(self) -> None:
            super().__init__()
            self.other = toy_model()

        def train_step(self, data: Any, optim_wrapper: Any) -> Any:
            losses = {}
            for name, net in (("one", self.net), ("two", self.other)):
                losses[name] = cross_entropy(net, data)
                optim_wrapper[name].update_params(losses[name])
            return losses

    model = Pair()
    given = {
        "one": OptimWrapper(torch.optim.SGD(model.net.parameters(), lr=0.1)),
        "two": OptimWrapper(torch.optim.SGD(model.other.parameters(), lr=0.2), accumulative_counts=2),
    }
    runner = runner_of(
        tmp_path,
        model=model,
        optim_wrapper=given,
        param_scheduler={"one": {"type": "StepLR", "step_size": 1}},
    )
    runner.train()
    assert isinstance(runner.optim_wrapper, OptimWrapperDict)
    assert {name: optim.updates for name, optim in runner.optim_wrapper.items()} == {"one": 8, "two": 4}
    assert runner.optim_wrapper.get_lr() == {"one.lr": [pytest.approx(0.01)], "two.lr": [0.2]}
    assert set(weights(tmp_path / "epoch_2.pth", "optimizer")) == {"one", "two"}


# -- from configs


OPTIMIZER = {"type": "SGD", "lr": 0.1, "weight_decay": 0.01, "momentum": 0.9}


def test_frozen_and_shared_parameters_and_unused_keys_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    with caplog.at_level(logging.WARNING, "hookline"):
        optim = build_optim_wrapper(
            model,
            {"optimizer": OPTIMIZER, "paramwise_cfg": {"bypass_duplicate": True, "custom_keys": {"haed": {}}}},
        )
    assert len(optim.optimizer.param_groups) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "skipping 0.bias: it is not trained (requires_grad=False)",
        "skipping 1.weight: it is a duplicate of an earlier parameter",
        "paramwise_cfg: the key 'haed' in custom_keys matches no parameter name",
    ]


def test_all_optimizers_of_torch_are_registered() -> None:
    missing = [
        name
        for name, found in vars(torch.optim).items()
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and found is not torch.optim.Optimizer
        if OPTIMIZERS.get(name) is not found
    ]
    assert missing == []


def test_an_optim_can_be_given_in_many_forms() -> None:
    model = toy_model()
    made = wrapped(model)
    assert build_optim_wrapper(model, made) is made
    ready = build_optim_wrapper(model, {"optimizer": made.optimizer, "accumulative_counts": 2})
    assert (type(ready), ready.accumulate, ready.optimizer) == (OptimWrapper, 2, made.optimizer)
    several = build_optim_wrapper(model, {"one": made})
    assert (type(several), several["one"]) == (OptimWrapperDict, made)
    by_class = build_optim_wrapper(
        model, {"type": AmpOptimWrapper, "optimizer": {"type": torch.optim.Adam, "lr": 1e-3}}
    )
    assert (type(by_class), type(by_class.optimizer)) == (AmpOptimWrapper, torch.optim.Adam)

    @OPTIM_WRAPPER_CONSTRUCTORS.register_module()
    class OnlyTheLast:
        def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: Any = None) -> None:
            self.lr = optim_wrapper_cfg["optimizer"].pop("lr")
            self.part = paramwise_cfg["part"]

        def __call__(self, model: nn.Module) -> OptimWrapper:
            return OptimWrapper(torch.optim.SGD(list(model.parameters())[-self.part :], lr=self.lr))

    config = {"constructor": "OnlyTheLast", "optimizer": {"lr": 0.3}, "paramwise_cfg": {"part": 1}}
    built = build_optim_wrapper(model, config)
    assert (len(built.parameters()), built.get_lr()) == (1, {"lr": [0.3]})
    assert config["optimizer"] == {"lr": 0.3}


def test_invalid_configs_are_refused() -> None:
    model = toy_model()
    with pytest.raises(KeyError, match=r"^optim_wrapper needs an 'optimizer'; it only has \['optimiser'\]$"):
        build_optim_wrapper(model, {"optimiser": {"type": "SGD", "lr": 0.1}})
    with pytest.raises(KeyError, match=r"unknown optimizer 'SDG'; did you mean 'SGD'\?"):
        build_optim_wrapper(model, {"optimizer": {"type": "SDG", "lr": 0.1}})
    with pytest.raises(KeyError, match=r"^paramwise_cfg has no option 'norm_decay'; did you mean 'norm_decay_mult'\?$"):
        build_optim_wrapper(model, {"optimizer": OPTIMIZER, "paramwise_cfg": {"norm_decay": 0}})
    with pytest.raises(
        ValueError, match=r"^norm_decay_mult multiplies the optimizer's weight_decay, which is not set$"
    ):
        DefaultOptimWrapperConstructor({"optimizer": {"type": "SGD", "lr": 0.1}}, {"norm_decay_mult": 0})
    with pytest.raises(
        TypeError, match=r"^optim_wrapper must be an OptimWrapper or a dict that describes one, not 'SGD'$"
    ):
        build_optim_wrapper(model, "SGD")
    with pytest.raises(TypeError, match=r"^custom_keys must be a dict of dicts, not a list$"):
        DefaultOptimWrapperConstructor({"optimizer": OPTIMIZER}, {"custom_keys": ["head"]})


@pytest.mark.parametrize(("accumulate", "clip"), [(2, None), (3, 0.1), (5, None)])
def test_partial_windows_at_the_end_of_an_epoch_match_a_native_run(
    tmp_path: Path, accumulate: int, clip: float | None
) -> None:
    torch.manual_seed(0)
    model = ToyNet()
    native = Runner(
        model,
        train=TrainLoop(toy_data(7), lambda model, batch: model(*batch, mode="loss"), max_epochs=2),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=accumulate, clip_norm=clip),
        work_dir=tmp_path / "native",
        quiet=True,
    ).train()
    config = {"optimizer": {"type": "SGD", "lr": 0.1}, "accumulative_counts": accumulate}
    runner = runner_of(
        tmp_path / "mmengine",
        without=VAL,
        train_dataloader=toy_data(7),
        optim_wrapper=config if clip is None else {**config, "clip_grad": {"max_norm": clip}},
    )
    assert same(runner.train(), native)
    assert runner.optim_wrapper.updates == 2 * -(-7 // accumulate)


def test_lbfgs_is_refused_before_training_unless_the_model_has_its_own_train_step(tmp_path: Path) -> None:
    class Own(ToyNet):
        def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Any]:
            def closure() -> torch.Tensor:
                optim_wrapper.zero_grad()
                loss: torch.Tensor = self(*data, mode="loss")["loss"]
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
                return loss

            return {"loss": optim_wrapper.optimizer.step(closure)}

    wrapper = {"optimizer": {"type": "LBFGS", "lr": 0.1}}
    runner = runner_of(tmp_path / "default", without=VAL, optim_wrapper=wrapper)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        "the optimizer (LBFGS) needs a closure that evaluates the model again, which the loop does not provide. Use "
        "another optimizer, or override train_step in the model, and call optim_wrapper.optimizer.step(closure)"
    )
    assert all(parameter.grad is None for parameter in runner.model.parameters())
    runner = runner_of(tmp_path / "own", without=VAL, model=Own(), optim_wrapper=wrapper)
    runner.train()
    assert runner.iter == 8


def test_frozen_parameters_are_refused_before_training(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, without=VAL, model=ToyNet().requires_grad_(False))
    with pytest.raises(ConfigError, match=r"^the optimizer \(SGD\) updates only parameters that are frozen "):
        runner.train()


def test_an_optimizer_may_name_its_parameters_in_its_own_way() -> None:
    @OPTIMIZERS.register_module(force=True)
    class Renamed(torch.optim.SGD):
        def __init__(self, model_params: Any, lr: float) -> None:
            super().__init__(model_params, lr=lr)

    model = nn.Linear(2, 1)
    made = build_optim_wrapper(model, {"optimizer": {"type": "Renamed", "lr": 0.5}})
    assert [group["lr"] for group in made.param_groups] == [0.5]
    assert made.param_groups[0]["params"] == list(model.parameters())
