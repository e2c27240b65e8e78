"""SimpleStepProcessor is SimpleBatchProcessor. `io_processor` and its envelopes are not supported."""

from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.mixin import (
    BatchProcessorMixin as BatchStepProcessorMixin,
)
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import (
    BatchProcessorFromCallable as StepProcessorFromCallable,
)
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import LossNotProvidedError
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import (
    SimpleBatchProcessor as SimpleStepProcessor,
)

__all__ = ["BatchStepProcessorMixin", "LossNotProvidedError", "SimpleStepProcessor", "StepProcessorFromCallable"]
