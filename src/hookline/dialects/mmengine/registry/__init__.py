"""The registries of a project: names -> classes, one registry per purpose."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.registry.build_functions import *
from hookline.dialects.mmengine.registry.default_scope import *
from hookline.dialects.mmengine.registry.registry import *
from hookline.dialects.mmengine.registry.root import *

export_imported(globals())
