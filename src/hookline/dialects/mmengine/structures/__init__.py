"""Data elements: annotations and predictions of a sample, with metadata."""

from hookline.dialects.mmengine.structures.base_data_element import BaseDataElement
from hookline.dialects.mmengine.structures.instance_data import InstanceData
from hookline.dialects.mmengine.structures.label_data import LabelData
from hookline.dialects.mmengine.structures.pixel_data import PixelData

__all__ = ["BaseDataElement", "InstanceData", "LabelData", "PixelData"]
