"""Read all configs of a project, as data, with the real mmengine or with hookline's dialect.

    python read_configs.py mmengine|hookline PROJECT OUT

Each line of OUT has the path of a config, whether it is in the newer style, and its content or the error.
"""

from __future__ import annotations

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


def as_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): as_data(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return ["a tuple", *map(as_data, value)]
    if isinstance(value, list):
        return [as_data(each) for each in value]
    if value is None or isinstance(value, (str, int)):
        return value
    return repr(value) if isinstance(value, float) else re.sub("0x[0-9a-f]+", "", repr(value))


def main(package: str, project: str, out: Path) -> None:
    if package == "hookline":
        from hookline.dialects import alias

        alias("mmengine")
    from mmengine.config import Config

    Config.allow_python_config = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    spec = importlib.util.find_spec(project)
    assert spec is not None and spec.origin is not None  # noqa: PT018
    root = Path(spec.origin).parent
    files = [file for file in root.rglob("*.py") if "configs" in file.relative_to(root).parts and file.name != SCRIPT]
    with out.open("w", encoding="utf-8") as lines:
        for file in sorted(files):
            text = file.read_text(encoding="utf-8")
            newer = "read_base" in text
            try:
                read = Config.fromfile(str(file), import_custom_modules=False)
                found = as_data(read.to_dict())
                error = ""
            except Exception as problem:
                found, error = None, f"{type(problem).__name__}: {problem}"
            lines.write(json.dumps([str(file.relative_to(root)), newer, found, error], sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
