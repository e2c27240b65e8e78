"""The names of checkpoint files. This module does not import torch, so that a folder can be listed without it."""

from __future__ import annotations

import re

#: The default names; a template can change them. A file with another name and without a seal is not a checkpoint of
#: hookline. A sharded checkpoint is a folder with the ending `.dcp`.
NAMES = re.compile(r"(best_(?P<metric>.+)_)?(?P<unit>epoch|iter)_(?P<count>[0-9]+)(-[0-9a-f]{8})?\.(pth|dcp)")


def safe_file_name(name: str) -> str:
    """Return a name with all characters replaced that are unsafe in a file name."""
    return re.sub(r"[^\w.@+-]", "_", name)
