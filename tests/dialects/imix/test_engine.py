"""Training by epochs and by iterations, the forms of a config, and failing hooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.dialects.imix.engine import CommonEngine, EngineBase, imixEngine
from hookline.dialects.imix.engine.hooks import (
    CheckPointHook,
    EMAIterHook,
    HookBase,
    LRSchedulerHook,
    OptimizerHook,
    PriorityStatus,
)
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferStorage
from hookline.dialects.imix.utils import Config
from hookline.errors import ConfigError, HookError, HooklineError, NumericsError, StorageError
from hookline.hooks import CheckInvalidLossHook
from hookline.runner.hook import Hook
from hookline.testing import toy_data, toy_model

from .engines import Recorder, engine_in, same_weights


def test_points_and_counters_by_epochs(tmp_path: Path) -> None:
    recorder = Recorder()
    engine = engine_in(tmp_path, custom_hooks=[recorder])
    assert engine.train() is engine.model
    assert recorder.seen == [
        ("before_train", 0, 0, 0),
        ("before_train_epoch", 0, 0, 0),
        ("before_train_iter", 0, 0, 0),
        ("after_train_iter", 0, 0, 0),
        ("before_train_iter", 0, 1, 1),
        ("after_train_iter", 0, 1, 1),
        ("after_train_epoch", 0, 2, 1),
        ("before_train_epoch", 1, 2, 0),
        ("before_train_iter", 1, 2, 0),
        ("after_train_iter", 1, 2, 0),
        ("before_train_iter", 1, 3, 1),
        ("after_train_iter", 1, 3, 1),
        ("after_train_epoch", 1, 4, 1),
        ("after_train", 1, 4, 1),
    ]
    assert (engine.by_epoch, engine.max_epoch, engine.max_iter) == (True, 2, 4)


def test_by_iterations_there_are_no_epoch_points_and_max_iter_counts(tmp_path: Path) -> None:
    recorder = Recorder()
    engine = engine_in(tmp_path, by_iter=True, max_iter=3, custom_hooks=[recorder])
    engine.train()
    assert recorder.seen == [
        ("before_train", 0, 0, 0),
        *[(f"{when}_train_iter", i // 2, i, i % 2) for i in range(3) for when in ("before", "after")],
        ("after_train", 1, 3, 0),
    ]
    assert (engine.by_epoch, engine.max_epoch, engine.max_iter) == (False, None, 3)


def test_by_iter_that_is_false_means_epochs(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, by_iter=False, max_iter=1, total_epochs=2)
    engine.train()
    assert engine.iter == 4


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({}, "the config needs total_epochs, or by_iter=True and max_iter"),
        (
            {"max_iter": 3},
            "the config needs total_epochs, or by_iter=True and max_iter; to use max_iter, set by_iter=True",
        ),
        ({"by_iter": True}, "the config has by_iter, so it also needs max_iter, the number of iterations to train"),
        ({"total_epochs": 0}, "total_epochs must be an int of at least 1, not 0"),
        (
            {"total_epochs": 1, "gradient_accumulation_steps": 0},
            "gradient_accumulation_steps must be an int of at least",
        ),
        ({"total_epochs": 1, "log_config": {"period": 0}}, "log_config: period must be an int of at least 1, not 0"),
        (
            {"total_epochs": 1, "custom_hooks": "EMAIterHook"},
            "custom_hooks must be a list of hooks or of dicts with 'type', not",
        ),
        (
            {"total_epochs": 1, "checkpoint_config": {"perod": 1}},
            "CheckPointHook has no parameter 'perod'; did you mean",
        ),
        (
            {"total_epochs": 1, "lr_config": {"policy": "StepRL"}},
            "unknown learning-rate policy 'StepRL'; did you mean",
        ),
        ({"total_epochs": 1, "optimizer_config": {"grad_clip": {"max": 1}}}, "OptimizerHook: grad_clip has no 'max'; "),
        (
            {"total_epochs": 1, "lr_config": {"step_size": 4}},
            "the learning-rate policy must be an object or a dict with 'policy', not {'step_size': 4}",
        ),
        (
            {"total_epochs": 1, "resume_from": 5},
            "resume_from must be a path, or True for the newest checkpoint in work_dir, not 5",
        ),
        ({"total_epochs": 1, "load_from": True}, "load_from must be a path, not True"),
        ({"total_epochs": 1, "work_dir": 5}, "work_dir must be a path, not 5"),
    ],
)
def test_a_config_that_is_incomplete_or_wrong_is_refused(cfg: dict[str, Any], message: str) -> None:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as caught:
        imixEngine(cfg, model=model, data_loader=toy_data(1), optimizer=optimizer, loss_fn=nn.CrossEntropyLoss())
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("where", "key", "meant"),
    [
        ("", "chekpoint_config", "checkpoint_config"),
        ("", "custom_hook", "custom_hooks"),
        ("", "total_epoch", "total_epochs"),
        ("", "workdir", "work_dir"),
        ("", "log_cfg", "log_config"),
        ("", "resume_form", "resume_from"),
        ("", "is_lr_accumulate", "is_lr_accumulation"),
        ("log_config", "perod", "period"),
        ("optimizer_config", "gradclip", "grad_clip"),
    ],
)
def test_a_key_that_is_nearly_one_of_those_that_are_read_is_refused(where: str, key: str, meant: str) -> None:
    cfg: dict[str, Any] = {where: {key: 1}} if where else {key: 1}
    for given in (cfg, SimpleNamespace(**cfg)):
        with pytest.raises(ConfigError) as caught:
            imixEngine(given, model=toy_model(), data_loader=toy_data(1))
        assert str(caught.value) == (
            f"{where or 'the config'} has '{key}', which nothing reads; did you mean '{meant}'? If it is your own "
            "key, give it a name that is less similar"
        )


def test_keys_of_the_users_own_stay_and_so_does_one_like_a_key_that_is_there(tmp_path: Path) -> None:
    own = {
        **{"train_data": 1, "test_data": 2, "eval_iter_period": 5, "dist_params": {"backend": "nccl"}, "workflow": []},
        **{"log_level": "INFO", "CUDNN_BENCHMARK": False, "find_unused_parameters": True, "model": {"type": "Net"}},
        **{"dataset_type": "VQA", "loss": "CE", "is_run_eval": False, "max_epochs": 3, "seeds": [1], "speed": 2},
    }
    engine = engine_in(tmp_path, total_epochs=1, TOTAL_EPOCHS=1, total_epoch=1, more=own)
    engine.train()
    assert {key: engine.cfg[key] for key in own} == own


def test_missing_parts_are_refused_by_name() -> None:
    text = (
        "imixEngine needs a model and data_loader: iMIX's own models and data sets are not included. Build yours, and "
        "pass them: imixEngine(cfg, model=..., data_loader=...)"
    )
    with pytest.raises(ConfigError) as refused:
        imixEngine({"total_epochs": 1}, data_loader=toy_data(1))
    assert str(refused.value) == text
    with pytest.raises(ConfigError) as refused:
        imixEngine({"total_epochs": 1}, model=toy_model())
    assert str(refused.value) == text
    with pytest.raises(ConfigError, match=r"^imixEngine needs an optimizer: pass imixEngine\(\.\.\., optimizer="):
        imixEngine({"total_epochs": 1}, model=toy_model(), data_loader=toy_data(1))
    with pytest.raises(ConfigError, match=r"^imixEngine needs a config: "):
        imixEngine(None, model=toy_model(), data_loader=toy_data(1))


@pytest.mark.parametrize("path", ["configs/net.py", Path("configs/net.py")])
def test_the_path_of_a_config_is_no_config(path: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        imixEngine(path, model=toy_model(), data_loader=toy_data(1))
    assert str(refused.value) == (
        "imixEngine takes a config, not a path; read the file with Config of imix.utils: "
        "imixEngine(Config.fromfile('configs/net.py'), ...)"
    )


def test_an_optimizer_may_be_a_dict_also_as_an_argument(tmp_path: Path) -> None:
    given = {"type": "SGD", "lr": 0.1}
    cfg: dict[str, Any] = {"lr_config": {"policy": "StepLR", "step_size": 2}, "optimizer": {"type": "Adam"}}
    engine = engine_in(tmp_path / "dict", optimizer=given, more=cfg)  # type: ignore[arg-type]
    assert same_weights(engine.train(), engine_in(tmp_path / "object", more=cfg).train())
    assert given == {"type": "SGD", "lr": 0.1}
    with pytest.raises(ConfigError, match=r"^the optimizer must be an object or a dict with 'type', not 'SGD'$"):
        engine_in(tmp_path, optimizer="SGD")  # type: ignore[arg-type]


def test_a_config_may_be_a_dict_a_config_or_anything_with_attributes(tmp_path: Path) -> None:
    ended = []
    kinds: list[Any] = [dict, Config, lambda values: SimpleNamespace(**values)]
    for number, kind in enumerate(kinds):
        values = {
            "total_epochs": 1,
            "work_dir": str(tmp_path / str(number)),
            "optimizer": {"type": "SGD", "lr": 0.1},
            "log_config": {"period": 1},
            "quiet": True,
        }
        engine = imixEngine(kind(values), model=toy_model(), data_loader=toy_data(2), loss_fn=nn.CrossEntropyLoss())
        engine.train()
        assert engine.cfg.log_config["period"] == 1
        ended.append(engine.model)
    assert same_weights(ended[0], ended[1])
    assert same_weights(ended[0], ended[2])


# ------------------------------------------------------------------------------------------------- models and losses


def trained_with(tmp_path: Path, model: nn.Module, loss_fn: Any, data: Any = None) -> imixEngine:
    engine = engine_in(tmp_path, model=model, loss_fn=loss_fn, batches=data or toy_data(2), total_epochs=1)
    engine.train()
    return engine


class WholeBatch(nn.Module):
    """A model in iMIX's style: it takes the whole batch and the counters, and returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_model()
        self.counters: list[tuple[int, int, int]] = []

    def forward(self, batch_data: Any, cur_epoch: int, cur_iter: int, inner_iter: int) -> dict[str, Tensor]:
        self.counters.append((cur_epoch, cur_iter, inner_iter))
        inputs, target = batch_data
        return {"scores": self.net(inputs), "target": target}


def test_loss_functions_of_every_kind_give_the_same_training(tmp_path: Path) -> None:
    def of_output(output: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(output["scores"], output["target"])}

    def of_both(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def of_batch(output: Tensor, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(output, batch[1])

    def of_model(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    whole = WholeBatch()
    trained_with(tmp_path, whole, of_output)
    assert whole.counters == [(0, 0, 0), (0, 1, 1)]
    for loss_fn in (of_both, of_batch, of_model, nn.CrossEntropyLoss()):
        engine = trained_with(tmp_path, toy_model(), loss_fn)
        assert same_weights(engine.model, whole.net), loss_fn
    assert set(engine.output) == {"loss"}
    assert engine.model_output.shape == (8, 2)


def test_a_model_may_give_its_losses_itself_and_a_batch_processor_may_do_it_all(tmp_path: Path) -> None:
    class Losses(WholeBatch):
        def forward(self, batch_data: Any, **counters: int) -> dict[str, Tensor]:  # type: ignore[override]
            assert set(counters) == {"cur_epoch", "cur_iter", "inner_iter"}
            loss = nn.functional.cross_entropy(self.net(batch_data[0]), batch_data[1])
            return {"a_loss": loss, "b_loss": loss}

    model = Losses()
    settings = {"total_epochs": 1, "work_dir": str(tmp_path), "quiet": True, "optimizer": {"type": "SGD", "lr": 0.05}}
    imixEngine(settings, model=model, data_loader=toy_data(2)).train()
    assert same_weights(model.net, trained_with(tmp_path, toy_model(), nn.CrossEntropyLoss()).model)

    net = toy_model()

    def process(batch: Any) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(net(batch[0]), batch[1])}

    settings["optimizer"] = {"type": "SGD", "lr": 0.1}
    imixEngine(settings, model=net, data_loader=toy_data(2), batch_processor=process).train()
    assert same_weights(model.net, net)


class Scores(nn.Module):
    def __init__(self, gives: Any) -> None:
        super().__init__()
        self.net = toy_model()
        self.gives = gives

    def forward(self, batch: Any) -> Any:
        return self.gives(self.net(batch[0]))


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (Scores(lambda scores: scores), "Scores returned a tensor of shape (8, 2), not a loss; "),
        (Scores(lambda scores: {"scores": scores, "n": 1}), "Scores returned scores, n, but no loss; "),
        (Scores(lambda scores: {}), "Scores returned an empty dict, but no loss; "),
    ],
)
def test_a_model_that_gives_no_losses_needs_a_loss_function(tmp_path: Path, model: nn.Module, found: str) -> None:
    settings = {"total_epochs": 1, "work_dir": str(tmp_path), "quiet": True, "optimizer": {"type": "SGD", "lr": 0.1}}
    with pytest.raises(ConfigError) as caught:
        imixEngine(settings, model=model, data_loader=toy_data(2)).train()
    assert str(caught.value) == (
        f"{found}without a loss_fn, the model gets the whole batch and must return its losses itself; for any other "
        "model, pass one to the engine: loss_fn=torch.nn.CrossEntropyLoss(), or any function of (output), "
        "(output, target) or (model, batch)"
    )
    assert isinstance(caught.value, TypeError)


def test_a_model_that_cannot_take_a_whole_batch_keeps_its_error_with_what_to_do(tmp_path: Path) -> None:
    settings = {"total_epochs": 1, "work_dir": str(tmp_path), "quiet": True, "optimizer": {"type": "SGD", "lr": 0.1}}
    with pytest.raises(TypeError, match=r"^linear\(\): argument 'input' .* must be Tensor, not tuple\n") as caught:
        imixEngine(settings, model=toy_model(), data_loader=toy_data(2)).train()
    called, hint, where = caught.value.__notes__
    assert called == "Sequential was called with a whole batch, a tuple of 2"
    assert hint.startswith("without a loss_fn, the model gets the whole batch and must return its losses itself; ")
    assert where == "in the step, epoch=0 iter=0 rank=0"


def test_a_type_error_later_on_is_the_models_own(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls = toy_model(), 0

        def forward(self, pair: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                len(3)  # type: ignore[arg-type]
            return {"loss": nn.functional.cross_entropy(self.net(pair[0]), pair[1])}

    settings = {"total_epochs": 1, "work_dir": str(tmp_path), "quiet": True, "optimizer": {"type": "SGD", "lr": 0.1}}
    with pytest.raises(TypeError, match=r"^object of type 'int' has no len\(\)\n") as caught:
        imixEngine(settings, model=Fails(), data_loader=toy_data(2)).train()
    assert caught.value.__notes__ == ["in the step, epoch=0 iter=1 rank=0"]


def common(tmp_path: Path, *hooks: Any) -> CommonEngine:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = CommonEngine(model, toy_data(2), optimizer, nn.CrossEntropyLoss(), work_dir=tmp_path)
    engine.quiet = True
    engine.register_hooks([OptimizerHook(), *hooks])
    return engine


def test_a_hook_that_a_run_is_built_with_must_be_registered_before_training(tmp_path: Path) -> None:
    class Adds(HookBase):
        def before_train(self) -> None:
            self.trainer.register_hooks([OptimizerHook()])

    with pytest.raises(HookError, match=r"^OptimizerHook must be registered before training begins, because the ru"):
        common(tmp_path, Adds()).train_by_epoch(0, 1)


def test_the_trainer_at_a_custom_point_is_the_engine_also_while_training(tmp_path: Path) -> None:
    seen = []

    class Shares(HookBase):
        def after_train_iter(self) -> None:
            self.trainer.call_hook("after_shared", n=self.trainer.iter)

        def after_shared(self, trainer: Any, n: int) -> None:
            seen.append((n, trainer.log_buffer is self.trainer.log_buffer, trainer.model_output.shape))

    common(tmp_path, Shares()).train_by_epoch(0, 1)
    assert seen == [(0, True, (8, 2)), (1, True, (8, 2))]


def test_after_train_is_called_once_also_when_the_last_save_fails(tmp_path: Path) -> None:
    called = []

    class Ends(HookBase):
        def after_train(self) -> None:
            called.append(type(self.trainer.exception).__name__)

    engine = common(tmp_path / "run", Ends(), CheckPointHook(prefix="net", epoch_period=1))

    class Blocks(HookBase):
        level = "LOWEST"

        def after_train(self) -> None:
            engine.runner.request_save("x.pth", folder=tmp_path / "file" / "x")  # type: ignore[union-attr]

    (tmp_path / "file").write_text("in the way")
    engine.register_hooks([Blocks()])
    with pytest.raises(StorageError):
        engine.train_by_epoch(0, 1)
    assert called == ["NoneType"]


def test_training_continues_to_another_end(tmp_path: Path) -> None:
    epochs = []

    class Counts(HookBase):
        def before_train_epoch(self) -> None:
            epochs.append(self.trainer.epoch)

    engine = common(tmp_path, Counts())
    engine.train_by_epoch(0, 1)
    engine.train_by_epoch(1, 3)
    assert (epochs, engine.max_epoch, engine.max_iter) == ([0, 1, 2], 3, 6)


def test_a_level_written_as_a_plain_attribute_is_the_one_that_counts_unless_the_config_says_otherwise(
    tmp_path: Path,
) -> None:
    class First(HookBase):
        level = "HIGHEST"

    engine = common(tmp_path)
    first, last = First(), First()
    engine.register_hooks([first])
    engine._register(last, "LOWEST")
    assert [each.level for each in (first, last)] == [PriorityStatus.HIGHEST, PriorityStatus.LOWEST]  # type: ignore[comparison-overlap]
    assert [type(hook).__name__ for hook in engine.hooks] == ["First", "OptimizerHook", "First"]


def test_a_run_that_failed_keeps_no_graph_of_its_loss(tmp_path: Path) -> None:
    class Fails(HookBase):
        level = "HIGHEST"

        def after_train_iter(self) -> None:
            raise KeyError("mine")

    engine = common(tmp_path, Fails())
    with pytest.raises(KeyError, match="mine"):
        engine.train_by_epoch(0, 1)
    engine.runner.optim.reset()  # type: ignore[union-attr]  # as the next run does
    assert engine.runner.optim._given is None  # type: ignore[union-attr]


def test_a_type_error_of_a_model_that_takes_whole_batches_stays_what_it_is(tmp_path: Path) -> None:
    model = Scores(lambda scores: scores + "one")
    settings = {"total_epochs": 1, "work_dir": str(tmp_path), "quiet": True, "optimizer": {"type": "SGD", "lr": 0.1}}
    with pytest.raises(TypeError, match=r"^unsupported operand") as caught:
        imixEngine(settings, model=model, data_loader=toy_data(2)).train()
    assert type(caught.value) is TypeError
    assert caught.value.__notes__ == ["in the step, epoch=0 iter=0 rank=0"]


# ----------------------------------------------------------------------------------------------------- other engines


def test_a_common_engine_has_the_hooks_that_it_is_given(tmp_path: Path) -> None:
    model, recorder = toy_model(), Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = CommonEngine(model, toy_data(2), optimizer, nn.CrossEntropyLoss(), work_dir=tmp_path)
    engine.register_hooks([OptimizerHook(), recorder])
    engine.train_by_epoch(1, 3)
    assert recorder.seen[:2] == [("before_train", 1, 2, 0), ("before_train_epoch", 1, 2, 0)]
    assert recorder.seen[-1] == ("after_train", 2, 6, 1)
    assert same_weights(model, engine_in(tmp_path / "other").train())


def without_an_optimizer_hook(folder: Path, *hooks: HookBase) -> CommonEngine:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = CommonEngine(model, toy_data(2), optimizer, nn.CrossEntropyLoss(), work_dir=folder)
    engine.quiet = True
    engine.register_hooks(hooks)
    engine.train_by_epoch(0, 2)
    return engine


def test_without_an_optimizer_hook_nothing_is_trained_one_warning_says_so_and_no_graph_stays(tmp_path: Path) -> None:
    graphs: list[tuple[bool, bool]] = []

    class Looks(HookBase):
        _level = "LOWEST"

        def before_train_iter(self) -> None:
            if self.trainer.iter:
                graphs.append((self.trainer.output["loss"].requires_grad, self.trainer.model_output.requires_grad))

        def after_train_iter(self) -> None:
            assert self.trainer.output["loss"].requires_grad

    engine = without_an_optimizer_hook(tmp_path, Looks())
    assert same_weights(engine.model, toy_model())
    assert graphs == [(False, False)] * 3
    assert not engine.output["loss"].requires_grad
    said = [line for line in (tmp_path / "run.log").read_text().splitlines() if "OptimizerHook" in line]
    assert [line.partition("warning: ")[2] for line in said] == [
        "this engine has no OptimizerHook, so nothing is trained unless one of your own hooks updates the weights; to "
        "add it: engine.register_hooks([OptimizerHook()])"
    ]


def test_a_custom_hook_may_update_the_weights(tmp_path: Path) -> None:
    class Updates(HookBase):
        def after_train_iter(self) -> None:
            self.trainer.optimizer.zero_grad()
            self.trainer.output["loss"].backward()
            self.trainer.optimizer.step()

    engine = without_an_optimizer_hook(tmp_path / "own", Updates())
    assert same_weights(engine.model, engine_in(tmp_path / "other").train())


class OwnOptimizer(HookBase):
    """Makes the updates with an optimizer of its own."""

    def before_train(self) -> None:
        self.optimizer = torch.optim.SGD(self.trainer.model.parameters(), lr=0.1)

    def after_train_iter(self) -> None:
        self.optimizer.zero_grad()
        self.trainer.output["loss"].backward()
        self.optimizer.step()


def without_an_optimizer(folder: Path, *hooks: Any, **more: Any) -> CommonEngine:
    engine = CommonEngine(toy_model(), toy_data(2), loss_fn=nn.CrossEntropyLoss(), work_dir=folder)
    engine.quiet = True
    for name, value in more.items():
        setattr(engine, name, value)
    engine.register_hooks(hooks)
    return engine


@pytest.mark.parametrize("by_epoch", [True, False])
def test_an_engine_needs_no_optimizer_if_a_hook_makes_the_updates(tmp_path: Path, by_epoch: bool) -> None:
    saves = CheckPointHook(prefix="net", iter_period=None if by_epoch else 4)
    ema = EMAIterHook(momentum=0.5)
    engine = without_an_optimizer(tmp_path / "own", OwnOptimizer(), ema, saves)
    if by_epoch:
        engine.train_by_epoch(0, 2)
    else:
        engine.train_by_iter(0, 4)
    assert same_weights(engine.model, engine_in(tmp_path / "other").train())
    assert ema.average is not None
    assert ema.average.steps == 4
    again = without_an_optimizer(tmp_path / "own", OwnOptimizer(), EMAIterHook(momentum=0.5), resume_from=True)
    if by_epoch:
        again.train_by_epoch(0, 3)
    else:
        again.train_by_iter(0, 6)
    assert same_weights(again.model, engine_in(tmp_path / "longer", total_epochs=3).train())


def test_hooks_that_need_an_optimizer_are_refused_without_one(tmp_path: Path) -> None:
    model = toy_model()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
    for hook, name in ((OptimizerHook(), "OptimizerHook"), (LRSchedulerHook(scheduler=scheduler), "LRSchedulerHook")):
        with pytest.raises(ConfigError) as refused:
            without_an_optimizer(tmp_path, hook).train_by_epoch(0, 1)
        assert str(refused.value) == (
            f"{name} needs an optimizer, but this CommonEngine has none; set engine.optimizer, or remove the hook if "
            "your own hook makes the updates"
        )
    with pytest.raises(HookError) as refused_hook:
        without_an_optimizer(tmp_path, OwnOptimizer(), LRSchedulerHook()).train_by_epoch(0, 1)
    assert str(refused_hook.value) == (
        "LRSchedulerHook has no optimizer whose learning rate it could record; pass one: LRSchedulerHook(optimizer)"
    )


def test_a_custom_loop_calls_the_points_of_an_iteration(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Native(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any) -> None:
            seen.append((batch_idx, data_batch))

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any) -> None:
            seen.append((batch_idx, data_batch, outputs))

    class Loops(EngineBase):
        def run(self) -> None:
            self.before_train()
            for self.inner_iter, self.data_batch in enumerate("ab"):
                self.before_train_iter()
                self.output = {"loss": self.iter}
                self.after_train_iter()
                self.iter += 1
            self.after_train()

    engine = Loops()
    engine.log_buffer = LogBufferStorage()
    engine.register_hooks([recorder := Recorder(), Native()])
    engine.run()
    assert recorder.seen == [
        ("before_train", 0, 0, 0),
        *[("before_train_iter", 0, 0, 0), ("after_train_iter", 0, 0, 0)],
        *[("before_train_iter", 0, 1, 1), ("after_train_iter", 0, 1, 1)],
        ("after_train", 0, 2, 1),
    ]
    assert seen == [(0, "a"), (0, "a", {"loss": 0}), (1, "b"), (1, "b", {"loss": 1})]
    assert engine.log_buffer.iter == 1


@pytest.mark.parametrize("name", ["before_train_iter", "after_train_epoch", "run_train_epoch"])
def test_an_engine_whose_own_point_would_never_be_called_is_refused(tmp_path: Path, name: str) -> None:
    own = type("Own", (CommonEngine,), {name: lambda self: None})
    engine = own(toy_model(), toy_data(1), work_dir=tmp_path)
    for train in (engine.train_by_epoch, engine.train_by_iter):
        with pytest.raises(ConfigError) as refused:
            train(0, 1)
        assert str(refused.value) == (
            f"Own overrides {name}, which is never called: the loop is hookline's. Put the code into a hook, and the "
            "code of a step into run_train_iter"
        )


def test_by_iterations_a_start_in_the_middle_of_the_data_begins_there(tmp_path: Path) -> None:
    model = toy_model()
    data, seen = toy_data(5), list[float]()

    class Notes(HookBase):
        def before_train_iter(self) -> None:
            seen.append(float(self.trainer.runner.data_batch[0][0, 0]))

    engine = CommonEngine(model, data, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
    engine.work_dir = tmp_path
    engine.register_hooks([OptimizerHook(), Notes()])
    engine.train_by_iter(3, 6)
    assert seen == [float(data[i][0][0, 0]) for i in (3, 4, 0)]


def test_a_custom_engine_computes_its_losses(tmp_path: Path) -> None:
    class Own(EngineBase):
        def __init__(self) -> None:
            super().__init__()
            self.model = toy_model()
            self.data_loader = toy_data(2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.work_dir = tmp_path

        def run_train_iter(self, batch_data: Any, data_time: float) -> None:
            assert data_time >= 0
            self.output = {"loss": nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])}

    engine = Own()
    engine.register_hooks([OptimizerHook()])
    engine.train_by_epoch(0, 2)
    assert same_weights(engine.model, engine_in(tmp_path / "other").train())


# -------------------------------------------------------------------------------------------------------- failures


class Fails(HookBase):
    def __init__(self, point: str, error: type[Exception] = ValueError) -> None:
        self.point, self.error = point, error

    def _at(self, point: str) -> None:
        if point == self.point:
            raise self.error(f"no {point}")

    def before_train(self) -> None:
        self._at("before_train")

    def after_train_iter(self) -> None:
        self._at("after_train_iter")

    def after_train(self) -> None:
        self._at("after_train")


@pytest.mark.parametrize(
    ("point", "ended"),
    [
        ("before_train", ["a"]),
        ("after_train_iter", ["a", "b"]),
        ("after_train", ["a", "b"]),
    ],
)
def test_after_a_failure_hooks_that_have_begun_end_and_no_other(tmp_path: Path, point: str, ended: list[str]) -> None:
    seen: list[Any] = []
    hooks = [Recorder("a", seen), Fails(point), Recorder("b", seen)]
    engine = engine_in(tmp_path, custom_hooks=hooks)
    with pytest.raises(ValueError, match=f"^no {point}") as caught:
        engine.train()
    assert [name for name, at in seen if at == "after_train"] == ended
    note = caught.value.__notes__[0]
    assert note.startswith(f"in hook Fails, at {point}, epoch=")
    assert engine.exception is caught.value
    assert not list(tmp_path.glob("*final*"))


def test_a_failure_at_the_end_hides_nothing_and_keeps_no_hook_from_its_end(tmp_path: Path) -> None:
    seen: list[Any] = []
    hooks = [Fails("after_train", KeyError), Fails("after_train_iter"), Recorder("b", seen)]
    with pytest.raises(ValueError, match=r"^no after_train_iter") as caught:
        engine_in(tmp_path, custom_hooks=hooks).train()
    assert caught.value.__notes__[1] == "then Fails failed at after_train: KeyError: 'no after_train'"
    assert seen[-1] == ("b", "after_train")


def test_a_step_that_fails_says_where(tmp_path: Path) -> None:
    def fails(output: Tensor, target: Tensor) -> Tensor:
        if engine.iter == 3:
            raise ValueError("no such answer")
        return nn.functional.cross_entropy(output, target)

    engine = engine_in(tmp_path, loss_fn=fails)
    with pytest.raises(ValueError, match=r"^no such answer") as caught:
        engine.train()
    assert caught.value.__notes__ == ["in the step, epoch=1 iter=3 rank=0"]


def test_an_engine_that_trains_is_not_started_again(tmp_path: Path) -> None:
    class Starts(HookBase):
        def after_train_iter(self) -> None:
            self.trainer.train()

    with pytest.raises(
        HooklineError, match=r"^the engine cannot start training: it is already training\nin hook Starts, "
    ):
        engine_in(tmp_path, custom_hooks=[Starts()]).train()


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path: Path) -> None:
    def nan(model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = model(batch[0]).sum() * float("nan")
        return loss

    with pytest.raises(NumericsError) as ended:
        engine_in(tmp_path, loss_fn=nan, total_epochs=1, log_config={"period": 2}).train()
    assert str(ended.value) == (
        "the loss has become nan by iteration 1, so training cannot continue; check the learning rate, the data and "
        "the precision, clip the gradients: optimizer_config=dict(grad_clip=dict(max_norm=1.0)), or find its source: "
        "custom_hooks=[dict(type='AutogradAnomalyDetectHook')]"
    )
    with pytest.raises(
        NumericsError, match=r"^CheckInvalidLossHook: the loss of iteration 1 is nan; the optimizer step"
    ):
        engine_in(tmp_path / "looked_at", loss_fn=nan, custom_hooks=[CheckInvalidLossHook(policy="raise")]).train()


def test_an_optimizer_hook_of_the_users_comes_before_the_scheduler_as_the_default_one_does(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, custom_hooks=[{"type": "OptimizerHook"}])
    names = [type(hook).__name__ for hook in engine.hooks]
    assert names.index("OptimizerHook") < names.index("LRSchedulerHook")


def test_a_logger_among_the_custom_hooks_takes_the_place_of_the_default_one(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, custom_hooks=[{"type": "JSONLoggerHook"}, {"type": "TensorboardLoggerHook"}])
    engine.train()
    assert (tmp_path / "metrics.json").exists()


def test_logs_outside_of_the_folder_of_the_run_are_left_to_others(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "log.json"
    shared.parent.mkdir()
    shared.write_text('{"iteration": 1, "of": 2}\n')
    hooks = [{"type": "JSONLoggerHook", "json_file": str(shared)}]
    engine_in(tmp_path / "one", custom_hooks=hooks).train()
    engine_in(tmp_path / "two", custom_hooks=hooks, resume_from=True).train()
    assert shared.read_text().startswith('{"iteration": 1, "of": 2}\n')
