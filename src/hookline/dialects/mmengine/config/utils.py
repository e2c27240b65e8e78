"""Find the configs that installed projects ship: `mmdet::retinanet/retinanet_r50_fpn_1x_coco.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.fileio import load
from hookline.dialects.mmengine.not_included import not_included
from hookline.dialects.mmengine.utils import check_file_exist

#: The import names of projects whose distribution has another name.
OTHER_NAMES = {"mmseg": "mmsegmentation", "mmaction": "mmaction2"}
MODULE2PACKAGE = {
    name: OTHER_NAMES.get(name, name)
    for name in (
        *("mmaction", "mmagic", "mmcls", "mmdet", "mmdet3d", "mmedit", "mmfewshot", "mmflow", "mmgen", "mmhuman3d"),
        *("mmocr", "mmpose", "mmpretrain", "mmrazor", "mmrotate", "mmseg", "mmselfsup", "mmtrack", "mmyolo"),
    )
}
PKG2PROJECT = MODULE2PACKAGE


class ConfigParsingError(RuntimeError):
    """A config in the newer style cannot be parsed."""


def _get_package_and_cfg_path(cfg_path: str) -> tuple[str, str]:
    """Return the distribution and the path of `package::path`."""
    module, separator, path = cfg_path.partition("::")
    if not separator or "::" in path or "/" not in path:
        raise ConfigValueError(
            f"{cfg_path!r} does not name a config of a project; write mmdet::retinanet/retinanet_r50_fpn_1x_coco.py"
        )
    assert module in MODULE2PACKAGE, f"configs of '{module}' are unknown; known: {', '.join(sorted(MODULE2PACKAGE))}"
    return MODULE2PACKAGE[module], path


def _get_external_cfg_base_path(package_path: str, cfg_name: str) -> str:
    """Return the file of a config under the configs of a package."""
    path = str(Path(package_path, ".mim", "configs", cfg_name))
    check_file_exist(path)
    return path


def _get_cfg_metainfo(package_path: str, cfg_path: str) -> dict[str, Any]:
    """Return what the index of a package knows about a config, such as the address of its weights."""
    folder = Path(package_path, ".mim")
    known: dict[str, dict[str, Any]] = {}
    for file in load(str(folder / "model-index.yml"))["Import"]:
        for model in load(str(folder / file))["Models"]:
            if "Config" in model:
                known.setdefault(model["Config"].partition("/")[2], model)
    if cfg_path not in known:
        raise ConfigValueError(f"the index of {package_path} has no config '{cfg_path}'")
    return known[cfg_path]


PYTHON_ROOT_DIR, SYSTEM_PYTHON_PREFIX = str(Path(sys.executable).parent.parent), sys.base_prefix
not_included(globals(), "ImportTransformer", "RemoveAssignFromAST")
