"""Distributed helpers: ranks, and communication between processes. They also work with a single process."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.dist.dist import *
from hookline.dialects.mmengine.dist.utils import *

export_imported(globals())
