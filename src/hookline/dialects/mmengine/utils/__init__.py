"""Small helpers that hooks, models and datasets import."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.utils.manager import *
from hookline.dialects.mmengine.utils.misc import *
from hookline.dialects.mmengine.utils.package_utils import *
from hookline.dialects.mmengine.utils.path import *
from hookline.dialects.mmengine.utils.progressbar import *
from hookline.dialects.mmengine.utils.timer import *
from hookline.dialects.mmengine.utils.version_utils import *

export_imported(globals())
