"""Read all configs of a project, as data, with the real mmengine or with hookline's dialect.

    python read_configs.py mmengine|hookline PROJECT OUT

PROJECT is a package or a folder. Each line of OUT has the path of a config, whether it is in the newer style, and its
content or the error.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import re
import sys
import warnings
from pathlib import Path
from typing import Any

#: A script among the configs of mmdet.
SCRIPT = "override_category.py"


def as_data(value: Any, newer: bool = False) -> Any:
    if isinstance(value, dict):
        return {str(name): as_data(each, newer) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [*(["a tuple"] if isinstance(value, tuple) else []), *(as_data(each, newer) for each in value)]
    if newer and isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*(\.\w+)+", value):
        return where_defined(value)
    if value is None or isinstance(value, (str, int)):
        return value
    return repr(value) if isinstance(value, float) else re.sub("0x[0-9a-f]+", "", repr(value))


def where_defined(path: str) -> str:
    """Return where a class or function is defined, given a place from which it can be imported."""
    home, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(home), name)
        return f"{found.__module__.removeprefix('hookline.dialects.')}.{found.__qualname__}"
    except (ImportError, AttributeError):
        return path


def main(package: str, project: str, out: Path) -> None:
    if package == "hookline":
        from hookline.dialects import alias

        alias("mmengine")
    from mmengine.config import Config

    Config.allow_python_config = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    root = Path(project)
    if not root.is_dir():
        spec = importlib.util.find_spec(project)
        assert spec is not None and spec.origin is not None  # noqa: PT018
        root = Path(spec.origin).parent
    files = [file for file in root.rglob("*.py") if "configs" in file.relative_to(root).parts and file.name != SCRIPT]
    with out.open("w", encoding="utf-8") as lines:
        for file in sorted(files):
            text = file.read_text(encoding="utf-8")
            newer = "_base_ =" not in text and re.search(r"^(from|import) ", text, re.MULTILINE) is not None
            try:
                read = Config.fromfile(str(file), import_custom_modules=False)
                found = as_data(read.to_dict(), newer)
                error = ""
            except Exception as problem:
                found, error = None, f"{type(problem).__name__}: {problem}"
            lines.write(json.dumps([str(file.relative_to(root)), newer, found, error], sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
