"""`robo_orchard_lab.processing.step_processor`: the batch processors, under the names of later versions."""

from hookline.dialects.robo_orchard_lab.processing.step_processor.pipeline_step import (
    BatchStepProcessorMixin,
    LossNotProvidedError,
    SimpleStepProcessor,
    StepProcessorFromCallable,
)

__all__ = ["BatchStepProcessorMixin", "LossNotProvidedError", "SimpleStepProcessor", "StepProcessorFromCallable"]
