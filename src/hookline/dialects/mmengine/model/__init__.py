"""Models that compute their own losses and predictions, weight initialization, and averaged models."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.model.averaged_model import *
from hookline.dialects.mmengine.model.base_model import *
from hookline.dialects.mmengine.model.base_module import *
from hookline.dialects.mmengine.model.test_time_aug import *
from hookline.dialects.mmengine.model.utils import *
from hookline.dialects.mmengine.model.weight_init import *
from hookline.dialects.mmengine.model.wrappers import *

export_imported(globals())
