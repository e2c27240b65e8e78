"""The rule of a metric, from its name."""

from __future__ import annotations

import pytest

from hookline.common.monitor import infer_rule, monitor
from hookline.errors import ConfigError


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "train/loss", "val/loss_ce", "LOSS", "lossG", "val_losses", "iou_loss", "accuracy_loss", "loss_giou"),
        *(
            "error",
            "mean_error",
            "error_rate",
            "top1_error",
            "top-5-error",
            "precision_error",
            "recall_error",
            "errors",
        ),
        *("err", "top1_err", "MeanSquaredError", "WordErrorRate", "auc/error"),
        *("mae", "MAE", "mse", "rmse", "val/rmse", "mape", "nll", "negative_log_likelihood", "NegativeLogLikelihood"),
        *("perplexity", "ppl", "bpd", "bpc", "wer", "cer", "eer", "ece", "fid", "FID50k", "lpips", "miss_rate"),
    ],
)
def test_a_loss_or_an_error_of_anything_is_better_if_it_is_less(name: str) -> None:
    assert infer_rule(name) == "less"


@pytest.mark.parametrize(
    "name",
    [
        *("acc", "accuracy", "val/MulticlassAccuracy", "lossless_accuracy", "top1", "top-1", "val_top5", "top5acc"),
        *("AR@100", "auc", "BinaryAUROC", "precision", "recall@10", "f1", "MulticlassF1Score", "f1_macro", "bbox_mAP"),
        *("coco/bbox_mAP_50", "map_50", "AP50", "mar_100", "dice", "mDice", "iou", "mean_iou", "IoU", "mIoU", "miou"),
        *("mAcc", "aAcc", "r2", "R2Score", "psnr", "ms_ssim", "bleu4", "rougeL", "multi_scale_iou", "errorless/acc"),
    ],
)
def test_a_score_is_better_if_it_is_greater(name: str) -> None:
    assert infer_rule(name) == "greater"


@pytest.mark.parametrize(
    "name",
    [
        *("speed", "score", "x", "lr", "time", "grad_norm", ""),
        *("stop_rate", "topology", "mapping_time", "fidelity", "acceleration", "accumulated", "lossy"),  # other words
        *("loss_scale", "loss_weight_2", "dice_weight"),  # settings
        *("accuracy_drop", "error_reduction", "neg_mean_squared_error", "recall_gap", "one_minus_acc"),  # turned around
        *("top1_miss_rate", "fid_accuracy", "psnr_mse"),  # both
    ],
)
def test_a_name_that_shows_nothing_or_both_is_refused(name: str) -> None:
    assert infer_rule(name) is None
    with pytest.raises(ConfigError) as refused:
        monitor(name, who="EarlyStoppingHook")
    assert str(refused.value) == (
        f"EarlyStoppingHook: the name '{name}' does not show whether higher or lower is better; set rule: greater or "
        "rule: less"
    )
    assert monitor(name, "less").rule == "less"


def test_own_keys_come_first_and_replace_the_built_in_words() -> None:
    assert infer_rule("val/accuracy", less_keys=["acc"]) == "less"
    assert infer_rule("val/accuracy", greater_keys=["speed"]) is None
    assert infer_rule("speedup", greater_keys=["speed"]) == "greater"
    assert infer_rule("error_free_rate", greater_keys=["error_free"]) == "greater"
    assert infer_rule("loss", less_keys=[]) is None
    assert infer_rule("loss", less_keys=["speed"], greater_keys=["LOSS"]) == "greater"
    assert infer_rule("accuracy", less_keys=["acc"], greater_keys=["accuracy"]) == "greater"  # the whole name
    assert infer_rule("top1_error", greater_keys=["speed"]) == "less"
    assert infer_rule("accuracy", less_keys="acc") == "less"
    assert infer_rule("cat", less_keys="acc") is None
