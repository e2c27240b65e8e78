"""Evaluation of a model: converters turn its outputs into predictions, and metrics judge them."""

from hookline.dialects.imix.evaluation.evaluator_imix import (
    DATASET_CONVERTER,
    METRICS,
    POST_PROCESSOR,
    Evaluator,
    build_post_processor,
    inference_on_dataset,
)

__all__ = [
    "DATASET_CONVERTER",
    "METRICS",
    "POST_PROCESSOR",
    "Evaluator",
    "build_post_processor",
    "inference_on_dataset",
]
