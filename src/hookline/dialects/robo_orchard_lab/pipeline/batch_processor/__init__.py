"""`robo_orchard_lab.pipeline.batch_processor`: the classes that process a batch."""

from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.mixin import BatchProcessorMixin
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.simple import (
    LossNotProvidedError,
    SimpleBatchProcessor,
)

__all__ = ["BatchProcessorMixin", "LossNotProvidedError", "SimpleBatchProcessor"]
