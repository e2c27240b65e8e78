"""File access: storage backends, and handlers for file formats."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.fileio.backends import *
from hookline.dialects.mmengine.fileio.file_client import *
from hookline.dialects.mmengine.fileio.handlers import *
from hookline.dialects.mmengine.fileio.io import *

export_imported(globals())
