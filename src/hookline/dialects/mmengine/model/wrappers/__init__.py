"""Model wrappers."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.model.wrappers.distributed import *
from hookline.dialects.mmengine.model.wrappers.utils import is_model_wrapper as is_model_wrapper

export_imported(globals())
