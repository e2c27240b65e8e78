"""The hooks of the pipeline."""

from __future__ import annotations

import gc
import logging
import re
from typing import Any

import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.aggregation import CatMetric, MeanMetric, SumMetric
from torchmetrics.classification import BinaryAUROC, BinaryPrecision, BinaryRecall
from torchmetrics.wrappers import MinMaxMetric

from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks import (
    ClearCacheHookConfig,
    GradientClippingHookConfig,
    LossMovingAverageTrackerConfig,
    LossTrackerConfig,
    MetricEntry,
    MetricTracker,
    MetricTrackerConfig,
    PipelineHookArgs,
    SaveCheckpointConfig,
    StatsMonitorConfig,
    ValidationHookConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.metric import get_state, restore_state
from hookline.errors import ConfigError
from tests.dialects.robo_orchard_lab import parts
from tests.dialects.robo_orchard_lab.parts import counters


def messages(caplog: pytest.LogCaptureFixture, module: str) -> list[str]:
    return [record.message for record in caplog.records if record.name.endswith(module)]


# -- validation


@pytest.mark.parametrize("with_model", [True, False])
def test_validation_runs_exactly_when_it_is_due(with_model: bool) -> None:
    seen: list[Any] = []
    steps: list[int] = []

    def callback(model: Any = None) -> None:
        seen.append((steps[-1] + 1, model is not None and not model.training, torch.is_grad_enabled()))

    validation = ValidationHookConfig(
        eval_callback=callback if with_model else lambda: callback(), step_eval_freq=3, epoch_eval_freq=2
    )
    trainer = parts.trainer(
        dataloader=torch.utils.data.DataLoader(parts.dataset(), batch_size=5), validation=validation
    )
    inner = trainer.batch_processor

    def counting(**arguments: Any) -> None:
        steps.append(arguments["on_batch_hook_args"].global_step_id)
        inner(**arguments)

    trainer.batch_processor = counting  # type: ignore[assignment]
    trainer()
    assert len(steps) == 8
    assert seen == [(3, with_model, True), (6, with_model, True), (8, with_model, True)]
    assert trainer.model.training


def test_validation_may_run_before_the_first_step() -> None:
    seen: list[str] = []

    def frozen_stays_frozen(model: nn.Module) -> None:
        seen.append(" ".join(str(module.training) for module in model.children()))

    trainer = parts.trainer(
        max_step=1,
        validation=ValidationHookConfig(eval_callback=frozen_stays_frozen, step_eval_freq=9, eval_at_begin=True),
    )
    trainer.model[1].eval()
    trainer()
    assert seen == ["False False False"]
    assert [module.training for module in trainer.model] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"eval_callback": print}, ValueError, "at least one of step_eval_freq and epoch_eval_freq must be set"),
        (
            {"eval_callback": print, "step_eval_freq": 0},
            ValueError,
            "step_eval_freq must be a number of steps or epochs, at",
        ),
        ({"step_eval_freq": 1}, ValueError, "eval_callback\n  Field required"),
    ],
)
def test_an_invalid_validation_config_is_refused(options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ValidationHookConfig(**options)


def test_a_callback_with_more_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match="^eval_callback must take the model or no arguments, unlike <FunctionInfo"):
        ValidationHookConfig(eval_callback=lambda model, data: None, step_eval_freq=1)()


# -- clipping


@pytest.mark.parametrize("mode", ["norm", "value"])
def test_gradients_are_clipped_before_the_step(mode: Any) -> None:
    seen: list[float] = []

    class Watching(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            gradients = [p.grad for group in self.param_groups for p in group["params"]]
            norm = torch.linalg.vector_norm(
                torch.cat([g.flatten() for g in gradients]), 2 if mode == "norm" else float("inf")
            )
            seen.append(float(norm))

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    clip = GradientClippingHookConfig(clip_mode=mode, max_norm=0.05, clip_value=0.05)
    parts.trainer(
        make_model=lambda: model,
        optimizer=Watching(model.parameters(), lr=0.1),
        lr_scheduler=None,
        max_step=2,
        grad_clip=clip,
    )()
    assert seen == [pytest.approx(0.05, rel=1e-4)] * 2


@pytest.mark.parametrize(
    "options", [{"clip_mode": "norm"}, {"clip_mode": "value", "max_norm": 1}, {"clip_mode": "norm", "max_norm": -1}]
)
def test_a_clip_without_its_limit_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="needs (max_norm|clip_value) of at least 0, not"):
        GradientClippingHookConfig(**options)


# -- losses


def named(model: Any, batch: Any) -> Any:
    outputs, loss = parts.forward(model, batch)
    return {"cls_loss": loss * 2, "box_loss": loss * 3, "logits": outputs["logits"]}, loss


def lines_of(caplog: pytest.LogCaptureFixture, forward: Any, config: Any, **options: Any) -> list[str]:
    caplog.clear()
    caplog.set_level(logging.INFO)
    parts.trainer(batch_processor=SimpleBatchProcessor.from_callable(forward), hooks=config, **options)()
    return messages(caplog, "loss_tracker")


def test_losses_are_logged_as_means_since_the_previous_line(caplog: pytest.LogCaptureFixture) -> None:
    losses: list[float] = []

    def watched(model: Any, batch: Any) -> Any:
        outputs, loss = named(model, batch)
        losses.append(loss.item())
        return outputs, loss

    lines = lines_of(caplog, watched, LossTrackerConfig(step_log_freq=2, log_total_loss=True), max_step=5)
    first, second = sum(losses[:2]) / 2, sum(losses[2:4]) / 2
    assert lines == [
        f"Epoch[0/NA] Step[{at}] GlobalStep[{at}/4]: "
        f"cls_loss[{2 * mean:.4f}]\tbox_loss[{3 * mean:.4f}]\ttotal_loss[{5 * mean:.4f}]"
        for at, mean in ((1, first), (3, second))
    ]
    losses.clear()
    lines = lines_of(caplog, watched, LossTrackerConfig(step_log_freq=5, moving_average=False), max_epoch=1)
    assert lines == [
        f"Epoch[0/0] Step[4] GlobalStep[4/NA]: cls_loss[{2 * losses[4]:.4f}]\tbox_loss[{3 * losses[4]:.4f}]"
    ]


def test_outputs_without_names_are_logged_as_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    def plain(model: Any, batch: Any) -> Any:
        outputs, loss = parts.forward(model, batch)
        return outputs["logits"], loss

    (line,) = lines_of(caplog, plain, LossTrackerConfig(step_log_freq=1), max_step=1)
    assert re.fullmatch(r"Epoch\[0/NA\] Step\[0\] GlobalStep\[0/0\]: loss\[\d\.\d{4}\]", line)


def test_codes_in_the_name_of_a_loss_are_shown_escaped(caplog: pytest.LogCaptureFixture) -> None:
    def odd(model: Any, batch: Any) -> Any:
        _, loss = parts.forward(model, batch)
        return {"loss\x1b[2J\nforged": loss * 0}, loss

    (line,) = lines_of(caplog, odd, LossTrackerConfig(step_log_freq=1), max_step=1)
    assert line == r"Epoch[0/NA] Step[0] GlobalStep[0/0]: loss\x1b[2J\nforged[0.0000]"


def test_outputs_may_name_their_losses(caplog: pytest.LogCaptureFixture) -> None:
    class Outputs(dict[str, Any]):
        def loss_keys(self) -> list[str]:
            return ["error"]

    def chosen(model: Any, batch: Any) -> Any:
        _, loss = parts.forward(model, batch)
        return Outputs(error=loss, my_loss=loss), loss

    (line,) = lines_of(caplog, chosen, LossMovingAverageTrackerConfig(step_log_freq=1), max_step=1)
    assert re.fullmatch(r".*: error\[\d\.\d{4}\]\ttotal_loss\[\d\.\d{4}\]", line)
    assert (LossMovingAverageTrackerConfig().step_log_freq, LossMovingAverageTrackerConfig().log_total_loss) == (
        25,
        True,
    )


def test_a_loss_that_is_not_a_tensor_is_refused() -> None:
    def plain(model: Any, batch: Any) -> Any:
        outputs, loss = parts.forward(model, batch)
        return {**outputs, "aux_loss": 0.5}, loss

    trainer = parts.trainer(hooks=LossTrackerConfig(), batch_processor=SimpleBatchProcessor.from_callable(plain))
    with pytest.raises(TypeError) as refused:
        trainer()
    assert str(refused.value) == (
        "the loss 'aux_loss' is a float, but LossTracker needs tensors; make it one, or name the losses among the "
        "outputs with loss_keys()"
    )


@pytest.mark.parametrize("name", ["step_log_freq", "epoch_log_freq"])
def test_a_negative_frequency_is_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: -3}
    with pytest.raises(ValueError, match=f"{name}\n  Input should be greater than or equal to 0"):
        StatsMonitorConfig(**wrong)
    with pytest.raises(ValueError, match=f"{name}\n  Input should be greater than or equal to 0"):
        TrackerConfig(metric_entrys=entries(), **wrong)


# -- metrics


class Tracker(MetricTracker):
    def update_metric(self, batch: Any, model_outputs: Any) -> None:
        inputs, target = batch
        self.metrics[0].update(target.float())
        self.metrics[1].update(inputs[:, 0])


class TrackerConfig(MetricTrackerConfig):
    class_type: type[MetricTracker] = Tracker


class Both:
    """A metric with two values and its own state."""

    def __init__(self) -> None:
        self.seen = 0

    def update(self, values: torch.Tensor) -> None:
        self.seen += len(values)

    def compute(self) -> tuple[int, str]:
        return self.seen, f"{self.seen} samples"

    def reset(self) -> None:
        self.seen = 0

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


def entries() -> list[MetricEntry]:
    return [MetricEntry("mean", MeanMetric()), MetricEntry(["count", "text"], Both())]


def test_metrics_are_logged_and_reset(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    parts.trainer(hooks=TrackerConfig(metric_entrys=entries(), step_log_freq=4))()
    mean = parts.dataset().tensors[1].float().mean()
    lines = messages(caplog, "hooks.metric")
    assert [re.sub(r"mean\[[^]]*\]", "mean[]", line) for line in lines] == [
        "Epoch[0] Step[3] GlobalStep[3]: mean[] count[16.0000] text[16 samples]",
        "Epoch[0]: mean[] count[18.0000] text[18 samples]",
        "Epoch[1] Step[2] GlobalStep[7]: mean[] count[12.0000] text[12 samples]",
        "Epoch[1]: mean[] count[18.0000] text[18 samples]",
    ]
    assert f"mean[{mean:.4f}]" in lines[1]


def test_metrics_may_be_reset_by_steps_and_resume_in_the_middle(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level(logging.INFO)
    config = TrackerConfig(
        metric_entrys=[MetricEntry("all", CatMetric()), MetricEntry(["count", "text"], Both())],
        reset_by="step",
        reset_freq=4,
        step_log_freq=1,
        epoch_log_freq=0,
    )
    saves = SaveCheckpointConfig(save_step_freq=3, save_epoch_freq=None)
    parts.trainer(tmp_path, hooks=[config, saves], max_epoch=1)()
    whole = messages(caplog, "hooks.metric")
    caplog.clear()
    resumed = ResumeCheckpointConfig(resume_from=str(tmp_path / "checkpoints" / "checkpoint_0"))
    parts.trainer(tmp_path / "again", hooks=[config, saves], max_epoch=1, resume_from=resumed)()
    assert messages(caplog, "hooks.metric") == whole[3:]
    assert [line.split("count")[1] for line in whole] == [
        *("[4.0000] text[4 samples]", "[8.0000] text[8 samples]", "[12.0000] text[12 samples]"),
        *("[16.0000] text[16 samples]", "[2.0000] text[2 samples]"),
    ]


class CollectionTracker(MetricTracker):
    def update_metric(self, batch: Any, model_outputs: Any) -> None:
        inputs, _ = batch
        self.metrics[0].update(inputs[:, 0].sigmoid(), torch.arange(len(inputs)) % 2)


def collection(*more: Any) -> Any:
    groups = [BinaryPrecision(), BinaryRecall(), *more]  # these share one state
    return CollectionTracker(
        MetricTrackerConfig(
            class_type=CollectionTracker,
            metric_entrys=MetricEntry("all", MetricCollection(groups)),
            step_log_freq=1,
            epoch_log_freq=0,
        )
    )


def test_a_collection_of_metrics_resumes_in_the_middle(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    caplog.set_level(logging.INFO)
    saves = SaveCheckpointConfig(save_step_freq=3, save_epoch_freq=None)
    parts.trainer(tmp_path, hooks=[collection(BinaryAUROC()), saves], max_epoch=1)()
    whole = messages(caplog, "hooks.metric")
    assert len(whole) == parts.STEPS
    assert whole[2] != whole[3] != whole[4]
    caplog.clear()
    resumed = ResumeCheckpointConfig(resume_from=str(tmp_path / "checkpoints" / "checkpoint_0"))
    again = {"max_epoch": 1, "resume_from": resumed}
    parts.trainer(tmp_path / "again", hooks=[collection(BinaryAUROC()), saves], **again)()
    assert messages(caplog, "hooks.metric") == whole[3:]
    with pytest.raises(
        ValueError, match=r"^the state of a MetricCollection was saved with the parts \['BinaryAUROC', "
    ):
        parts.trainer(tmp_path / "less", hooks=[collection(), saves], **again)()


def test_a_wrapped_metric_is_saved_too() -> None:
    metric = MinMaxMetric(SumMetric())
    metric.update(torch.tensor(2.0))
    other = MinMaxMetric(SumMetric())
    restore_state(other, get_state(metric))
    for one in (metric, other):
        one.update(torch.tensor(3.0))
        assert one.compute()["raw"] == 5


def test_names_and_values_of_a_metric_must_match() -> None:
    with pytest.raises(ValueError, match="^Both returned 2 values, but there are 1 names for them: \\['count'\\]$"):
        MetricEntry("count", Both()).get()


def test_the_error_for_a_tracker_without_an_update_says_what_to_write() -> None:
    with pytest.raises(TypeError) as refused:
        MetricTrackerConfig(metric_entrys=entries())()
    assert isinstance(refused.value, ConfigError)
    assert str(refused.value) == (
        "MetricTrackerConfig cannot create a MetricTracker, because that is an abstract class without update_metric; "
        "write a subclass that defines update_metric, and use it: MetricTrackerConfig(class_type=MyMetricTracker, ...)"
    )
    assert isinstance(MetricTrackerConfig(metric_entrys=entries(), class_type=Tracker)(), Tracker)


# -- speed, and memory


def test_speed_and_learning_rates_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    parts.trainer(hooks=StatsMonitorConfig(step_log_freq=4, window_size=2))()
    lines = messages(caplog, "hooks.stats")
    number = r"\d+(\.\d+)?"
    rest = rf"speed {number} samples/s\tstep time {number} s\tremaining 0:00:00\tlr group 0 "
    expected = [
        (r"Epoch\[0\] Step\[3\] GlobalStep\[3\]: ", "5.00000e-02"),
        (rf"Epoch\[0\] completed in {number} s: ", "5.00000e-02"),
        (r"Epoch\[1\] Step\[2\] GlobalStep\[7\]: ", "2.50000e-02"),
        (rf"Epoch\[1\] completed in {number} s: ", "1.25000e-02"),
    ]
    assert len(lines) == len(expected)
    for line, (where, rate) in zip(lines, expected, strict=True):
        assert re.fullmatch(f"{where}{rest}{rate}", line), line


def test_the_remaining_steps_are_computed_from_the_known_limits(caplog: pytest.LogCaptureFixture) -> None:
    args = PipelineHookArgs(None, max_epoch=3, max_step=7, dataloader=[1, 2])
    monitor = StatsMonitorConfig()()
    assert monitor._count_left(args, 2) == 4
    assert monitor._count_left(args.copy_with_updates(max_step=5), 2) == 3
    assert monitor._count_left(args.copy_with_updates(max_step=None, dataloader=iter(())), 2) is None
    assert StatsMonitorConfig(steps_per_epoch=10)()._count_left(args.copy_with_updates(max_step=None), 2) == 28


@pytest.mark.parametrize(("at", "every", "times"), [("epoch", 1, 2), ("epoch", 2, 1), ("step", 4, 2)])
def test_garbage_is_collected_when_it_is_due(at: Any, every: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import accelerate.utils.memory as memory  # type: ignore[import-untyped]

    calls: list[bool] = []
    monkeypatch.setattr(memory, "clear_device_cache", lambda garbage_collection: calls.append(garbage_collection))
    parts.trainer(hooks=ClearCacheHookConfig(empty_cache_at=at, empty_cache_freq=every, garbage_collection=True))()
    assert calls == [True] * times


def test_the_cache_is_really_cleared() -> None:
    class Circle: ...

    circle: Any = Circle()
    circle.me = circle
    died: list[int] = []
    import weakref

    weakref.finalize(circle, died.append, 1)
    gc.disable()
    try:
        del circle
        parts.trainer(max_step=1, hooks=ClearCacheHookConfig(garbage_collection=True))()
    finally:
        gc.enable()
    assert died == [1]


@pytest.mark.parametrize(
    "config",
    [
        LossTrackerConfig(step_log_freq=3),
        StatsMonitorConfig(batch_size=4),
        ClearCacheHookConfig(empty_cache_at="step"),
        GradientClippingHookConfig(clip_mode="norm", max_norm=1.5),
        SaveCheckpointConfig(save_root="runs"),
        ValidationHookConfig(eval_callback=counters, step_eval_freq=2),
    ],
    ids=lambda config: type(config).__name__,
)
@pytest.mark.parametrize("format", ["json", "yaml", "toml"])
def test_every_config_survives_a_round_trip_through_text(config: Any, format: Any) -> None:
    found = type(config).from_str(config.to_str(format=format), format=format, allow=[counters.__module__])
    assert found == config
    assert isinstance(found(), config.class_type)


@pytest.mark.parametrize("config", [LossTrackerConfig, StatsMonitorConfig, ClearCacheHookConfig, SaveCheckpointConfig])
def test_unknown_fields_are_refused(config: Any) -> None:
    with pytest.raises(ValueError, match="bogus\n  Extra inputs are not permitted"):
        config(bogus=1)
