"""BaseModel and its data preprocessors."""

from hookline.dialects.mmengine.model.base_model.base_model import BaseModel
from hookline.dialects.mmengine.model.base_model.data_preprocessor import BaseDataPreprocessor, ImgDataPreprocessor

__all__ = ["BaseDataPreprocessor", "BaseModel", "ImgDataPreprocessor"]
