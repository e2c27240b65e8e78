"""The names of checkpoint files. This module does not import torch, so that a folder can be listed without it."""

from __future__ import annotations

import re
from collections.abc import Collection

#: The default names; a template can change them. A file with another name and without a seal is not a checkpoint of
#: hookline. A sharded checkpoint is a folder with the ending `.dcp`.
NAMES = re.compile(r"(best_(?P<metric>.+)_)?(?P<unit>epoch|iter)_(?P<count>[0-9]+)(-[0-9a-f]{8})?\.(pth|dcp)")
# A character of a file name template, besides its one `{}`.
IN_NAME = r"[^{}/\\\x00-\x1f\x7f-\x9f]"


def safe_file_name(name: str) -> str:
    """Return a name with all characters replaced that are unsafe in a file name."""
    return re.sub(r"[^\w.@+-]", "_", name)


def is_template(name: str) -> bool:
    """Return whether a text is a file name with one `{}` that ends with `.pth`.

    >>> [is_template(name) for name in ("step_{}.pth", "last.pth", "{}/{}.pth")]
    [True, False, False]
    """
    return re.fullmatch(rf"{IN_NAME}*\{{\}}{IN_NAME}*\.pth", name) is not None


def pattern_of(templates: Collection[str], prefix: str = "") -> re.Pattern[str]:
    """Return the pattern of the file names that templates and a prefix lead to."""
    stems = [re.escape(template.removesuffix(".pth")).replace(r"\{\}", "[0-9]+") for template in templates]
    return re.compile(rf"{re.escape(prefix)}({'|'.join(stems)})\.(pth|dcp)")
